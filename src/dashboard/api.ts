import type { ClusterHistory } from '../metrics/history/history-report.js';
import type { ClusterReport } from '../metrics/node-report.js';
import { isClusterReport } from './data/loose.js';
import { isClusterHistory } from './data/past.js';
import { recall, remember } from './storage.js';

/** Milliseconds until a poll counts as unanswered. The node itself gives members a second. */
const ANSWER_TIMEOUT_MS = 3_000;
/** Statuses of answers that say in words what to do. */
const REFUSALS: ReadonlySet<number> = new Set([403, 429]);
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

  /**
   * Fetches what the nodes have kept, in steps of `stepS`; undefined if they are of a version that keeps nothing, or do
   * not answer. Never rejects.
   */
  async history(stepS: number): Promise<ClusterHistory | undefined> {
    try {
      const response = await this.#fetch(`/api/history?step_s=${stepS}`);
      const body: unknown = response.ok ? await response.json() : undefined;
      return isClusterHistory(body) ? body : undefined;
    } catch {
      return undefined;
    }
  }

  /** Fetches the cluster's report. Never rejects. */
  async cluster(): Promise<Answer> {
    const token = this.#token;
    let response: Response;
    let body: unknown;
    try {
      response = await this.#fetch('/api/cluster');
      if (response.status === 401) {
        // Sent again and again, a wrong token would have the node refuse the right one for a while.
        if (this.#token === token) this.setToken('');
        return { kind: 'unauthorized', wasGiven: token !== '' };
      }
      if (REFUSALS.has(response.status)) return { kind: 'failed', why: `refuses: ${(await response.text()).trim()}` };
      if (!response.ok) return { kind: 'failed', why: `answers with HTTP status ${response.status}` };
      body = await response.json();
    } catch (error) {
      if (error instanceof SyntaxError) return { kind: 'failed', why: 'answers with something that is not a report' };
      return { kind: 'silent', isTimeout: error instanceof DOMException && error.name === 'TimeoutError' };
    }
    if (!isClusterReport(body)) return { kind: 'failed', why: 'answers with something that is not a report' };
    return { kind: 'report', report: body };
  }
  #fetch(path: string): Promise<Response> {
    return fetch(path, {
      headers: this.#token === '' ? {} : { authorization: `Bearer ${this.#token}` },
      cache: 'no-store',
      signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
    });
  }
}
