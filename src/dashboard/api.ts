import type { ClusterReport } from '../metrics/node-report.js';
import { isClusterReport } from './data/loose.js';
import { recall, remember } from './storage.js';

/** Milliseconds until a poll counts as unanswered. The node itself gives members a second. */
const ANSWER_TIMEOUT_MS = 3_000;
const TOKEN_KEY = 'meshcache.token';

export type Answer =
  | { readonly kind: 'report'; readonly report: ClusterReport }
  /** The node asks for a token; `wasGiven` means that the token sent was wrong. */
  | { readonly kind: 'unauthorized'; readonly wasGiven: boolean }
  /** The node did not answer. */
  | { readonly kind: 'silent'; readonly isTimeout: boolean }
  | { readonly kind: 'failed'; readonly why: string };

/** Fetches the reports of the node that serves this page. The token lives as long as the browser's tab. */
export class Api {
  #token = recall('sessionStorage', TOKEN_KEY) ?? '';

  setToken(token: string): void {
    this.#token = token;
    remember('sessionStorage', TOKEN_KEY, token);
  }

  /** Fetches the cluster's report. Never rejects. */
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
