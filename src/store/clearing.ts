import type { Clock } from '../base/environment/clock.js';
import { ClosedError } from '../base/errors.js';
import { CLIENT_STEP_KEYS } from '../base/limits.js';
import type { PublishedPool } from '../pool/published-pool.js';
import type { Cleared } from './call/cleared.js';
import { fewAtOnce } from './call/key-steps.js';
import type { DiskTier } from './disk/disk-tier.js';
import type { PageStatements } from './page-statements.js';

export interface ClearingParts {
  readonly pool: Pick<PublishedPool, 'hasBatch' | 'keysInSlices' | 'removeOlder' | 'unfilledKeys'>;
  readonly disk?:
    | Pick<DiskTier, 'cleared' | 'hasBatch' | 'keysInSlices' | 'queuedKeys' | 'removalsWritten' | 'removeOlder'>
    | undefined;
  readonly statements: Pick<PageStatements, 'evictedKeys' | 'retract'>;
  readonly clock: Clock;
  /** Called with pages that have left the pool. */
  readonly onGone?: ((keys: readonly string[]) => void) | undefined;
  readonly isClosed: () => boolean;
}

/** Withdrawals from the directory that are under way at once. */
const WITHDRAWALS_MAX_COUNT = 16;

/**
 * Removes pages of this node from pool, disk and directory, and copies of them on other nodes, also of pages that had been evicted here before, as
 * far as they are remembered. Other work has its turn between steps of CLIENT_STEP_KEYS keys. Resolves when nobody can read any of them, nor can a
 * crash bring them back. Rejects, when all are removed, with `DiskError` if the disk does not record that; with `ClosedError` when the store is closed
 * meanwhile: some may be left on the disk.
 */
export async function clearPages(parts: ClearingParts, asked: Cleared): Promise<void> {
  const { voidBelow, isCleared } = asked;
  const { pool, disk, statements, clock, onGone, isClosed } = parts;
  disk?.cleared(asked);
  let withdrawals: Promise<void>[] = [];
  for (const keys of steps(parts)) {
    if (isClosed()) throw new ClosedError('the store');
    const cleared = keys.filter(isCleared);
    const versions = cleared.map(() => voidBelow);
    const removed = pool.removeOlder(cleared, versions);
    if (removed.length > 0) onGone?.(removed);
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

/**
 * Keys of all pages, some at a time. Pages may move from the pool to the disk meanwhile, which comes second, and back: so the pool comes a second
 * time, when no page is left that could.
 */
function* steps({ pool, disk, statements }: ClearingParts): Generator<readonly string[]> {
  yield* fewAtOnce(pool.unfilledKeys());
  for (const keys of pool.keysInSlices()) yield* fewAtOnce(keys);
  if (disk !== undefined) {
    yield* fewAtOnce(disk.queuedKeys());
    for (const keys of disk.keysInSlices()) yield* fewAtOnce(keys);
    yield* fewAtOnce(pool.unfilledKeys());
    for (const keys of pool.keysInSlices()) yield* fewAtOnce(keys);
  }
  let some: string[] = [];
  for (const key of statements.evictedKeys()) {
    if (some.push(key) < CLIENT_STEP_KEYS) continue;
    yield some;
    some = [];
  }
  yield some;
}
