import { getEventListeners } from 'node:events';
import type { ExecutionContext } from 'ava';
import test from 'ava';
import type { Clock } from '../../src/base/environment/clock.js';
import { type Logger, silentLogger } from '../../src/base/environment/log.js';
import { COPY_SLICE_MAX_BYTES } from '../../src/base/limits.js';
import { type Keys, stringsOf } from '../../src/core/binding/key-batch.js';
import type { DirectoryClient } from '../../src/directory/client.js';
import { LocatedPages } from '../../src/directory/messages/located-pages.js';
import { crc32 } from '../../src/memory/checksum.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { Metrics, PublishedPool } from '../../src/node/machine/machine-node.js';
import { type MissReason, ReasonLog, Reasons } from '../../src/store/call/call-options.js';
import type { CallerPage } from '../../src/store/call/caller-page.js';
import { type CallOptions, RequestCalls } from '../../src/store/call/request-calls.js';
import type { DiskTier } from '../../src/store/disk/disk-tier.js';
import type { AskedPages, HoldOutcome } from '../../src/store/ground/other-holders.js';
import type { PageStatements } from '../../src/store/ground/page-statements.js';
import { PageStore } from '../../src/store/page-store.js';
import { OwnDiskReads } from '../../src/store/tier-reads.js';
import { systemClock } from '../../src/system/system-clock.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { DataLocation } from '../../src/types.js';
import { sampleIn } from '../_support/metrics/samples.js';
import { patientClock } from '../_support/patient-clock.js';
import { type GroundParts, groundOf } from '../_support/store/ground.js';
import { content, freePort, until } from '../_support/support.js';
import { Valve } from '../_support/transport/valve.js';

const PAGE = 300_000;
const PATTERN = 0xa5;
const NEVER_MS = 3_600_000;
/** The time of a call; the test says when it is over. */
const TIMEOUT_MS = 12_345;

/** The location of the same page with other bytes. */
function damaged(location: DataLocation): DataLocation {
  return new DataLocation({ ...location, checksum: (location.checksum ?? 0) ^ 1 });
}

