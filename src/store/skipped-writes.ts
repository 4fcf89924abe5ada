import type { Clock } from '../base/environment/clock.js';
import type { Logger } from '../base/environment/log.js';
import type { MetricsSink } from '../base/environment/metrics-sink.js';
import type { PublishedPage, PublishedPool } from '../pool/published-pool.js';
import type { Reasons, RefusalReason } from './call/call-options.js';
import { ReasonLog } from './call/reason-log.js';

export interface SkippedWritesParts {
  readonly pool: Pick<PublishedPool, 'capacity'>;
  readonly metrics: MetricsSink;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Counts pages that have not been set, by reason, and logs the reasons. */
export class SkippedWrites {
  readonly #parts: SkippedWritesParts;
  readonly #log: ReasonLog<RefusalReason>;

  constructor(parts: SkippedWritesParts) {
    this.#parts = parts;
    this.#log = new ReasonLog('pages not set', parts);
  }

  count(reason: 'too_large' | 'no_room' | 'directory' | 'draining', pages: number): void {
    if (pages === 0) return;
    this.#parts.metrics.count('meshcache_skipped_writes_total', pages, { reason });
    this.#log.note(reason, pages);
  }

  /** Counts those pages of the slice from index `start` on that the pool has not taken, and gives their reasons to a caller that asks for them. */
  noteUnpublished(start: number, { pages, published, refusals }: Unpublished): void {
    let tooLarge = 0;
    let withoutRoom = 0;
    for (let j = 0; j < published.length; j++) {
      if (published[j] !== null) continue;
      const isTooLarge = (pages[start + j]?.length ?? 0) > this.#parts.pool.capacity;
      if (isTooLarge) tooLarge++;
      else withoutRoom++;
      refusals?.note(start + j, isTooLarge ? 'too_large' : 'no_room');
    }
    this.count('too_large', tooLarge);
    this.count('no_room', withoutRoom);
  }
}

/** A slice of a call as the pool has taken it; null for pages that it has not taken. */
interface Unpublished {
  /** All pages of the call. */
  readonly pages: readonly { readonly length: number }[];
  readonly published: readonly (PublishedPage | null)[];
  readonly refusals: Reasons<RefusalReason> | undefined;
}
