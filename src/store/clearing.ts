import type { Clock } from '../base/environment/clock.js';
import { ClosedError } from '../base/errors.js';
import type { Clear } from '../directory/shard/known-clears.js';
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
  readonly statements: Pick<PageStatements, 'retract'>;
  readonly clock: Clock;
  /** Called with pages that have left the pool. */
  readonly onGone?: ((keys: readonly string[]) => void) | undefined;
  readonly isClosed: () => boolean;
}

/** Withdrawals from the directory that are under way at once. */
const WITHDRAWALS_MAX_COUNT = 16;

/**
 * Removes pages from pool, disk and directory. Other work has its turn between steps of CLIENT_STEP_KEYS keys. Resolves
 * when nobody can read any of them here, nor can a crash bring them back. Rejects, when all are removed, with
 * `DiskError` if the disk does not record that; with `ClosedError` when the store is closed meanwhile: some may be left
 * on the disk.
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

export interface DroppingParts {
  readonly pool: Pick<PublishedPool, 'hasBatch' | 'hasCopiesOf' | 'keysInSlices' | 'removeOlder' | 'unfilledKeys'>;
  readonly disk?:
    | Pick<DiskTier, 'hasBatch' | 'hasCopiesOf' | 'keysInSlices' | 'queuedKeys' | 'removalsWritten' | 'removeOlder'>
    | undefined;
  readonly clock: Clock;
  /**
   * Called with keys of some pages, of which those that have left the pool are in `gone`, and those that are nowhere
   * here in `absent`.
   */
  readonly onDropped: (keys: readonly string[], gone: readonly string[], absent: readonly string[]) => void;
  readonly isClosed: () => boolean;
}

/**
 * Drops the copies that these clears make void, from pool and disk. Resolves when nobody can read them here, nor can a
 * crash bring them back; rejects with `DiskError` if the disk does not record that.
 */
export async function dropClearedCopies(parts: DroppingParts, all: readonly Clear[]): Promise<void> {
  const { pool, disk, clock, onDropped, isClosed } = parts;
  const clears = all.filter(({ origin }) => pool.hasCopiesOf(origin) || disk?.hasCopiesOf(origin) === true);
  if (clears.length === 0) return;
  for (const keys of steps(parts)) {
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
      if (gone.length > 0 || absent.length > 0) onDropped(asked, gone, absent);
    }
    await clock.yield();
  }
  await disk?.removalsWritten();
}

/** The tiers whose pages are looked through. */
interface SteppedTiers {
  readonly pool: Pick<PublishedPool, 'keysInSlices' | 'unfilledKeys'>;
  readonly disk?: Pick<DiskTier, 'keysInSlices' | 'queuedKeys'> | undefined;
}

/**
 * Keys of all pages, some at a time. Pages may move from the pool to the disk meanwhile, which comes second, and back:
 * so the pool comes a second time, when no page is left that could.
 */
function* steps({ pool, disk }: SteppedTiers): Generator<readonly string[]> {
  yield* fewAtOnce(pool.unfilledKeys());
  for (const keys of pool.keysInSlices()) yield* fewAtOnce(keys);
  if (disk !== undefined) {
    yield* fewAtOnce(disk.queuedKeys());
    for (const keys of disk.keysInSlices()) yield* fewAtOnce(keys);
    yield* fewAtOnce(pool.unfilledKeys());
    for (const keys of pool.keysInSlices()) yield* fewAtOnce(keys);
  }
}
