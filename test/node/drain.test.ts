import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { systemClock } from '../../src/base/clock.js';
import { WANTED_PAGES_MAX_CHARACTERS, WANTED_PAGES_MAX_COUNT } from '../../src/base/limits.js';
import { silentLogger } from '../../src/base/log.js';
import { parseEndpoint } from '../../src/base/network.js';
import { Drain, type DrainParts, type DrainProgress } from '../../src/node/drain.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { WantedPages } from '../../src/store/wanted-pages.js';
import { ManualClock } from '../clock.js';
import { newClient } from '../rpc/support.js';
import { content, freePort, until } from '../support.js';
import { createCluster, createStore } from './store-fixture.js';

const PAGE_BYTES = 32 * 1024;

test('drain: what others read stays readable without one miss; the node publishes nothing and leaves', async (t) => {
  const [leaving, ...others] = (await createCluster(3)) as [MeshCacheStore, MeshCacheStore, MeshCacheStore];
  t.teardown(() => Promise.all([leaving, ...others].map((store) => store.close())));
  const keys = await setPages(leaving, 60);
  const wanted = keys.slice(0, 40);
  for (const store of others) t.deepEqual(await missesOf(store, wanted), []);

  // The readers go on all the time, on past the end of the node.
  let isOver = false;
  t.teardown(() => {
    isOver = true;
  });
  const misses: string[] = [];
  let reads = 0;
  const reading = Promise.all(
    others.map(async (store) => {
      while (!isOver) {
        misses.push(...(await missesOf(store, wanted)));
        reads += wanted.length;
        // Reads of the own pool wait for nothing.
        await new Promise((resolve) => setImmediate(resolve));
      }
    }),
  );
  const first = await drain(t, leaving);
  t.is(first.node_id, leaving.runtime.nodeId);
  t.false(await leaving.set('late', content(99, PAGE_BYTES)), 'nothing is published any more');
  await leaving.drained;
  await until(() => others.every((store) => store.stats().members === 2));
  await leaving.close();
  const after = reads;
  await until(() => reads > after + 4 * wanted.length);
  isOver = true;
  await reading;
  t.deepEqual(misses, []);
  t.log(`${reads} reads, none missed`);
  for (const store of others) t.is(await store.batchExists(wanted), wanted.length);
  t.is(await others[0].batchExists([keys.at(-1) as string]), 0, 'nobody had read it: gone with its node');
});

test('drain: says how far it is; asking again changes nothing; a wrong time is refused', async (t) => {
  const [leaving, other] = (await createCluster(2)) as [MeshCacheStore, MeshCacheStore];
  t.teardown(() => Promise.all([leaving, other].map((store) => store.close())));
  const keys = await setPages(leaving, 30);
  t.deepEqual(await missesOf(other, keys), []);
  await until(async () => (await leaving.runtime.report()).health !== undefined);
  await t.throwsAsync(drain(t, leaving, { timeout_ms: -1 }), { code: 'ERR_ARGUMENT', message: /0 to 3600000, got -1/ });
  t.is((await leaving.runtime.report()).health.status, 'ok', 'a refused order changes nothing');
  await drain(t, leaving);
  t.regex((await leaving.runtime.report()).health.reasons.join(), /being drained/);
  await leaving.drained;
  const last = await drain(t, leaving);
  t.like(last, { state: 'drained', wanted_pages: 30, handed_pages: 30, left_pages: 0, disk_queue_bytes: 0 });
  t.is(other.stats().poolEntries, 30);
  t.deepEqual(await missesOf(leaving, keys), [], 'its own program still reads what is there');
});

