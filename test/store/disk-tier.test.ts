import test, { type ExecutionContext } from 'ava';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import {
  DISK_HELD_POOL_FRACTION,
  DISK_QUEUE_POOL_FRACTION,
  DISK_STALL_MS,
  DISK_WRITE_WAIT_MAX_MS,
} from '../../src/base/limits.js';
import { DiskStore } from '../../src/disk/disk-store.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { PublishedPool, type PublishedPoolOptions } from '../../src/node/machine/machine-node.js';
import { NO_ORIGIN } from '../../src/pool/published-pool.js';
import { RequestParts } from '../../src/store/call/request-calls.js';
import { DiskTier, type TierDisk } from '../../src/store/disk/disk-tier.js';
import { ManualClock } from '../_support/clock.js';
import { silentEnv } from '../_support/disk/kill-support.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { patientClock } from '../_support/patient-clock.js';
import { content, until } from '../_support/support.js';

const PAGE = 4096;

interface Options extends PublishedPoolOptions {
  readonly poolPages: number;
  readonly writes?: 'wait' | 'skip';
}

/** A tier over a real disk whose writes end, for the tier, when the test lets them. */
async function newTier(t: ExecutionContext, { poolPages, writes = 'wait', clock = patientClock, ...options }: Options) {
  const region = HostRegion.allocate(poolPages * PAGE);
  const disk = await DiskStore.open(temporaryFolder(t), 16 * 2 ** 20, {
    nodeId: 'n',
    env: { ...silentEnv, clock },
    queueMaxBytes: region.length * DISK_QUEUE_POOL_FRACTION,
  });
  const evicted: string[] = [];
  const pool = new PublishedPool(region.addr, region.length, 1, {
    ...options,
    clock,
    onEvict(keys) {
      evicted.push(...keys);
      tier.evicted(keys);
    },
  });
  const faults = { isHung: false, isPaused: false };
  const hung: { readonly key: string; readonly write: () => void; readonly release: () => void }[] = [];
  const endHung = (how: 'write' | 'release'): void => {
    for (const each of hung.splice(0)) each[how]();
  };
  let waitedSeconds = 0;
  const gated: TierDisk = {
    ...delegates(disk),
    get state() {
      return { isPaused: faults.isPaused || disk.state.isPaused, isHung: false };
    },
    close() {
      endHung('release');
      return disk.close();
    },
    hasCopiesOf: (origin) => disk.hasCopiesOf(origin),
    hasRoomFor: (length) => hung.length === 0 && !faults.isPaused && disk.hasRoomFor(length),
    putPage(key, page, checksum, release, about) {
      if (!faults.isHung) return disk.putPage(key, page, checksum, release, about);
      const write = () => void (disk.putPage(key, page, checksum, release) !== 'queued' && release());
      hung.push({ key, write, release });
      return 'queued';
    },
    removeOlder(keys, voidBelow) {
      for (const each of hung.filter(({ key }) => keys.includes(key))) {
        hung.splice(hung.indexOf(each), 1);
        each.release();
      }
      return disk.removeOlder(keys, voidBelow);
    },
  };
  const metrics = {
    ...noMetrics,
    count(name: string, amount = 1) {
      if (name === 'meshcache_disk_write_wait_seconds_total') waitedSeconds += amount;
    },
  };
  const tier = new DiskTier({ disk: gated, pool, writes, clock, metrics });
  const switches = { mayGoOn: true };
  const set = async (...numbers: number[]): Promise<boolean[]> => {
    const keys = numbers.map((i) => `k${i}`);
    const pages = numbers.map((i) => ({ views: [content(i, PAGE)], length: PAGE }));
    const results = keys.map(() => false);
    await tier.publish({
      keys,
      pages,
      origin: NO_ORIGIN,
      request: new RequestParts({}),
      mayGoOn: () => switches.mayGoOn,
      takenBack() {},
      left() {},
      published({ start, end }, published) {
        for (const [i, page] of published.entries()) results[start + i] = page !== null;
        tier.writeThrough(keys.slice(start, end), published);
      },
    });
    return results;
  };
  const resume = (): void => {
    faults.isHung = false;
    endHung('write');
  };
  const found = async (i: number): Promise<boolean> => {
    const target = { views: [new Uint8Array(PAGE)], length: PAGE };
    const [inPool] = await pool.readPages([`k${i}`], [target], { isVerified: true });
    const [outcome] = inPool === 'read' ? [inPool] : await tier.readPages([`k${i}`], [target]);
    if (outcome === 'read' && Buffer.compare(target.views[0] as Uint8Array, content(i, PAGE)) !== 0) {
      throw new Error(`k${i}: wrong bytes`);
    }
    return outcome === 'read';
  };
  t.teardown(async () => {
    for (const one of [tier, pool, disk]) one.verify();
    resume();
    if (clock instanceof ManualClock) await disk.flush();
    await disk.close();
    await pool.end();
    pool.free();
    region.free();
  });
  return { tier, pool, disk, faults, resume, set, found, evicted, switches, waitedSeconds: () => waitedSeconds };
}

