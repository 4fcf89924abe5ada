import { ClosedError } from '../base/errors.js';
import type { Clear } from '../directory/shard/known-clears.js';
import { type Cleared, fewAtOnce } from './call/key-steps.js';
import type { PageStatements } from './ground/page-statements.js';
import type { StoreGround } from './ground/store-ground.js';

/** Withdrawals from the directory that are under way at once. */
const WITHDRAWALS_MAX_COUNT = 16;

/**
 * Removes pages from pool, disk and directory. Other work has its turn between steps of CLIENT_STEP_KEYS keys. Resolves
 * when nobody can read any of them here, nor can a crash bring them back. Rejects, when all are removed, with
 * `DiskError` if the disk does not record that; with `ClosedError` when the store is closed meanwhile: some may be left
 * on the disk.
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
    // What counts is whether all of them are recorded in the end.
    disk?.removeOlder(cleared, versions).catch(() => {});
    // What has been set since stays, and is announced.
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

/** What a removal of many pages works on; `isClosed` ends it. */
interface Removal {
  readonly statements: PageStatements;
  readonly isClosed: () => boolean;
}

/**
 * Drops the copies that these clears make void, from pool and disk. Resolves when nobody can read them here, nor can a
 * crash bring them back; rejects with `DiskError` if the disk does not record that.
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
      // What counts is whether all of them are recorded in the end.
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
 * Keys of all pages, some at a time. Pages may move from the pool to the disk meanwhile, which comes second, and back:
 * so the pool comes a second time, when no page is left that could.
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