test('drain: copies take at most a quarter of a pool; what finds no room is left, and told', async (t) => {
  const [leaving, other] = (await createCluster(2, { global_segment_size: '4mb' })) as [MeshCacheStore, MeshCacheStore];
  t.teardown(() => Promise.all([leaving, other].map((store) => store.close())));
  const keys = await setPages(leaving, 100);
  t.deepEqual(await missesOf(other, keys), []);
  await drain(t, leaving);
  await leaving.drained;
  const last = await drain(t, leaving);
  t.is(last.wanted_pages, 100);
  t.is(last.handed_pages + last.left_pages, 100);
  t.true(last.handed_pages > 0 && last.handed_pages <= 2 ** 20 / PAGE_BYTES, `${last.handed_pages}`);
  t.true(other.stats().poolUsedBytes <= 2 ** 20 + PAGE_BYTES, `${other.stats().poolUsedBytes}`);
});

test('drain: nobody else there, or nothing that others want: the node leaves all the same', async (t) => {
  const [alone] = (await createCluster(1)) as [MeshCacheStore];
  t.teardown(() => alone.close());
  await setPages(alone, 3);
  await drain(t, alone, { timeout_ms: 0 });
  await alone.drained;
  t.pass();
});

test('drain: what waits for the disk is written, and found by the next start', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-drain-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const port = await freePort();
  const disk = { disk_enabled: true, disk_path: folder, disk_size: '64mb' };
  const leaving = await createStore(port, disk);
  const keys = await setPages(leaving, 50);
  await drain(t, leaving);
  await leaving.drained;
  t.is(leaving.stats().disk?.queueBytes, 0);
  await leaving.close();
  const again = await createStore(port, disk);
  t.teardown(() => again.close());
  t.deepEqual(await missesOf(again, keys), []);
});

// Its pages were not read by anybody there yet, so that they were lost with it.
test('drain: what a node has taken over it hands on when it is drained in its turn', async (t) => {
  const stores = await createCluster(3);
  t.teardown(() => Promise.all(stores.map((store) => store.close())));
  const [first, second, last] = stores as [MeshCacheStore, MeshCacheStore, MeshCacheStore];
  const keys = await setPages(first, 40);
  t.deepEqual(await missesOf(second, keys), []);
  for (const leaving of [first, second]) {
    await drain(t, leaving);
    await leaving.drained;
    await until(() => !last.runtime.members().has(leaving.runtime.nodeId));
    await leaving.close();
  }
  t.deepEqual(await missesOf(last, keys), []);
});

// The drain went on by itself, and its timers kept the process alive.
test('drain: close() under way ends it at once; drained resolves', async (t) => {
  const [leaving, other] = (await createCluster(2, { heartbeat_interval: 5, member_ttl: 60 })) as [
    MeshCacheStore,
    MeshCacheStore,
  ];
  t.teardown(() => Promise.all([leaving, other].map((store) => store.close())));
  const keys = await setPages(leaving, 30);
  t.deepEqual(await missesOf(other, keys), []);
  await drain(t, leaving);
  await until(async () => (await drain(t, leaving)).state === 'leaving');
  let isDrained = false;
  void leaving.drained.then(() => {
    isDrained = true;
  });
  await leaving.close();
  t.true(isDrained, 'nothing of it is left to be waited for');
});

test('drain: a node that cannot tell what others want, or whom to give it, leaves all the same', async (t) => {
  const left: string[] = [];
  const failing = newDrain({
    wantedKeys: () => {
      throw new Error('no index');
    },
    leave: async () => {
      left.push('failing');
      throw new Error('no master');
    },
  });
  failing.start();
  await failing.drained;
  t.deepEqual(left, ['failing']);
  t.is(failing.progress().state, 'drained');
});

// A request that was begun just before the end of the time had seconds of its own, twice.
test('drain: no request to copy has more time than is left, and none is begun after it', async (t) => {
  const clock = { ...systemClock, nowMs: () => nowMs };
  let nowMs = 0;
  const timeouts: number[] = [];
  const drain = newDrain({
    handOver: async (_node, keys, timeoutMs) => {
      timeouts.push(timeoutMs);
      nowMs += 6_000;
      return new Uint8Array(keys.length);
    },
    env: { clock, log: silentLogger },
  });
  drain.start(9_000);
  await drain.drained;
  t.deepEqual(timeouts, [5_000, 3_000]);
  t.like(drain.progress(), { wanted_pages: 1, handed_pages: 0, left_pages: 1 });
});

