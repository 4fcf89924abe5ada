import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ExecutionContext } from 'ava';
import type { Clock } from '../../../src/base/environment/clock.js';
import type { Environment } from '../../../src/base/environment/environment.js';
import { silentLogger } from '../../../src/base/environment/log.js';
import { seededRandom } from '../../../src/base/environment/random.js';
import { JOURNAL_MIN_BYTES } from '../../../src/base/limits.js';
import { type IndexEntry, Journal } from '../../../src/disk/journal/journal.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';
import { patientClock } from '../patient-clock.js';

const HANG_MS = 60_000;

/** A clock with late deadlines, so that a store that is closed on a slow disk releases its lock before it resolves. */
export const unhurriedClock: Clock = {
  ...patientClock,
  after: (delayMs, fn, options) => patientClock.after(20 * delayMs, fn, options),
};

/** Seed of this test: MESHCACHE_TEST_SEED, or random; it is in the test's log. */
export function seedOf(t: ExecutionContext): number {
  const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Math.floor(Math.random() * 2 ** 32));
  t.log(`MESHCACHE_TEST_SEED=${seed}`);
  return seed;
}

/** Random numbers below `below`. */
export function dice(seed: number): (below: number) => number {
  const random = seededRandom(seed);
  return (below) => random.u32() % below;
}

/** An environment that keeps the log messages of the levels warn and error. */
export function listening(): { readonly env: Environment; readonly said: string[] } {
  const said: string[] = [];
  const env = systemEnvironment({
    clock: unhurriedClock,
    log: {
      log(level, message, fields) {
        if (level === 'warn' || level === 'error')
          said.push(`${message} ${String(fields?.reason ?? fields?.error ?? '')}`);
      },
    },
  });
  return { env, said };
}

export const silentEnv = systemEnvironment({ clock: patientClock, log: silentLogger });

/** Bytes that a folder with its content uses on its file system. */
export async function bytesOnDisk(path: string): Promise<number> {
  const names = ['.', ...(await readdir(path, { recursive: true }))];
  let sum = 0;
  for (const name of names) {
    sum += await stat(join(path, name)).then(
      ({ blocks }) => blocks * 512,
      () => 0,
    );
  }
  return sum;
}

/** The entries in the index of a closed store; null if there is no complete store. */
export async function indexedIn(path: string): Promise<IndexEntry[] | null> {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-copy-'));
  try {
    const { store_id: storeId } = JSON.parse(readFileSync(join(path, 'store.json'), 'utf8')) as { store_id: string };
    const copy = join(folder, 'index');
    copyFileSync(join(path, 'index'), copy);
    const snapshot = () => ({ count: 0, keysAt: () => [], entriesOf: () => [] });
    const options = { storeId, maxBytes: JOURNAL_MIN_BYTES, env: silentEnv, snapshot };
    const { journal, entries } = await Journal.open(copy, options);
    await journal.close();
    return entries;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Throws if pages overlap or end behind `capacityBytes`. */
export function checkRanges(entries: readonly IndexEntry[], capacityBytes: number): void {
  let end = 0;
  for (const { key, offset, length } of entries.toSorted((a, b) => a.offset - b.offset)) {
    if (offset < end || offset % 4096 !== 0)
      throw new Error(`${key.slice(0, 8)} at ${offset}: the one before ends at ${end}`);
    end = offset + length;
  }
  if (end > capacityBytes) throw new Error(`pages end at ${end} of ${capacityBytes}`);
}

/** Resolves with the result of `work`; throws if it hangs. */
export async function inTime<T>(what: string, work: Promise<T>): Promise<T> {
  const timer = new AbortController();
  const tooLong = sleep(HANG_MS, undefined, { signal: timer.signal }).then(() => {
    throw new Error(`${what} hangs`);
  });
  try {
    return await Promise.race([work, tooLong]);
  } finally {
    timer.abort();
    tooLong.catch(() => {});
  }
}
