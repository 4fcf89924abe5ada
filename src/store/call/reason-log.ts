import type { Clock } from '../../base/environment/clock.js';
import type { Logger } from '../../base/environment/log.js';
import { SparseLog } from '../../base/environment/sparse-log.js';
import type { MissReason, RefusalReason } from './call-options.js';

/** The quota of a namespace tag in a pool: its maximum in bytes. */
export interface ReasonQuota {
  readonly namespace: string;
  readonly maxBytes: number;
}

/**
 * Logs why pages have not been read or set: for each reason and quota one line in LOG_LINE_INTERVAL_MS at most, with
 * the number of pages since the last one.
 */
export class ReasonLog<Reason extends MissReason | RefusalReason> {
  readonly #event: string;
  readonly #log: Logger;
  readonly #lines: SparseLog;

  /** `event` is the text of the lines. */
  constructor(event: string, parts: { readonly clock: Clock; readonly log: Logger }) {
    this.#event = event;
    this.#log = parts.log;
    this.#lines = new SparseLog(parts);
  }

  /** `quota`: what has refused the pages, which then have lines of their own. There are few quotas. */
  note(reason: Reason, pages = 1, quota?: ReasonQuota): void {
    const since = this.#lines.turn(quota === undefined ? reason : `${reason} ${quota.namespace}`, pages);
    if (since === 0) return;
    const limit = quota && { namespace: quota.namespace, max_bytes: quota.maxBytes };
    this.#log.log('warn', this.#event, { reason, pages: since, ...limit });
  }
}
