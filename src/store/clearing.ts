import { ClosedError } from '../base/errors.js';
import type { Clear } from '../directory/shard/known-clears.js';
import { type Cleared, fewAtOnce } from './call/key-steps.js';
import type { PageStatements } from './ground/page-statements.js';
import type { StoreGround } from './ground/store-ground.js';

/** Withdrawals from the directory that may be in flight at once. */
const WITHDRAWALS_MAX_COUNT = 16;

/**
 * Removes pages from pool, disk and directory. Other work gets its turn between steps of CLIENT_STEP_KEYS keys.
 * Resolves when nobody can read the pages here and no crash can bring them back. Rejects with `DiskError`, after
 * removing all of them, if the disk does not record the removal; with `ClosedError` if the store is closed meanwhile,
 * in which case some may remain on the disk.
 */
export async function clearPages(
  ground: StoreGround,
  { statements, isClosed }: Removal,
  asked: Cleared,
): Promise<void> {
  const { voidBelow, isCleared } = asked;
  const { pool, disk, clock, feed } = ground;
  disk?.cleared(asked);
  let withdrawals: Promise<void>[] = [];
  for (const keys of steps(ground)) {
    if (isClosed()) throw new ClosedError('the store');
    const cleared = keys.filter(isCleared);
    const versions = cleared.map(() => voidBelow);
    const removed = pool.removeOlder(cleared, versions);
    if (removed.length > 0) feed.gone(removed);
    // Errors are ignored here: what counts is whether all removals are recorded in the end.
    disk?.removeOlder(cleared, versions).catch(() => {});
    // Pages that were set since stay, and are announced.
    const isInPool = pool.hasBatch(cleared);
    const isOnDisk = disk?.hasBatch(cleared);
    const gone = cleared.filter((_, i) => isInPool[i] === 0 && isOnDisk?.[i] !== 1);
    if (gone.length > 0) withdrawals.push(statements.retract(gone));
    if (withdrawals.length === WITHDRAWALS_MAX_COUNT) {
      await Promise.all(withdrawals);
      withdrawals = [];
    }
    await clock.yield();
  }
  await Promise.all(withdrawals);
  await disk?.removalsWritten();
}

/** Parts that a removal of many pages works on; `isClosed` ends it. */
interface Removal {
  readonly statements: PageStatements;
  readonly isClosed: () => boolean;
}

/**
 * Drops the copies that these clears make void, from pool and disk. Resolves when nobody can read them here and no
 * crash can bring them back; rejects with `DiskError` if the disk does not record that.
 */
export async function dropClearedCopies(
  ground: StoreGround,
  { statements, isClosed }: Removal,
  all: readonly Clear[],
): Promise<void> {
  const { pool, disk, clock } = ground;
  const clears = all.filter(({ origin }) => pool.hasCopiesOf(origin) || disk?.hasCopiesOf(origin) === true);
  if (clears.length === 0) return;
  for (const keys of steps(ground)) {
    if (isClosed()) return;
    for (const { origin, voidBelow, prefixes } of clears) {
      const asked = prefixes === undefined ? keys : keys.filter((key) => prefixes.some((some) => key.startsWith(some)));
      const versions = asked.map(() => voidBelow);
      const of = origin === 0 ? 'copies' : origin;
      const gone = pool.removeOlder(asked, versions, of);
      // Errors are ignored here: what counts is whether all removals are recorded in the end.
      disk?.removeOlder(asked, versions, of).catch(() => {});
      const isInPool = pool.hasBatch(asked);
      const isOnDisk = disk?.hasBatch(asked);
      const absent = asked.filter((_, i) => isInPool[i] === 0 && isOnDisk?.[i] !== 1);
      if (gone.length > 0 || absent.length > 0) statements.dropped(asked, gone, absent);
    }
    await clock.yield();
  }
  await disk?.removalsWritten();
}

/**
 * Keys of all pages, some at a time. Pages may move between the pool and the disk meanwhile, so the pool is visited
 * again after the disk.
 */
function* steps({ pool, disk }: StoreGround): Generator<readonly string[]> {
  yield* fewAtOnce(pool.unfilledKeys());
  for (const keys of pool.keysInSlices()) yield* fewAtOnce(keys);
  if (disk !== undefined) {
    yield* fewAtOnce(disk.queuedKeys());
    for (const keys of disk.keysInSlices()) yield* fewAtOnce(keys);
    yield* fewAtOnce(pool.unfilledKeys());
    for (const keys of pool.keysInSlices()) yield* fewAtOnce(keys);
  }
}
