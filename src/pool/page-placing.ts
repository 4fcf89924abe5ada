import { PageCopies } from '../memory/page-copies.js';
import { type DistinctBatch, isWhole, type PageBytes, type PlacedBatch } from './page-batch.js';
import type { PublishedPage, Wish } from './page-index.js';
import type { PoolGround } from './pool-ground.js';
import { again, instead, isAsGood } from './slots/page-origin.js';

/** A batch to be placed; all lists have one element per key. */
export interface Placing {
  readonly batch: DistinctBatch;
  /** The existing pages. */
  readonly here: readonly (PublishedPage | null)[];
  /** Checksums of new pages that have the same length as the existing one. */
  readonly sums: readonly (number | undefined)[];
}

/**
 * Decides for each page whether the existing one stays, the new one is copied in, or it is refused, and where it goes.
 */
export function placeBatch({ batch, here, sums }: Placing, ground: PoolGround): PlacedBatch {
  const { index: pages, leases, memory } = ground;
  const { origin, request } = batch;
  const makingWay = new Set(pages.states.makingWay(batch.batch));
  const wishes = batch.keys.map((key, i): Wish => {
    const page = batch.pages[i] as PageBytes;
    const there = makingWay.has(key) ? null : (here[i] ?? null);
    const isSame =
      there !== null && there.length === page.length && (isAsGood(there, origin) || there.checksum === sums[i]);
    // Leases of the old page end: publishing other bytes does not wait for leases.
    if (makingWay.has(key)) ground.remove(key);
    else if (there !== null && !isSame) leases.endOf(key);
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
  // A page that has made way and was not replaced by a new one is gone for good.
  for (const { key } of placement.vacancies) makingWay.delete(key);
  for (const key of makingWay) placement.gone.add(key);
  placement.used.forEach((page, i) => {
    if (page !== null) ground.setOrigin(batch.keys[i] as string, page, again(page, origin));
  });
  const origins = placement.vacancies.map(({ index }) => instead(here[index] ?? null, origin));
  const copies = new PageCopies();
  for (const { index, offset } of placement.vacancies) {
    const page = batch.pages[index] as PageBytes;
    copies.add(page.views, [memory.bytes(offset, page.length)]);
  }
  for (const index of placement.evictedAtOnce) {
    const page = batch.pages[index] as PageBytes;
    copies.add(page.views, null);
    ground.leavesAtOnce(batch.keys[index] as string, page, instead(here[index] ?? null, origin));
  }
  return { ...placement, origins, copies };
}
