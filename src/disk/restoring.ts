import type { Clock } from '../base/environment/clock.js';
import { DISK_ALIGNMENT_BYTES } from '../base/limits.js';
import type { PageIndex } from '../pool/page-index.js';
import type { IndexEntry, Snapshot } from './journal/journal.js';

/** Pages that are put back between two turns of the event loop. */
export const RESTORE_SLICE_PAGES = 1024;

/** Puts pages back into an index where they lie, in the order of their use; returns the keys of those that cannot be there. */
export async function restorePages(
  index: PageIndex,
  entries: readonly IndexEntry[],
  { capacityBytes, clock }: { readonly capacityBytes: number; readonly clock: Pick<Clock, 'yield'> },
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
 * The entries of an index by where their pages lie, in ranges of the file of equal length, so that no long list has to be sorted. `dropped` gets the
 * keys of those that lie where no page can be.
 */
async function byRange(
  entries: readonly IndexEntry[],
  dropped: string[],
  { capacityBytes, clock }: { readonly capacityBytes: number; readonly clock: Pick<Clock, 'yield'> },
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

/** The pages of an index, for its journal: nothing, until there is an index. */
export function snapshotOf(index: PageIndex | undefined): Snapshot {
  const order = index?.order() ?? new Uint32Array();
  return {
    count: order.length,
    keysAt: (from, to) => index?.keysOf(order.subarray(from, to)) ?? [],
    entriesOf: (keys) => (index?.peekBatch(keys) ?? []).map((page, i) => page && { ...page, key: keys[i] as string }),
  };
}