/** A promise that the test settles. */
function held<T>() {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

/** A store whose pages `k0` and `k1` are on another node, which is read over real TCP through a valve. */
async function bench(t: ExecutionContext, overrides: GroundParts = {}) {
  const env = systemEnvironment({ clock: patientClock, log: silentLogger });
  const limits = {
    stallTimeoutMs: NEVER_MS,
    patienceMinMs: NEVER_MS,
    connectTimeoutMs: NEVER_MS,
    abortGraceMs: NEVER_MS,
  };
  const newTransport = async () => TcpTransport.create({ host: '127.0.0.1', port: await freePort(), env, limits });
  const [owner, transport] = [await newTransport(), await newTransport()];
  const [source, target, pooled] = [2 * PAGE, 2 * PAGE, 4 * 4096].map((length) => HostRegion.allocate(length)) as [
    HostRegion,
    HostRegion,
    HostRegion,
  ];
  source.bytes().set(content(3, 2 * PAGE));
  const mr = owner.registerMr(source.addr, source.length);
  const valve = await Valve.open(t, owner.localEndpoint());
  const locationOf = (i: number) =>
    new DataLocation({
      nodeId: 'other',
      incarnation: 1,
      rdmaEndpoint: valve.endpoint,
      remoteAddr: mr.addr + BigInt(i * PAGE),
      rkey: mr.rkey,
      length: PAGE,
      checksum: crc32(source.bytes(i * PAGE, PAGE)),
    });
  const metrics = new Metrics('self');
  const told: string[] = [];
  const directory: Pick<DirectoryClient, 'delete' | 'discard' | 'exists' | 'find' | 'firstOwners' | 'get' | 'state'> = {
    firstOwners: (keys: readonly string[]) => new Uint32Array(keys.length),
    state: async (_keys, { count }) => new Uint8Array(count),
    get: async (keys) => keys.map((key) => locationOf(Number(key.slice(1)))),
    find: async (keys, onFound) =>
      onFound(LocatedPages.of(stringsOf(keys).map((key, i) => [i, locationOf(Number(key.slice(1)))]))),
    exists: async (keys) => stringsOf(keys).map(() => true),
    delete: async () => {},
    discard: async () => {
      told.push('discarded');
    },
  };
  const pool = new PublishedPool(pooled.addr, pooled.length, 1, {});
  const { cluster, ...others } = overrides;
  const ground = groundOf({
    ...{ pool, directory, transport, clock: patientClock, metrics },
    cluster: {
      dataEndpointOf: () => valve.endpoint,
      notices: { unreadable: () => told.push('failed') },
      ...cluster,
    },
    ...others,
  });
  const store = new PageStore(ground);
  t.teardown(async () => {
    await store.close();
    await Promise.all([transport.close(), owner.close()]);
    pool.free();
    for (const region of [source, target, pooled]) region.free();
    metrics.close();
  });
  const keys = ['k0', 'k1'];
  const pages = keys.map((_, i): CallerPage => {
    const ranges = [{ addr: target.addr + BigInt(i * PAGE), length: PAGE }];
    return { ranges, views: [target.bytes(i * PAGE, PAGE)], length: PAGE };
  });
  const get = async (signal?: AbortSignal) => {
    const results = await store.get(keys, pages, { signal });
    if (signal !== undefined) target.bytes().fill(PATTERN);
    return results;
  };
  /**
   * What was aborted has left nothing behind: the pages are read, nobody was told of anything, and the memory was left
   * alone until then.
   */
  const isUnharmed = async (signal: AbortSignal) => {
    for (let turns = 0; turns < 20; turns++) await systemClock.yield();
    t.true(target.bytes().every((byte) => byte === PATTERN));
    t.is(getEventListeners(signal, 'abort').length, 0);
    t.deepEqual(told, []);
    t.is(sampleIn(await metrics.renderPrometheus(), 'meshcache_stale_reads_total', {}) ?? 0, 0);
    t.is(store.stats().misses, 2);
    t.true(transport.isReachable(valve.endpoint));
    t.deepEqual(await get(), [true, true]);
    t.is(Buffer.compare(target.bytes(), source.bytes()), 0);
    t.is(store.stats().hits.remote, 2);
  };
  return { store, transport, owner, valve, target, source, directory, locationOf, get, isUnharmed, keys, pages };
}

test('aborted reads: before the call nothing is looked for', async (t) => {
  const b = await bench(t);
  const find = b.directory.find;
  b.directory.find = async () => t.fail('the directory was asked');
  const signal = AbortSignal.abort();
  t.deepEqual(await b.get(signal), [false, false]);
  t.is(await b.store.getCopy('k0', { signal }), null);
  t.deepEqual(await b.store.exists(b.keys, { signal }), [false, false]);
  b.directory.find = find;
  t.is(b.store.stats().misses, 3);
  t.is(b.transport.stats().connections, 0);
});

test('aborted reads: a directory that does not answer is not waited for, and its late answer starts no read', async (t) => {
  const b = await bench(t);
  const { find, get, exists } = b.directory;
  const answer = held<void>();
  let asked = 0;
  Object.assign(b.directory, {
    find: async (...args: Parameters<typeof find>) => {
      asked++;
      await answer.promise;
      await find(...args);
    },
    get: async (...args: Parameters<typeof get>) => answer.promise.then(() => get(...args)),
    exists: async (...args: Parameters<typeof exists>) => answer.promise.then(() => exists(...args)),
  });
  const abort = new AbortController();
  const reading = b.get(abort.signal);
  const there = b.store.exists(b.keys, { signal: abort.signal });
  await until(() => asked === 1);
  abort.abort();
  t.deepEqual(await reading, [false, false]);
  t.deepEqual(await there, [false, false]);
  answer.resolve();
  Object.assign(b.directory, { find, get, exists });
  await b.isUnharmed(abort.signal);
  t.is(b.owner.stats().servedOps, 2, 'those that were not aborted');
});

test('aborted reads: the directory is not waited for by a copy', async (t) => {
  const b = await bench(t);
  const { get } = b.directory;
  b.directory.get = () => new Promise(() => {});
  const abort = new AbortController();
  const copying = b.store.getCopy('k0', { signal: abort.signal });
  abort.abort();
  t.is(await copying, null);
  t.is(getEventListeners(abort.signal, 'abort').length, 0);
  b.directory.get = get;
  t.deepEqual(await b.store.getCopy('k0', { signal: new AbortController().signal }), b.source.bytes(0, PAGE).slice());
});

test('aborted reads: a promotion is not waited for, and what it brings later is given back unread', async (t) => {
  const promoted = held<void>();
  let asked = 0;
  const released: string[] = [];
  const holders = {
    ask: async (_node: string, { keys }: AskedPages): Promise<HoldOutcome[]> => {
      asked++;
      await promoted.promise;
      return keys.map((key) => b.locationOf(Number(key.slice(1))));
    },
    release: (_node: string, keys: readonly string[]) => released.push(...keys),
  };
  const b = await bench(t, { cluster: { holders } });
  const { find } = b.directory;
  b.directory.find = async (keys, onFound) =>
    onFound(
      LocatedPages.of(
        stringsOf(keys).map((key, i) => [i, new DataLocation({ ...b.locationOf(Number(key.slice(1))), tier: 'disk' })]),
      ),
    );
  const abort = new AbortController();
  const reading = b.get(abort.signal);
  await until(() => asked === 1);
  abort.abort();
  t.deepEqual(await reading, [false, false]);
  promoted.resolve();
  await until(() => released.length === 2);
  b.directory.find = find;
  await b.isUnharmed(abort.signal);
  t.is(asked, 1);
});

test('aborted reads: an owner that trickles is left, what it sends later is dropped, and it is read again', async (t) => {
  const b = await bench(t);
  b.valve.budgetBytes = 2_000;
  const abort = new AbortController();
  const reading = b.get(abort.signal);
  await until(() => b.valve.connections.length === 1 && b.valve.latest.heldBytes > PAGE);
  b.valve.latest.pass(PAGE / 2);
  await until(() => b.target.bytes(1000, 1)[0] !== 0);
  abort.abort();
  let hasEnded = false;
  reading.then(() => {
    hasEnded = true;
  });
  while (!hasEnded) {
    b.valve.latest.pass(1_000);
    await systemClock.yield();
  }
  t.deepEqual(await reading, [false, false]);
  b.valve.latest.pass(Number.POSITIVE_INFINITY);
  await b.isUnharmed(abort.signal);
  t.is(b.valve.connections.length, 1);
});

test('aborted reads: a call whose time is over ends as a miss, says so, and leaves the memory alone afterwards', async (t) => {
  let timeIsOver = () => {};
  const after: Clock['after'] = (delayMs, fn, options) => {
    if (delayMs !== TIMEOUT_MS) return patientClock.after(delayMs, fn, options);
    timeIsOver = fn;
    return () => {};
  };
  const b = await bench(t, { clock: { ...patientClock, after } });
  b.valve.budgetBytes = 2_000;
  const reasons = new Reasons<MissReason>();
  const reading = b.store.get(b.keys, b.pages, { timeoutMs: TIMEOUT_MS, reasons });
  await until(() => b.valve.connections.length === 1 && b.valve.latest.heldBytes > PAGE);
  b.valve.latest.pass(PAGE / 2);
  timeIsOver();
  let hasEnded = false;
  reading.then(() => {
    hasEnded = true;
  });
  while (!hasEnded) {
    b.valve.latest.pass(1_000);
    await systemClock.yield();
  }
  b.target.bytes().fill(PATTERN);
  t.deepEqual(await reading, [false, false]);
  t.deepEqual([reasons.of(0), reasons.of(1)], ['timed_out', 'timed_out']);
  b.valve.latest.pass(Number.POSITIVE_INFINITY);
  await b.isUnharmed(new AbortController().signal);
});

test('reasons: a directory that does not answer in time, pages of other lengths, damaged pages, dead owners', async (t) => {
  const lines: string[] = [];
  const log: Logger = { log: (level, event, fields) => lines.push(`${level} ${event} ${JSON.stringify(fields)}`) };
  let endpoint: string | undefined;
  const b = await bench(t, { log, cluster: { dataEndpointOf: () => endpoint } });
  endpoint = b.valve.endpoint;
  const why = async (pages: readonly CallerPage[], options: CallOptions = {}) => {
    const reasons = new Reasons<MissReason>();
    const results = await b.store.get(b.keys, pages, { ...options, reasons });
    return b.keys.map((_, i) => (results[i] === true ? 'read' : reasons.of(i)));
  };
  t.deepEqual(await why(b.pages), ['read', 'read']);

  const { find } = b.directory;
  b.directory.find = () => new Promise(() => {});
  t.deepEqual(await why(b.pages, { timeoutMs: 1 }), ['timed_out', 'timed_out']);
  t.deepEqual(await why(b.pages, { signal: AbortSignal.abort() }), ['aborted', 'aborted']);
  b.directory.find = async () => {};
  t.deepEqual(await why(b.pages), ['absent', 'absent']);
  b.directory.find = find;

  const short = { ...(b.pages[1] as CallerPage), length: PAGE - 1 };
  t.deepEqual(await why([b.pages[0] as CallerPage, short]), ['read', 'other_size']);
  b.directory.find = async (keys, onFound) =>
    onFound(
      LocatedPages.of(stringsOf(keys).map((key, i) => [i, key === 'k0' ? damaged(b.locationOf(0)) : b.locationOf(1)])),
    );
  t.deepEqual(await why(b.pages), ['checksum', 'read']);
  b.directory.find = find;
  endpoint = undefined;
  t.deepEqual(await why(b.pages), ['unreachable', 'unreachable']);

  // For each reason one line: further ones would come a minute later, and absent pages are nothing to tell.
  t.deepEqual(lines, [
    'warn pages not read {"reason":"other_size","pages":1}',
    'warn pages not read {"reason":"checksum","pages":1}',
    'warn pages not read {"reason":"unreachable","pages":1}',
  ]);
});

test('reasons: many copies at once say why each one is missing', async (t) => {
  const b = await bench(t);
  const { get } = b.directory;
  b.directory.get = async (keys) => (await get(keys)).map((location, i) => (keys[i] === 'k1' ? null : location));
  const reasons = new Reasons<MissReason>();
  const copies = await b.store.getCopies(['k1', 'k0'], { reasons });
  t.deepEqual(copies, [null, b.source.bytes(0, PAGE).slice()]);
  t.deepEqual([reasons.of(0), reasons.of(1)], ['absent', undefined]);
  const { find } = b.directory;
  Object.assign(b.directory, {
    get: async (keys: readonly string[]) => keys.map((key) => (key === 'k1' ? null : damaged(b.locationOf(0)))),
    find: async (_keys: readonly string[], onFound: Parameters<typeof find>[1]) =>
      onFound(LocatedPages.of([[0, damaged(b.locationOf(0))]])),
  });
  const again = new Reasons<MissReason>();
  t.deepEqual(await b.store.getCopies(['k1', 'k0'], { reasons: again }), [null, null]);
  t.deepEqual([again.of(0), again.of(1)], ['absent', 'checksum']);
});

test('aborted reads: slices of the own pool that have not been begun are misses', async (t) => {
  const abort = new AbortController();
  const clock = Object.assign(Object.create(patientClock), { yield: async () => abort.abort() });
  const { store, pages } = await bench(t, { clock });
  const large = { ...(pages[0] as CallerPage), length: COPY_SLICE_MAX_BYTES };
  t.deepEqual(await store.get(['x', 'y', 'z'], [large, large, large], { signal: abort.signal }), [false, false, false]);
  t.is(store.stats().misses, 3);
});

test('aborted reads: the own disk hears of it, and is waited for until it touches no page any more', async (t) => {
  const metrics = new Metrics('self');
  t.teardown(() => metrics.close());
  const done = held<void>();
  let begun = 0;
  const signals: unknown[] = [];
  const disk: Pick<DiskTier, 'hasBatch' | 'readPages'> = {
    hasBatch: (keys) => new Uint8Array(stringsOf(keys).length).fill(1),
    readPages: async (keys, _pages, options) => {
      begun += keys.length;
      signals.push(options?.signal);
      await done.promise;
      return keys.map(() => 'read' as const);
    },
  };
  const confirmed = held<boolean[]>();
  let confirm = async (keys: readonly string[]) => keys.map(() => true);
  const missLog = new ReasonLog<MissReason>('pages not read', { clock: patientClock, log: silentLogger });
  const statements = { confirm: (keys: readonly string[]) => confirm(keys) } as unknown as PageStatements;
  const reads = new OwnDiskReads(groundOf({ clock: patientClock, metrics }), {
    disk: disk as unknown as DiskTier,
    statements,
    missLog,
  });
  const keys = Array.from({ length: 100 }, (_, i) => `k${i}`);
  const page: CallerPage = { ranges: [], views: [], length: 10 };
  const newCall = (signal: AbortSignal) => ({
    keys,
    pages: keys.map(() => page),
    results: keys.map(() => false),
    request: new RequestCalls(metrics).begin({}, keys.length),
    signal,
  });
  const abort = new AbortController();
  const call = newCall(abort.signal);
  let hasEnded = false;
  const all = keys.map((_, i) => i);
  const reading = reads.read(call, all).then(() => {
    hasEnded = true;
  });
  await until(() => begun > 0);
  abort.abort();
  for (let turns = 0; turns < 20; turns++) await systemClock.yield();
  t.false(hasEnded, 'the disk may still write into the pages');
  done.resolve();
  await reading;
  t.deepEqual(signals, [abort.signal]);
  t.is(reads.hits, begun);

  const whole = newCall(new AbortController().signal);
  await reads.read(whole, all);
  t.true(whole.results.every(Boolean));

  // Owners that do not confirm what is there.
  confirm = () => confirmed.promise;
  const before = begun;
  const unconfirmed = new AbortController();
  const waiting = reads.read(newCall(unconfirmed.signal), all);
  unconfirmed.abort();
  await waiting;
  confirmed.resolve(keys.map(() => true));
  for (let turns = 0; turns < 20; turns++) await systemClock.yield();
  t.is(begun, before);
});

test('aborted sets: whoever gives up waiting for the directory has the memory back', async (t) => {
  const b = await bench(t);
  const asked = held<void>();
  const answered = held<Uint8Array>();
  b.directory.state = async () => {
    asked.resolve();
    return answered.promise;
  };
  const abort = new AbortController();
  const page: CallerPage = { ...(b.pages[0] as CallerPage), length: 64, views: [b.target.bytes(0, 64)] };
  const small = { ...page, ranges: [{ addr: b.target.addr, length: 64 }] };
  const setting = b.store.set(['small'], [small], 'computed', { signal: abort.signal });
  await asked.promise;
  abort.abort();
  t.deepEqual(await setting, [false]);
  t.is(getEventListeners(abort.signal, 'abort').length, 0);
  answered.resolve(new Uint8Array(1));
});

test('own disk: a failure is passed on when the reads from other nodes have ended', async (t) => {
  // Cause: nobody waited for the own disk yet, and the process would have ended for a rejection that is not handled.
  const failure = new Error('the disk has failed');
  const unhandled: unknown[] = [];
  const onUnhandled = (reason: unknown) => unhandled.push(reason);
  process.on('unhandledRejection', onUnhandled);
  t.teardown(() => process.off('unhandledRejection', onUnhandled));
  let hasFailed = false;
  const disk = {
    firstExpiry: 0,
    hasBatch: (keys: Keys) => new Uint8Array(stringsOf(keys).length).fill(1),
    readPages: async () => {
      hasFailed = true;
      throw failure;
    },
    close: async () => {},
  } as unknown as DiskTier;
  const ended = held<void>();
  const { store, directory, keys, pages, locationOf } = await bench(t, { disk });
  directory.find = async (_keys, onFound) => {
    onFound(LocatedPages.of([[0, new DataLocation({ ...locationOf(0), nodeId: 'self' })]]));
    await ended.promise;
  };
  const reading = store.get(keys.slice(0, 1), pages.slice(0, 1));
  let isSettled = false;
  const settle = () => {
    isSettled = true;
  };
  reading.then(settle, settle);
  await until(() => hasFailed);
  // A turn of the event loop later, what is not handled has been reported.
  await systemClock.yield();
  t.false(isSettled);
  t.false(unhandled.includes(failure));
  ended.resolve();
  t.is(await t.throwsAsync(reading), failure);
});
