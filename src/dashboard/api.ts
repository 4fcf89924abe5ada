import type { ClusterHistory } from '../metrics/history-report.js';
import type { ClusterReport } from '../metrics/node-report.js';
import { recall, remember } from './choices.js';
import { isClusterReport } from './data/counts.js';
import { isClusterHistory } from './data/history.js';
import { formatClock } from './views/format.js';

/** Milliseconds after which a poll counts as unanswered. The node itself waits a second for the members. */
const ANSWER_TIMEOUT_MS = 3_000;
/** Statuses of answers whose text tells the reader what to do. */
const REFUSALS: ReadonlySet<number> = new Set([403, 429]);
const TOKEN_KEY = 'meshcache.token';

export type Answer =
  | { readonly kind: 'report'; readonly report: ClusterReport }
  /** The node asks for a token; `wasGiven` means that the token sent was wrong. */
  | { readonly kind: 'unauthorized'; readonly wasGiven: boolean }
  /** The node did not answer. */
  | { readonly kind: 'silent'; readonly isTimeout: boolean }
  | { readonly kind: 'failed'; readonly why: string };

/** Fetches reports from the node that serves this page. The token is kept until the browser tab is closed. */
export class Api {
  #token = recall('sessionStorage', TOKEN_KEY) ?? '';

  setToken(token: string): void {
    this.#token = token;
    remember('sessionStorage', TOKEN_KEY, token);
  }

  /**
   * Fetches the history that the nodes keep in steps of `stepS` seconds; undefined if their version keeps none, or the
   * node does not answer. Never rejects.
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
        // If a wrong token were sent repeatedly, the node would reject the right one for a while, too.
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

/** Failed polls in a row after which the node counts as lost. A single timeout counts as that many. */
const LOST_AFTER_FAILURES = 2;

/** Tracks whether the node that serves this page still answers. Times are milliseconds of the reader's clock. */
export class Connection {
  #lastAnswerMs: number | undefined;
  #failures = 0;
  #trouble = 'does not answer';

  /** Records the result of a poll. A request for a token counts as an answer. */
  note(answer: Answer, nowMs: number): void {
    if (answer.kind === 'report' || answer.kind === 'unauthorized') {
      this.#failures = 0;
      if (answer.kind === 'report') this.#lastAnswerMs = nowMs;
      return;
    }
    this.#failures += answer.kind === 'silent' && answer.isTimeout ? LOST_AFTER_FAILURES : 1;
    this.#trouble = answer.kind === 'failed' ? answer.why : 'does not answer';
  }

  get isLost(): boolean {
    return this.#failures >= LOST_AFTER_FAILURES;
  }

  /** Time of the last report if the node is lost; null while it answers, or if there was never a report. */
  get lostSinceMs(): number | null {
    return this.isLost ? (this.#lastAnswerMs ?? null) : null;
  }

  /** The message for the reader; null while all is well. */
  get banner(): string | null {
    if (!this.isLost) return null;
    if (this.#lastAnswerMs === undefined) return `This node ${this.#trouble}. It is asked again every second.`;
    return `This node ${this.#trouble} since ${formatClock(this.#lastAnswerMs)}; what is below is from then.`;
  }
}