function delegates(disk: DiskStore): TierDisk {
  return {
    state: { isPaused: false, isHung: false },
    keepsRemoved: false,
    close: () => disk.close(),
    dropExpired: (keys) => disk.dropExpired(keys),
    exists: (key) => disk.exists(key),
    get firstExpiry() {
      return disk.firstExpiry;
    },
    fits: (length) => disk.fits(length),
    hasBatch: (keys, options) => disk.hasBatch(keys, options),
    hasCopiesOf: (origin) => disk.hasCopiesOf(origin),
    hasRoomFor: (length) => disk.hasRoomFor(length),
    info: () => disk.info(),
    keysInSlices: () => disk.keysInSlices(),
    queuedKeys: () => disk.queuedKeys(),
    peekBatch: (keys) => disk.peekBatch(keys),
    putPage: (key, page, checksum, release, origin) => disk.putPage(key, page, checksum, release, origin),
    readPages: (keys, targets) => disk.readPages(keys, targets),
    removalsWritten: () => disk.removalsWritten(),
    removeExpired: (maxCount) => disk.removeExpired(maxCount),
    removeOlder: (keys, voidBelow) => disk.removeOlder(keys, voidBelow),
    removeOther: (key, page) => disk.removeOther(key, page),
    renew: (key, page) => disk.renew(key, page),
    skipped: (pages) => disk.skipped(pages),
    touchBatch: (keys) => disk.touchBatch(keys),
  };
}

