import type { ExecutionContext } from 'ava';
import test from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import { COPY_SLICE_MAX_BYTES } from '../../src/base/limits.js';
import { stringsOf } from '../../src/core/binding/key-batch.js';
import { LocatedPages } from '../../src/directory/messages/located-pages.js';
import { Taken } from '../../src/directory/messages/taken.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { Metrics, PublishedPool } from '../../src/node/machine/machine-node.js';
import { type CallTime, Reasons, type RefusalReason } from '../../src/store/call/call-options.js';
import type { CallerPage } from '../../src/store/call/caller-page.js';
import { PageFeed } from '../../src/store/call/page-feed.js';
import { PageStore } from '../../src/store/page-store.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import type { ReadOp, Transport } from '../../src/transport/contract/transport.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { DataLocation } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';
import { sampleIn } from '../_support/metrics/samples.js';
import { patientClock } from '../_support/patient-clock.js';
import { type GroundParts, groundOf } from '../_support/store/ground.js';
import { content, PATIENCE_MS } from '../_support/support.js';

const PAGE = 4096;
const CONFIG = {
  verifyReads: true,
  reuseQuarantineMs: 1000,
  existsMaxAgeMs: 0,
  locationReuseMs: 0,
  keepDuplicates: false,
};

/** A store of one pool with a directory of its own, in which tests put what they like. */
async function bench(t: ExecutionContext, overrides: GroundParts = {}) {
  const region = HostRegion.allocate(4 * PAGE);
  const buffer = HostRegion.allocate(PAGE);
  const metrics = new Metrics('self');
  const tcp = await TcpTransport.create({
    host: '127.0.0.1',
    env: systemEnvironment({ clock: patientClock, log: silentLogger }),
  });
  const locations = new Map<string, DataLocation>();
  const feed = new PageFeed();
  const pool = new PublishedPool(region.addr, region.length, 1, { onEvict: (keys) => feed.evicted(keys) });
  const read = { results: [] as boolean[], isReachable: true, opCount: 0, meanwhile: () => {} };
  const transport = Object.assign(Object.create(tcp) as Transport, {
    batchRead: async (ops: ReadOp[]) => {
      read.opCount += ops.length;
      read.meanwhile();
      return ops.map((_, i) => read.results[i] === true);
    },
    isReachable: () => read.isReachable,
    stats: () => tcp.stats(),
    localEndpoint: () => tcp.localEndpoint(),
  });
  const ground = groundOf({
    pool,
    feed,
    directory: {
      firstOwners: (keys: readonly string[]) => new Uint32Array(keys.length),
      state: async (_keys, { count }) => new Uint8Array(count).fill(Taken.taken),
      discard: async () => {},
      get: async (keys) => keys.map((key) => locations.get(key) ?? null),
      find: async (keys, onFound) => {
        onFound(
          LocatedPages.of(
            stringsOf(keys).flatMap((key, i) => (locations.has(key) ? [[i, locations.get(key) as DataLocation]] : [])),
          ),
        );
      },
      exists: async (keys) => stringsOf(keys).map((key) => locations.has(key)),
      delete: async () => {},
    },
    transport,
    clock: patientClock,
    metrics,
    ...overrides,
  });
  const store = new PageStore(ground);
  feed.follow(store.statements);
  t.teardown(async () => {
    await store.close();
    pool.free();
    region.free();
    buffer.free();
    metrics.close();
    await tcp.close();
  });
  const page = (length = PAGE): CallerPage => {
    const ranges = [{ addr: buffer.addr, length }];
    return { ranges, views: [buffer.bytes(0, length)], length };
  };
  const value = async (name: string, labels: Record<string, string>) =>
    sampleIn(await metrics.renderPrometheus(), `meshcache_${name}`, labels);
  return { store, region, buffer, page, value, read, locations };
}

function locationOf(fields: Partial<DataLocation> = {}): DataLocation {
  const at = { nodeId: 'other', incarnation: 1, rdmaEndpoint: '127.0.0.1:1', remoteAddr: 4096n, rkey: 1 };
  return new DataLocation({ ...at, length: PAGE, checksum: 0, ...fields });
}

test('store counting: a page that no directory owner takes is a skipped write', async (t) => {
  const directory = { state: async () => Uint8Array.of(Taken.taken, Taken.refused), delete: async () => {} };
  const { store, page, value } = await bench(t, { directory: directory as unknown as GroundParts['directory'] });
  t.deepEqual(await store.set(['a', 'b'], [page(), page()], 'named'), [true, false]);
  t.is(await value('skipped_writes_total', { reason: 'directory' }), 1);
  t.is(await value('skipped_writes_total', { reason: 'no_room' }), 0);
  t.is(await value('writes_total', {}), 1);
});

test('store counting: a named set that another writer has won over says superseded, and not directory', async (t) => {
  // Cause: both were a key that is not in the directory, and the first cause was the only one that was named.
  const directory = {
    state: async (_keys: unknown, { count }: { count: number }) => new Uint8Array(count).fill(Taken.outdated),
    delete: async () => {},
  };
  const { store, page, value } = await bench(t, { directory: directory as unknown as GroundParts['directory'] });
  const refusals = new Reasons<RefusalReason>();
  t.deepEqual(await store.set(['a'], [page()], 'named', { refusals }), [false]);
  t.is(refusals.of(0), 'superseded');
  t.is(await value('skipped_writes_total', { reason: 'superseded' }), 1);
  t.is(await value('skipped_writes_total', { reason: 'directory' }), 0);
});

/** The time of a call that is given up when `isOver` says so. */
const timeOf = (isOver: () => boolean): CallTime => ({ askedMs: patientClock.nowMs(), isOver });

