import type { Clock } from '../base/environment/clock.js';
import { DISK_ALIGNMENT_BYTES } from '../base/limits.js';
import type { PageIndex } from '../pool/page-index.js';
import type { IndexEntry, Snapshot } from './journal/journal.js';

/** Number of pages that are restored between two turns of the event loop. */
export const RESTORE_SLICE_PAGES = 1024;

/**
 * Restores pages into an index at their places, in the order of their use; returns the keys of pages with impossible
 * places.
 */
export async function restorePages(
  index: PageIndex,
  entries: readonly IndexEntry[],
  { capacityBytes, clock }: { readonly capacityBytes: number; readonly clock: Clock },
): Promise<string[]> {
  const dropped: string[] = [];
  for (const range of await byRange(entries, dropped, { capacityBytes, clock })) {
    const slice = range.sort((a, b) => a.offset - b.offset);
    for (const [i, isTaken] of index.restore(slice).entries()) {
      if (!isTaken) dropped.push((slice[i] as IndexEntry).key);
    }
    await clock.yield();
  }
  for (let first = 0; first < entries.length; first += RESTORE_SLICE_PAGES) {
    index.renewBatch(entries.slice(first, first + RESTORE_SLICE_PAGES).map(({ key }) => key));
    await clock.yield();
  }
  return dropped;
}

/**
 * Groups the entries of an index by ranges of the file of equal length, so that no long list has to be sorted. The keys
 * of pages with impossible places go to `dropped`.
 */
async function byRange(
  entries: readonly IndexEntry[],
  dropped: string[],
  { capacityBytes, clock }: { readonly capacityBytes: number; readonly clock: Clock },
): Promise<IndexEntry[][]> {
  const count = Math.ceil(entries.length / RESTORE_SLICE_PAGES);
  const ranges: IndexEntry[][] = Array.from({ length: count }, () => []);
  const rangeBytes = Math.ceil(capacityBytes / count);
  for (let first = 0; first < entries.length; first += RESTORE_SLICE_PAGES) {
    for (const entry of entries.slice(first, first + RESTORE_SLICE_PAGES)) {
      const isAligned = entry.offset % DISK_ALIGNMENT_BYTES === 0;
      if (isAligned) ranges[Math.min(count - 1, Math.floor(entry.offset / rangeBytes))]?.push(entry);
      else dropped.push(entry.key);
    }
    await clock.yield();
  }
  return ranges;
}

/** A snapshot of an index for its journal; empty before there is an index. */
export function snapshotOf(index: PageIndex | undefined): Snapshot {
  const order = index?.order() ?? new Uint32Array();
  return {
    count: order.length,
    keysAt: (from, to) => index?.keysOf(order.subarray(from, to)) ?? [],
    entriesOf: (keys) => (index?.peekStored(keys) ?? []).map((page, i) => page && { ...page, key: keys[i] as string }),
  };
}