/** Whether a promise has been settled when everything that can happen by itself has. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let isDone = false;
  const mark = () => {
    isDone = true;
  };
  promise.then(mark, mark);
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
  return isDone;
}

test('disk tier: pages that wait are not evicted, up to their share of the pool; then setting waits', async (t) => {
  const clock = new ManualClock();
  const poolPages = 32;
  const { pool, faults, resume, set, found, evicted, waitedSeconds } = await newTier(t, { poolPages, clock });
  faults.isHung = true;
  const held = poolPages * DISK_HELD_POOL_FRACTION;
  for (let i = 0; i < held; i++) t.deepEqual(await set(i), [true]);
  t.is(pool.stats().pinned, held);
  const waiting = [set(held), set(held + 1, held + 2)];
  t.false(await isSettled(Promise.race(waiting)));
  t.is(pool.size, held);
  clock.advance(1_000);
  resume();
  t.deepEqual(await Promise.all(waiting), [[true], [true, true]]);
  t.true(Math.abs(waitedSeconds() - 1) < 0.001, `${waitedSeconds()}`);
  for (let i = held + 3; i < 60; i++) t.deepEqual(await set(i), [true]);
  for (let i = 0; i < 60; i++) t.true(await found(i), `k${i}`);
  t.true(evicted.length >= 60 - poolPages);
});

test('disk tier: a disk that ends no write is given up, by all that wait and those who come; when it does, it is waited for again', async (t) => {
  const clock = new ManualClock();
  const { disk, faults, resume, set, found } = await newTier(t, { poolPages: 8, clock });
  faults.isHung = true;
  const setting = Array.from({ length: 32 }, (_, i) => set(i));
  t.false(await isSettled(Promise.all(setting)));
  clock.advance(DISK_STALL_MS - 1);
  t.false(await isSettled(Promise.all(setting)));
  clock.advance(1);
  t.deepEqual((await Promise.all(setting)).flat(), new Array(32).fill(true));
  t.true(await isSettled(set(40)));
  t.true(disk.info().skippedPages > 20);
  t.is(clock.pendingCount, 0);
  resume();
  await until(() => disk.info().queueBytes === 0);
  t.deepEqual(await Promise.all(Array.from({ length: 32 }, (_, i) => set(100 + i))).then((all) => all.flat()), [
    ...new Array(32).fill(true),
  ]);
  for (let i = 0; i < 32; i++) t.true(await found(100 + i), `k${100 + i}`);
});

test('disk tier: a disk in trouble is not waited for, and what waited may be evicted', async (t) => {
  const clock = new ManualClock();
  const { pool, faults, set } = await newTier(t, { poolPages: 8, clock });
  faults.isHung = true;
  t.deepEqual(await set(0, 1), [true, true]);
  const waiting = set(2, 3, 4, 5);
  t.false(await isSettled(waiting));
  faults.isPaused = true;
  // What ends by its failure.
  clock.advance(DISK_STALL_MS);
  t.deepEqual(await waiting, [true, true, true, true]);
  for (let i = 10; i < 30; i++) t.deepEqual(await set(i), [true]);
  t.true(pool.stats().pinned <= 1);
});

test('disk tier: a call waits for its pages for a bounded time, all of them together', async (t) => {
  const clock = new ManualClock();
  const { pool, set } = await newTier(t, { poolPages: 2, clock });
  pool.publishBatch(
    ['a', 'b'],
    [1, 2].map((i) => ({ views: [content(i, PAGE)], length: PAGE })),
  );
  const leases = pool.lease(['a', 'b']).filter((lease) => lease !== null);
  const first = set(1, 2);
  clock.advance(10);
  const second = set(3);
  for (let passedMs = 10; passedMs < DISK_WRITE_WAIT_MAX_MS - 100; passedMs += 100) {
    clock.advance(100);
    await new Promise((resolve) => setImmediate(resolve));
  }
  t.false(await isSettled(first));
  clock.advance(200);
  t.deepEqual(await first, [false, false]);
  t.deepEqual(await second, [false]);
  t.is(clock.pendingCount, 0);
  pool.unlease(leases);
  t.deepEqual(await set(4, 5), [true, true]);
});

test('disk tier: setting waits for leases of others, for reads and for quarantine', async (t) => {
  const clock = new ManualClock();
  const { disk, pool, set, found } = await newTier(t, {
    poolPages: 4,
    clock,
    quarantineMs: 1_000,
    neverReuseEarly: true,
  });
  t.deepEqual(await set(0, 1, 2, 3), [true, true, true, true]);
  const leases = pool.lease(['k0', 'k1', 'k2', 'k3']).filter((lease) => lease !== null);
  await until(() => disk.info().queueBytes === 0);
  const waiting = set(4);
  t.false(await isSettled(waiting));
  pool.unlease(leases);
  clock.advance(100);
  t.false(await isSettled(waiting));
  for (let i = 0; i < 12; i++) {
    clock.advance(100);
    await new Promise((resolve) => setImmediate(resolve));
  }
  t.deepEqual(await waiting, [true]);
  for (let i = 0; i < 5; i++) t.true(await found(i), `k${i}`);
});

test('disk tier: calls are served in the order in which they came, a long one before a short one', async (t) => {
  const clock = new ManualClock();
  const { faults, resume, set } = await newTier(t, { poolPages: 4, clock });
  faults.isHung = true;
  const order: string[] = [];
  const note = (name: string, setting: Promise<boolean[]>) => setting.then(() => order.push(name));
  const all = [note('a', set(0)), note('b', set(1, 2, 3, 4, 5, 6, 7, 8)), note('c', set(9)), note('d', set(10, 11))];
  t.false(await isSettled(Promise.all(all)));
  resume();
  await Promise.all(all);
  t.deepEqual(order, ['a', 'b', 'c', 'd']);
});

test('disk tier: closing and draining end calls that wait at once', async (t) => {
  for (const end of ['close', 'drain'] as const) {
    const clock = new ManualClock();
    const { tier, pool, faults, resume, set, switches } = await newTier(t, { poolPages: 2, clock });
    faults.isHung = true;
    t.deepEqual(await set(0), [true]);
    const waiting = Promise.all([set(1, 2, 3), set(4)]);
    t.false(await isSettled(waiting));
    switches.mayGoOn = false;
    let ended: Promise<unknown> = Promise.resolve();
    if (end === 'drain') {
      tier.endWaits();
    } else {
      ended = tier.close();
    }
    t.deepEqual(await waiting, [[false, false, false], [false]], end);
    t.false(pool.has('k1'));
    resume();
    await ended;
  }
});

test('disk tier: a page that waits is overwritten and cleared like any other', async (t) => {
  const clock = new ManualClock();
  const { tier, pool, disk, faults, resume, set } = await newTier(t, { poolPages: 16, clock });
  faults.isHung = true;
  t.deepEqual(await set(0, 1, 2, 3), [true, true, true, true]);
  pool.remove('k1');
  tier.evicted(['k1']);
  t.is(disk.info().skippedPages, 1);
  const publish = (bytes: Uint8Array) =>
    tier.publish({
      keys: ['k2'],
      pages: [{ views: [bytes], length: bytes.length }],
      origin: NO_ORIGIN,
      request: new RequestParts({}),
      mayGoOn: () => true,
      takenBack() {},
      left() {},
      published: (_, published) => void tier.writeThrough(['k2'], published),
    });
  for (let i = 0; i < 50; i++) await publish(content(100 + i, PAGE));
  t.true(pool.stats().pinned <= 6, 'what it had is not held any more');
  resume();
  await until(() => disk.info().queueBytes === 0);
  t.deepEqual(await disk.get('k2'), content(149, PAGE));
  t.is(pool.stats().pinned, 0);
  faults.isHung = true;
  t.deepEqual(await set(20, 21, 22, 23), [true, true, true, true]);
  const keys = pool.keys();
  const all = keys.map(() => Number.POSITIVE_INFINITY);
  pool.removeOlder(keys, all);
  await tier.removeOlder(keys, all);
  resume();
  await until(() => disk.info().queueBytes === 0);
  t.is(pool.stats().pinned, 0);
  t.is(disk.info().entries, 0);
});

test('disk tier: the disk is asked once for all keys of a call, and a key that comes twice is written once', async (t) => {
  const { tier, pool, disk } = await newTier(t, { poolPages: 64 });
  const asked: string[] = [];
  const outcomes: string[] = [];
  disk.removeOther = (key, page) => {
    asked.push(key);
    return DiskStore.prototype.removeOther.call(disk, key, page);
  };
  disk.putPage = (...args) => {
    const outcome = DiskStore.prototype.putPage.apply(disk, args);
    outcomes.push(outcome);
    return outcome;
  };
  const write = (keys: readonly string[], from: number): Promise<void> | undefined => {
    const pages = keys.map((_, i) => ({ views: [content(from + i, PAGE)], length: PAGE }));
    return tier.writeThrough(keys, pool.publishBatch(keys, pages));
  };
  t.is(write(['a', 'b', 'b'], 1), undefined, 'nothing was there');
  t.deepEqual([asked, outcomes], [[], ['queued', 'queued', 'present']]);
  await disk.flush();
  t.not(write(['c', 'a'], 11), undefined, 'other bytes were there');
  t.deepEqual(asked, ['a']);
  await disk.flush();
  t.deepEqual([...tier.hasBatch(['a', 'b', 'c'])], [1, 1, 1]);
  t.is(disk.info().writtenPages, 4);
});

test('disk tier: with skip nothing waits, and what the pool evicts first is skipped', async (t) => {
  const clock = new ManualClock();
  const { disk, pool, faults, set, waitedSeconds } = await newTier(t, { poolPages: 4, writes: 'skip', clock });
  faults.isHung = true;
  for (let i = 0; i < 32; i++) t.deepEqual(await set(i), [true]);
  t.is(pool.stats().pinned, 1, 'what is being written');
  t.is(disk.info().skippedPages, 28);
  t.is(waitedSeconds(), 0);
});
