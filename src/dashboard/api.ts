import type { ClusterReport } from '../metrics/node-report.js';
import { isClusterReport } from './data/loose.js';
import { recall, remember } from './storage.js';

/** The node gives members a second to answer; what takes longer than this is taken for none. */
const ANSWER_TIMEOUT_MS = 3_000;
const TOKEN_KEY = 'meshcache.token';

export type Answer =
  | { readonly kind: 'report'; readonly report: ClusterReport }
  /** A token is asked for; `wasGiven` when the one that was sent is not it. */
  | { readonly kind: 'unauthorized'; readonly wasGiven: boolean }
  /** No answer at all. */
  | { readonly kind: 'silent'; readonly isTimeout: boolean }
  | { readonly kind: 'failed'; readonly why: string };

/** The reports of the node that serves this page. The token lives as long as the browser's tab. */
export class Api {
  #token = recall('sessionStorage', TOKEN_KEY) ?? '';

  setToken(token: string): void {
    this.#token = token;
    remember('sessionStorage', TOKEN_KEY, token);
  }

  /** Never rejects. */
  async cluster(): Promise<Answer> {
    const token = this.#token;
    let response: Response;
    let body: unknown;
    try {
      response = await fetch('/api/cluster', {
        headers: token === '' ? {} : { authorization: `Bearer ${token}` },
        cache: 'no-store',
        signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
      });
      if (response.status === 401) return { kind: 'unauthorized', wasGiven: token !== '' };
      if (!response.ok) return { kind: 'failed', why: `answers with HTTP status ${response.status}` };
      body = await response.json();
    } catch (error) {
      if (error instanceof SyntaxError) return { kind: 'failed', why: 'answers with something that is not a report' };
      return { kind: 'silent', isTimeout: error instanceof DOMException && error.name === 'TimeoutError' };
    }
    if (!isClusterReport(body)) return { kind: 'failed', why: 'answers with something that is not a report' };
    return { kind: 'report', report: body };
  }
}
