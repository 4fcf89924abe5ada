import type { Clock } from '../base/environment/clock.js';
import type { Logger } from '../base/environment/log.js';
import type { MetricsSink } from '../base/environment/metrics-sink.js';
import { type Keys, stringsOf } from '../core/binding/key-batch.js';
import type { PublishedPage } from '../pool/published-pool.js';
import type { PageLimits } from '../pool/tenants/page-limits.js';
import type { Reasons, RefusalReason } from './call/call-options.js';
import { ReasonLog, type ReasonQuota } from './call/reason-log.js';

export interface SkippedWritesParts {
  readonly limits: PageLimits;
  readonly metrics: MetricsSink;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Reasons that the metric counts. */
export type CountedRefusal = Extract<RefusalReason, 'too_large' | 'no_room' | 'directory' | 'superseded' | 'draining'>;

/** Counts pages that have not been set, by reason, and logs the reasons. */
export class SkippedWrites {
  readonly #parts: SkippedWritesParts;
  readonly #log: ReasonLog<RefusalReason>;

  constructor(parts: SkippedWritesParts) {
    this.#parts = parts;
    this.#log = new ReasonLog('pages not set', parts);
  }

  /** `quota`: the quota of the pages' namespace tag, if it is what has refused them. */
  count(reason: CountedRefusal, pages: number, quota?: ReasonQuota): void {
    if (pages === 0) return;
    this.#parts.metrics.count('meshcache_skipped_writes_total', pages, { reason });
    this.#log.note(reason, pages, quota);
  }

  /** Counts those pages of the slice from index `start` on that the pool has not taken, and gives their reasons to a caller that asks for them. */
  noteUnpublished(start: number, { keys, pages, published, refusals }: Unpublished): void {
    const names = stringsOf(keys);
    let withoutRoom = 0;
    let tooLarge = 0;
    let aboveQuota = 0;
    // A slice is of one namespace.
    let quota: ReasonQuota | undefined;
    for (let j = 0; j < published.length; j++) {
      if (published[j] !== null) continue;
      const [key, length] = [names[j] as string, pages[start + j]?.length ?? 0];
      const isTooLarge = this.#parts.limits.isTooLarge(key, length);
      const above = this.#parts.limits.quotaBelow(key, length);
      quota ??= above;
      if (above !== undefined) aboveQuota++;
      else if (isTooLarge) tooLarge++;
      else withoutRoom++;
      refusals?.note(start + j, isTooLarge ? 'too_large' : 'no_room');
    }
    this.count('too_large', tooLarge);
    this.count('too_large', aboveQuota, quota);
    this.count('no_room', withoutRoom);
  }
}

/** A slice of a call as the pool has taken it; null for pages that it has not taken. */
interface Unpublished {
  /** All pages of the call. */
  readonly pages: readonly { readonly length: number }[];
  /** Keys of the slice, all of one namespace. */
  readonly keys: Keys;
  readonly published: readonly (PublishedPage | null)[];
  readonly refusals: Reasons<RefusalReason> | undefined;
}
