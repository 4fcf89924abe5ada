import { PageCopies } from '../memory/page-copies.js';
import { type DistinctBatch, isWhole, type PageBytes, type PlacedBatch } from './page-batch.js';
import type { PageIndex, PublishedPage, Wish } from './page-index.js';
import type { PageLeases } from './page-leases.js';
import type { PoolMemory } from './pool-memory.js';
import { again, isAsGood, type PageOrigin } from './slots/page-origin.js';

/** A batch that is to be placed; all lists have one element for each of its keys. */
export interface Placing {
  readonly batch: DistinctBatch;
  /** The pages that are there now. */
  readonly here: readonly (PublishedPage | null)[];
  /** Checksums of new pages that have the length of the one that is there. */
  readonly sums: readonly (number | undefined)[];
}

/** The parts of a pool that decide about places. */
export interface PlacingParts {
  readonly index: PageIndex;
  readonly leases: PageLeases;
  readonly memory: PoolMemory;
  /** Updates the origin of a page that was set again. */
  readonly setOrigin: (key: string, page: PublishedPage, origin: PageOrigin) => void;
}

/** Decides for each page whether it stays, is copied in or is refused, and where it goes. */
export function placeBatch(
  { batch, here, sums }: Placing,
  { index: pages, leases, memory, setOrigin }: PlacingParts,
): PlacedBatch {
  const { origin, request } = batch;
  const makingWay = new Set(pages.states.makingWay(batch.batch));
  const wishes = batch.keys.map((key, i): Wish => {
    const page = batch.pages[i] as PageBytes;
    const there = makingWay.has(key) ? null : (here[i] ?? null);
    const isSame =
      there !== null && there.length === page.length && (isAsGood(there, origin) || there.checksum === sums[i]);
    // A lease of the old page ends: publishing other bytes does not wait for leases.
    if ((there !== null && !isSame) || makingWay.has(key)) leases.endOf(key);
    if (makingWay.has(key)) pages.remove(key);
    const isPossible = isWhole(page) && !pages.isHeld(key);
    return {
      key,
      length: page.length,
      here: there,
      intent: isSame ? 'use' : isPossible ? 'new' : 'nothing',
      request,
    };
  });
  const placement = pages.place(wishes, batch.batch);
  // A page that has made way, and that no new one replaces, has gone for good.
  for (const { key } of placement.vacancies) makingWay.delete(key);
  for (const key of makingWay) placement.gone.add(key);
  placement.used.forEach((page, i) => {
    if (page !== null) setOrigin(batch.keys[i] as string, page, again(page, origin));
  });
  const copies = new PageCopies();
  for (const { index, offset } of placement.vacancies) {
    const page = batch.pages[index] as PageBytes;
    copies.add(page.views, [memory.bytes(offset, page.length)]);
  }
  for (const index of placement.evictedAtOnce) copies.add((batch.pages[index] as PageBytes).views, null);
  return { ...placement, copies };
}
