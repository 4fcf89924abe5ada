import { unlessAborted } from '../../base/concurrency/cancellation.js';
import type { Clock } from '../../base/environment/clock.js';
import type { Keys } from '../../core/index.js';
import type { Metrics } from '../../metrics/metrics.js';
import type { DataLocation } from '../../types.js';
import type { MissReason, Reasons } from '../call/call-options.js';
import type { CallerPage } from '../call/caller-page.js';
import type { ReasonLog } from '../call/reason-log.js';
import type { RequestCall } from '../call/request-calls.js';
import type { DiskTier } from './disk-tier.js';

export interface OwnDiskReadsParts {
  readonly disk: Pick<DiskTier, 'hasBatch' | 'readPages'>;
  /** Whether each page is still good, as far as can be known. */
  readonly confirm: (keys: readonly string[]) => Promise<boolean[]>;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly missLog: ReasonLog<MissReason>;
}

/** A call that reads pages. */
export interface ReadingCall {
  /** The call's keys in the form in which they were passed; they may be encoded already. */
  readonly asked?: Keys | undefined;
  readonly keys: readonly string[];
  readonly pages: readonly CallerPage[];
  /** True for each page that has been read. */
  readonly results: boolean[];
  readonly request: RequestCall;
  /** Locations that the directory has just given, by index. */
  readonly located?: ((index: number) => DataLocation | undefined) | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Takes the reasons of misses, if the caller wants to know them. */
  readonly reasons?: Reasons<MissReason> | undefined;
}

/** Reads pages from the own disk into the caller's memory. */
export class OwnDiskReads {
  hits = 0;
  readBytes = 0;
  readonly #parts: OwnDiskReadsParts;
  #closed = false;

  constructor(parts: OwnDiskReadsParts) {
    this.#parts = parts;
  }

  /** Stops: reads under way finish, no new ones begin. */
  close(): void {
    this.#closed = true;
  }

  /**
   * Reads those of the pages with these indices that the disk has and that are good as far as can be known. Soon after
   * the call's signal is aborted, nothing touches the pages any more, whatever the disk does.
   */
  async read(
    { keys, pages, results, request, signal, reasons }: ReadingCall,
    wanted: readonly number[],
  ): Promise<void> {
    const { disk, confirm, clock, metrics, missLog } = this.#parts;
    if (signal?.aborted) return;
    const isGood = await unlessAborted(confirm(wanted.map((i) => keys[i] as string)), signal);
    if (isGood === undefined || signal?.aborted || this.#closed) return;
    const startMs = clock.nowMs();
    const good = wanted.filter((_, j) => isGood[j]);
    const isHere = disk.hasBatch(good.map((i) => keys[i] as string));
    const here = good.filter((_, j) => isHere[j] === 1);
    if (here.length === 0) return;
    const outcomes = await disk.readPages(
      here.map((i) => keys[i] as string),
      here.map((i) => pages[i] as CallerPage),
      { request: request.disk.next(), signal },
    );
    let hits = 0;
    let bytes = 0;
    outcomes.forEach((outcome, j) => {
      const i = here[j] as number;
      if (outcome === 'damaged') metrics.count('meshcache_checksum_failures_total', 1, { source: 'disk' });
      if (outcome === 'damaged' || outcome === 'wrong-length') {
        const reason = outcome === 'damaged' ? 'checksum' : 'other_size';
        reasons?.note(i, reason);
        missLog.note(reason);
      }
      if (outcome !== 'read') return;
      results[i] = true;
      hits++;
      bytes += (pages[i] as CallerPage).length;
    });
    this.hits += hits;
    this.readBytes += bytes;
    metrics.recordReads('disk', { hits, misses: 0, bytes, seconds: (clock.nowMs() - startMs) / 1000 });
  }
}
