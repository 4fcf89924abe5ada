import type { Clock } from '../../base/environment/clock.js';
import type { Logger } from '../../base/environment/log.js';
import type { MissReason, RefusalReason } from './call-options.js';

/** Time between two lines for the same reason. */
const LINE_INTERVAL_MS = 60_000;

interface Line {
  /** Pages since the last line. */
  pages: number;
  /** Time from which on the next line may be written. */
  nextMs: number;
}

/** The quota of a namespace tag in a pool: its maximum in bytes. */
export interface ReasonQuota {
  readonly namespace: string;
  readonly maxBytes: number;
}

/** Logs why pages have not been read or set: for each reason and quota one line a minute at most, with the number of pages since the last one. */
export class ReasonLog<Reason extends MissReason | RefusalReason> {
  readonly #event: string;
  readonly #parts: { readonly clock: Clock; readonly log: Logger };
  /** By reason, and by namespace tag for the pages of one. */
  readonly #lines = new Map<string, Line>();

  /** `event` is the text of the lines. */
  constructor(event: string, parts: { readonly clock: Clock; readonly log: Logger }) {
    this.#event = event;
    this.#parts = parts;
  }

  /** `quota`: what has refused the pages, which then have lines of their own. There are few quotas. */
  note(reason: Reason, pages = 1, quota?: ReasonQuota): void {
    const { clock, log } = this.#parts;
    const kind = quota === undefined ? reason : `${reason} ${quota.namespace}`;
    let line = this.#lines.get(kind);
    if (line === undefined) {
      line = { pages: 0, nextMs: 0 };
      this.#lines.set(kind, line);
    }
    line.pages += pages;
    const nowMs = clock.nowMs();
    if (nowMs < line.nextMs) return;
    const limit = quota && { namespace: quota.namespace, max_bytes: quota.maxBytes };
    log.log('warn', this.#event, { reason, pages: line.pages, ...limit });
    line.pages = 0;
    line.nextMs = nowMs + LINE_INTERVAL_MS;
  }
}