test('store counting: a call whose time is over changes nothing, whatever its timer says', async (t) => {
  const deleted: unknown[] = [];
  const { store, page, value } = await bench(t, {
    cluster: {
      drops: {
        isAnnounced: true,
        dropFrom() {},
        deleteEverywhere: async (...call) => {
          deleted.push(call);
          return [true];
        },
      },
    },
  });
  const refusals = new Reasons<RefusalReason>();
  const time = timeOf(() => true);
  t.deepEqual(await store.set(['a'], [page()], 'named', { refusals, time }), [false]);
  t.is(refusals.of(0), 'timed_out');
  t.deepEqual(await store.delete(['a'], { time }), [false]);
  t.deepEqual(deleted, []);
  t.is(await value('writes_total', {}), 0);
  t.deepEqual(await store.set(['a'], [page()], 'named', { time: timeOf(() => false) }), [true]);
});

test('store counting: a set that is given up before its owners answer is not made the newest', async (t) => {
  // Cause: it met a content that was set since, took a version above it, and won.
  let stated = 0;
  const directory = {
    state: async (_keys: unknown, { count }: { count: number }) => {
      stated++;
      return new Uint8Array(count).fill(Taken.outdated);
    },
    delete: async () => {},
  };
  const { store, page } = await bench(t, { directory: directory as unknown as GroundParts['directory'] });
  t.deepEqual(await store.set(['a'], [page()], 'named', { time: timeOf(() => stated > 0) }), [false]);
  t.is(stated, 1);
  t.deepEqual(store.lengthsHere(['a']), [null]);
});

test('store counting: a set of a process that was stopped for longer than its time is not made the newest', async (t) => {
  // Cause: the answers of the owners came before the timer, which alone told that the time was over.
  let [stated, stoppedMs] = [0, 0];
  const clock = Object.assign(Object.create(patientClock), { nowMs: () => patientClock.nowMs() + stoppedMs });
  const directory = {
    state: async (_keys: unknown, { count }: { count: number }) => {
      stated++;
      stoppedMs = PATIENCE_MS;
      return new Uint8Array(count).fill(Taken.outdated);
    },
    delete: async () => {},
  };
  const { store, page } = await bench(t, { clock, directory: directory as unknown as GroundParts['directory'] });
  t.deepEqual(await store.set(['a'], [page()], 'named', { timeoutMs: PATIENCE_MS }), [false]);
  t.is(stated, 1);
});

test('store counting: what a call has not published when the node stops publishing is skipped', async (t) => {
  const clock = Object.assign(Object.create(patientClock), { yield: async () => store.stopPublishing() });
  const { store, page, value } = await bench(t, { clock });
  const large = { ...page(), length: COPY_SLICE_MAX_BYTES };
  t.deepEqual(await store.set(['a', 'b', 'c'], [page(), large, page()], 'named'), [true, false, false]);
  t.is(await value('skipped_writes_total', { reason: 'draining' }), 2);
  t.deepEqual(await store.set(['d'], [page()], 'named'), [false]);
  t.is(await value('skipped_writes_total', { reason: 'draining' }), 3);
});

test('store counting: a page of the own pool that is damaged is dropped and counted', async (t) => {
  const { store, region, buffer, page, value } = await bench(t);
  buffer.bytes().set(content(1, PAGE));
  await store.set(['a'], [page()], 'named');
  const bytes = region.bytes(0, PAGE);
  bytes[7] = (bytes[7] as number) ^ 1;
  t.deepEqual(await store.get(['a'], [page()]), [false]);
  t.is(await value('checksum_failures_total', { source: 'local' }), 1);
  t.is(await value('pool_evictions_total', { reason: 'damaged' }), 1);
  t.is(await value('pool_evictions_total', { reason: 'capacity' }), 0);
  t.is(await value('stale_reads_total', {}), 0);
});

test('store counting: pages that are not where the directory said, by reason', async (t) => {
  const { store, page, value, read, locations } = await bench(t);
  locations.set('a', locationOf());
  locations.set('disk', locationOf({ tier: 'disk' }));
  t.deepEqual(await store.get(['a'], [page()]), [false]);
  t.is(read.opCount, 3, 'it was tried again');
  t.is(await value('stale_reads_total', { reason: 'unreadable' }), 1);
  read.isReachable = false;
  await store.get(['a'], [page()]);
  t.is(await value('stale_reads_total', { reason: 'unreachable' }), 1);
  await store.get(['disk'], [page()]);
  t.is(await value('stale_reads_total', { reason: 'not_promoted' }), 1);
  t.is(await value('stale_reads_total', {}), 3);
  // Whoever asks for another length than the page has is wrong, not the directory.
  await store.get(['a'], [page(PAGE / 2)]);
  t.is(await value('stale_reads_total', {}), 3);
  read.results = [true];
  t.deepEqual(await store.get(['a'], [page()]), [true]);
  t.is(await value('stale_reads_total', {}), 3);
});

test('store counting: owners that have gone, and reads that took longer than the quarantine allows', async (t) => {
  const gone = await bench(t, { cluster: { dataEndpointOf: () => undefined } });
  gone.locations.set('a', locationOf());
  gone.locations.set('disk', locationOf({ tier: 'disk' }));
  t.deepEqual(await gone.store.get(['a', 'disk'], [gone.page(), gone.page()]), [false, false]);
  t.is(await gone.value('stale_reads_total', { reason: 'owner_gone' }), 2);

  const clock = new ManualClock();
  const late = await bench(t, { config: { ...CONFIG, verifyReads: false }, clock });
  late.locations.set('a', locationOf());
  late.read.results = [true];
  late.read.meanwhile = () => clock.advance(501);
  t.deepEqual(await late.store.get(['a'], [late.page()]), [false]);
  t.is(await late.value('stale_reads_total', { reason: 'late' }), 1);
});
