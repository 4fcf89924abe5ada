import test from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import { WANTED_PAGES_MAX_CHARACTERS, WANTED_PAGES_MAX_COUNT } from '../../src/base/limits.js';
import { Drain, type DrainParts } from '../../src/node/leaving/drain.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { WantedPages } from '../../src/store/holding/wanted-pages.js';
import { systemClock } from '../../src/system/system-clock.js';
import { ManualClock } from '../_support/clock.js';
import { locationOf } from '../_support/directory/locations.js';
import { drain } from '../_support/node/drain-node.js';
import { type SimStore, startCluster, startStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content, until } from '../_support/support.js';

const PAGE_BYTES = 32 * 1024;

simulated(
  'drain: what others read stays readable without one miss; the node publishes nothing and leaves',
  async (t, world) => {
    const [leaving, ...others] = (await startCluster(world, 3)) as [SimStore, SimStore, SimStore];
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
          await world.sleep(20);
        }
      }),
    );
    const first = await drain(world, leaving);
    t.is(first.node_id, leaving.runtime.nodeId);
    t.false(await leaving.set('late', content(99, PAGE_BYTES)), 'nothing is published any more');
    await leaving.drained;
    await world.until(() => others.every((store) => store.stats().members === 2));
    await leaving.close();
    const after = reads;
    await world.until(() => reads > after + 4 * wanted.length);
    isOver = true;
    await reading;
    t.deepEqual(misses, []);
    t.log(`${reads} reads, none missed`);
    for (const store of others) t.is(await store.batchExists(wanted), wanted.length);
    t.is(await others[0].batchExists([keys.at(-1) as string]), 0, 'nobody had read it: gone with its node');
  },
);

simulated('drain: says how far it is; asking again changes nothing; a wrong time is refused', async (t, world) => {
  const [leaving, other] = (await startCluster(world, 2)) as [SimStore, SimStore];
  const keys = await setPages(leaving, 30);
  t.deepEqual(await missesOf(other, keys), []);
  await world.until(async () => (await leaving.runtime.report()).health !== undefined);
  await t.throwsAsync(drain(world, leaving, { timeout_ms: -1 }), {
    code: 'ERR_ARGUMENT',
    message: /0 to 3600000, got -1/,
  });
  t.is((await leaving.runtime.report()).health.status, 'ok', 'a refused order changes nothing');
  await drain(world, leaving);
  t.regex((await leaving.runtime.report()).health.reasons.join(), /being drained/);
  await leaving.drained;
  const last = await drain(world, leaving);
  t.like(last, { state: 'drained', wanted_pages: 30, handed_pages: 30, left_pages: 0, disk_queue_bytes: 0 });
  t.is(other.stats().poolEntries, 30);
  t.deepEqual(await missesOf(leaving, keys), [], 'its own program still reads what is there');
});

simulated('drain: copies take at most a quarter of a pool; what finds no room is left, and told', async (t, world) => {
  const [leaving, other] = (await startCluster(world, 2, { global_segment_size: '4mb' })) as [SimStore, SimStore];
  const keys = await setPages(leaving, 100);
  t.deepEqual(await missesOf(other, keys), []);
  await drain(world, leaving);
  await leaving.drained;
  const last = await drain(world, leaving);
  t.is(last.wanted_pages, 100);
  t.is(last.handed_pages + last.left_pages, 100);
  t.true(last.handed_pages > 0 && last.handed_pages <= 2 ** 20 / PAGE_BYTES, `${last.handed_pages}`);
  t.true(other.stats().poolUsedBytes <= 2 ** 20 + PAGE_BYTES, `${other.stats().poolUsedBytes}`);
});

simulated('drain: nobody else there, or nothing that others want: the node leaves all the same', async (t, world) => {
  const [alone] = (await startCluster(world, 1)) as [SimStore];
  await setPages(alone, 3);
  await drain(world, alone, { timeout_ms: 0 });
  await alone.drained;
  t.pass();
});

simulated('drain: what waits for the disk is written, and found by the next start', async (t, world) => {
  const setup = { host: '10.0.0.1', config: { disk_enabled: true, disk_path: '/cache', disk_size: '64mb' } };
  const leaving = await startStore(world, setup);
  const keys = await setPages(leaving, 50);
  await drain(world, leaving);
  await leaving.drained;
  t.is(leaving.stats().disk?.queueBytes, 0);
  await leaving.close();
  const again = await startStore(world, setup);
  t.deepEqual(await missesOf(again, keys), []);
});

// Its pages were not read by anybody there yet, so that they were lost with it.
simulated('drain: what a node has taken over it hands on when it is drained in its turn', async (t, world) => {
  const stores = await startCluster(world, 3);
  const [first, second, last] = stores as [SimStore, SimStore, SimStore];
  const keys = await setPages(first, 40);
  t.deepEqual(await missesOf(second, keys), []);
  for (const leaving of [first, second]) {
    await drain(world, leaving);
    await leaving.drained;
    await world.until(() => !last.runtime.members().has(leaving.runtime.nodeId));
    await leaving.close();
  }
  t.deepEqual(await missesOf(last, keys), []);
});

// The drain went on by itself, and its timers kept the process alive.
simulated('drain: close() under way ends it at once; drained resolves', async (t, world) => {
  const [leaving, other] = (await startCluster(world, 2, { heartbeat_interval: 5, member_ttl: 60 })) as [
    SimStore,
    SimStore,
  ];
  const keys = await setPages(leaving, 30);
  t.deepEqual(await missesOf(other, keys), []);
  await drain(world, leaving);
  await world.until(async () => (await drain(world, leaving)).state === 'leaving');
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
    holders: {
      ask: async (_node, { keys }, { timeoutMs = 0 } = {}) => {
        timeouts.push(timeoutMs);
        nowMs += 6_000;
        return keys.map(() => 'absent');
      },
    },
    env: { clock, log: silentLogger },
  });
  drain.start(9_000);
  await drain.drained;
  t.deepEqual(timeouts, [5_000, 3_000]);
  t.like(drain.progress(), { wanted_pages: 1, handed_pages: 0, left_pages: 1 });
});

// Their keys are what peers say: with long ones they took memory without bound, and more than one call of the pool
// takes.
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
    holders: {
      async ask(_node, { keys }) {
        handed.push(...keys);
        return keys.map(() => 'held');
      },
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
    statements: {
      locationsOf: (keys) => keys.map(() => locationOf({ length: PAGE_BYTES })),
      tiersOf: (keys) => keys.map(() => 'memory'),
    },
    otherNodes: () => ['one', 'two'],
    storageNodes: () => [],
    unplacedPages: () => 0,
    reportsLateMs: 0,
    holders: { ask: async (_node, { keys }) => keys.map(() => 'absent') },
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