// Their keys are what peers say: with long ones they took memory without bound, and more than one call of the pool takes.
test('drain: keys that others name are remembered within limits, the latest ones', (t) => {
  const wanted = new WantedPages();
  wanted.read(['early', 'again', 'late', 'again']);
  t.deepEqual(wanted.keys(), ['again', 'late', 'early']);
  const long = 'k'.repeat(WANTED_PAGES_MAX_CHARACTERS / 4 - 10);
  for (let i = 0; i < 6; i++) wanted.read([`${i} ${long}`]);
  t.deepEqual(
    wanted.keys().map((key) => key[0]),
    ['5', '4', '3', '2'],
  );
  wanted.read(Array.from({ length: WANTED_PAGES_MAX_COUNT + 5 }, (_, i) => `short ${i}`));
  t.is(wanted.keys().length, WANTED_PAGES_MAX_COUNT);
  t.is(wanted.keys().at(-1), 'short 5');
});

test('drain: what others report late is known before the pages are chosen', async (t) => {
  const clock = new ManualClock();
  const wanted: string[] = [];
  const handed: string[] = [];
  const drain = newDrain({
    wantedKeys: () => wanted,
    reportsLateMs: 2_500,
    async handOver(_node, keys) {
      handed.push(...keys);
      return new Uint8Array(keys.length).fill(1);
    },
    env: { clock, log: silentLogger },
  });
  drain.start(30_000);
  clock.advance(2_499);
  wanted.push('late');
  clock.advance(1);
  await until(() => drain.progress().state !== 'handing_over');
  t.deepEqual(handed, ['late']);
  // With nobody else there nothing is waited for.
  const alone = newDrain({
    otherNodes: () => [],
    reportsLateMs: 2_500,
    env: { clock: new ManualClock(), log: silentLogger },
  });
  alone.start(30_000);
  await until(() => alone.progress().state !== 'handing_over');
  t.pass();
});

/** Of a node with one page, which two others are to take. */
function newDrain(parts: Partial<DrainParts>): Drain {
  return new Drain({
    nodeId: 'leaving',
    wantedKeys: () => ['page'],
    lengthsOf: (keys) => keys.map(() => PAGE_BYTES),
    otherNodes: () => ['one', 'two'],
    reportsLateMs: 0,
    handOver: async (_node, keys) => new Uint8Array(keys.length),
    stopPublishing() {},
    diskQueueBytes: () => 0,
    async leave() {},
    lingerMs: 0,
    env: { clock: systemClock, log: silentLogger },
    ...parts,
  });
}

async function setPages(store: MeshCacheStore, count: number): Promise<string[]> {
  const keys = Array.from({ length: count }, (_, i) => `page ${i}`);
  for (const [i, key] of keys.entries()) if (!(await store.set(key, content(i, PAGE_BYTES)))) throw new Error(key);
  return keys;
}

/** Reads every page; throws for a wrong byte. */
async function missesOf(store: MeshCacheStore, keys: readonly string[]): Promise<string[]> {
  const pages = await Promise.all(keys.map((key) => store.get(key)));
  return keys.filter((key, i) => {
    const page = pages[i];
    if (page && !Buffer.from(page).equals(content(i, PAGE_BYTES))) throw new Error(`wrong bytes under ${key}`);
    return page === null;
  });
}

/** As an operator does it: over the control plane. */
async function drain(t: ExecutionContext, store: MeshCacheStore, params: object = {}): Promise<DrainProgress> {
  const rpc = newClient(t);
  const { control_endpoint } = (await store.runtime.report()) as { control_endpoint: string };
  return (await rpc.call(parseEndpoint(control_endpoint)!, 'node.drain', params)) as DrainProgress;
}
