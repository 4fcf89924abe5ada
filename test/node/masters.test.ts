import type { ExecutionContext } from 'ava';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { HEARTBEAT_S, PAGE_BYTES, PORT, startHolder, startStore, TTL_S } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const KEYS_EACH = 300;
const keysOf = (name: string): string[] => Array.from({ length: KEYS_EACH }, (_, i) => `${name} ${i}`);

async function setAll(t: ExecutionContext, store: MeshCacheStore, name: string): Promise<void> {
  for (const [i, key] of keysOf(name).entries()) t.true(await store.set(key, content(i, PAGE_BYTES)));
}

/** How many of the pages that were set as `name` a store reads; wrong bytes throw. */
async function readable(store: MeshCacheStore, name: string): Promise<number> {
  let count = 0;
  for (const [i, key] of keysOf(name).entries()) {
    const bytes = await store.get(key);
    if (bytes === null) continue;
    if (Buffer.compare(bytes, content(i, PAGE_BYTES)) !== 0) throw new Error(`${key}: wrong bytes`);
    count++;
  }
  return count;
}

const isEverythingFound = async (stores: readonly MeshCacheStore[], names: readonly string[]): Promise<boolean> => {
  for (const store of stores) {
    for (const name of names) if ((await store.batchExists(keysOf(name))) < KEYS_EACH) return false;
  }
  return true;
};

const membersOf = (...stores: MeshCacheStore[]): string => stores.map((store) => store.stats().members).join();

simulated(
  'masters: the head of three is killed; no read of others fails, and a node joins within two heartbeats',
  async (t, world) => {
    const addr = `10.0.0.1:${PORT},10.0.0.2:${PORT}`;
    const head = await startHolder(world, { host: '10.0.0.1', addr, keys: keysOf('head') });
    const b = await startStore(world, { host: '10.0.0.2', addr });
    const c = await startStore(world, { host: '10.0.0.3', addr });
    await world.until(() => membersOf(b, c) === '3,3');
    t.true(b.runtime.isMeta);
    await world.until(() => c.runtime.isMeta);
    await setAll(t, b, 'b');
    await setAll(t, c, 'c');
    await world.until(() => isEverythingFound([b, c], ['b', 'c', 'head']));

    const reads = { count: 0, failed: 0 };
    let isReading = true;
    t.teardown(() => {
      isReading = false;
    });
    const reading = (async () => {
      for (let i = 0; isReading; i = (i + 1) % KEYS_EACH) {
        const found = await Promise.all([b.get(`c ${i}`), c.get(`b ${i}`)]).catch(() => []);
        reads.count += found.length;
        reads.failed += found.filter((page) => page === null).length;
        await world.sleep(2);
      }
    })();
    head.process.kill();
    const killedMs = world.nowMs;
    const d = await startStore(world, { host: '10.0.0.4', addr });
    const startMs = world.nowMs - killedMs;
    // It need not wait for the dead head; a machine that is short of time may have kept one of the others from being
    // heard.
    await world.until(() => [b, c].every((store) => d.runtime.members().has(store.runtime.nodeId)));
    await world.until(() => [b, c].every((store) => store.runtime.members().has(d.runtime.nodeId)));
    const joinMs = world.nowMs - killedMs - startMs;
    t.true(joinMs < 2 * HEARTBEAT_S * 1000, `joined after ${joinMs} ms`);
    await world.until(() => membersOf(b, c, d) === '3,3,3');
    const droppedMs = world.nowMs - killedMs;
    await world.until(() => d.runtime.isMeta || world.nowMs - killedMs > 2 * TTL_S * 1000);
    isReading = false;
    await reading;
    t.is(reads.failed, 0);
    t.true(reads.count > 100);
    t.log(
      `started in ${startMs.toFixed(0)} ms, known to all ${joinMs.toFixed(0)} ms later; the killed one dropped after ${droppedMs.toFixed(0)} ms; ${reads.count} reads`,
    );
    await world.until(() => isEverythingFound([d], ['b', 'c']));
    t.is(await readable(d, 'b'), KEYS_EACH);
  },
);

simulated(
  'masters: one of three is killed with two replicas; every surviving page is found from then on',
  async (t, world) => {
    const addr = `10.0.0.1:${PORT}`;
    const a = await startStore(world, { host: '10.0.0.1', addr });
    const b = await startStore(world, { host: '10.0.0.2', addr });
    const victim = await startHolder(world, { host: '10.0.0.3', addr, keys: keysOf('victim') });
    await world.until(() => membersOf(a, b) === '3,3');
    await setAll(t, a, 'a');
    await setAll(t, b, 'b');
    await world.until(() => isEverythingFound([a, b], ['a', 'b', 'victim']));
    const before = { lookups: 0, failed: 0 };
    const after = { lookups: 0, failed: 0 };
    victim.process.kill();
    const killedMs = world.nowMs;
    for (let ageMs = 0; ageMs < TTL_S * 1000 + 2000; ageMs = world.nowMs - killedMs) {
      const phase = ageMs < TTL_S * 1000 ? before : after;
      // Whole batches of what the other one has: not a prefix.
      for (const [store, name] of [
        [a, 'b'],
        [b, 'a'],
      ] as const) {
        const found = await Promise.all(
          keysOf(name)
            .slice(0, 100)
            .map((key) => store.exists(key)),
        );
        phase.lookups += found.length;
        phase.failed += found.filter((isFound) => !isFound).length;
      }
      await world.sleep(20);
    }
    t.log(`failed lookups of surviving pages: ${before.failed} of ${before.lookups} before the time-to-live was over`);
    t.true(after.lookups > 100);
    t.is(after.failed, 0);
    t.is(membersOf(a, b), '2,2');
    // What the dead node's directory entries took is free again.
    await world.until(async () => {
      const reports = await Promise.all([a, b].map((store) => store.runtime.report()));
      return reports.every(({ directory }) => directory.keys === 2 * KEYS_EACH);
    });
    for (const key of keysOf('victim')) t.false(await a.exists(key));
  },
);

simulated(
  'masters: a process that was frozen is dropped, comes back as newly started, and its pages are found again',
  async (t, world) => {
    const addr = `10.0.0.1:${PORT}`;
    const a = await startStore(world, { host: '10.0.0.1', addr });
    const b = await startStore(world, { host: '10.0.0.2', addr });
    // The third host: it has a master as well.
    const frozen = await startHolder(world, { host: '10.0.0.3', addr, keys: keysOf('frozen') });
    const incarnation = () => a.runtime.members().get(frozen.nodeId)?.incarnation ?? 0;
    await setAll(t, a, 'a');
    await world.until(() => isEverythingFound([a, b], ['a', 'frozen']));
    const before = incarnation();
    frozen.process.stop();
    await world.until(() => membersOf(a, b) === '2,2');
    for (const key of keysOf('frozen').slice(0, 20)) t.is(await b.get(key), null);
    // The frozen shard does not hear of it.
    await a.clear();
    await setAll(t, b, 'b');
    frozen.process.continue();
    await world.until(() => membersOf(a, b) === '3,3');
    t.true(incarnation() > before);
    await world.until(() => isEverythingFound([a, b], ['b', 'frozen']));
    t.is(await readable(a, 'frozen'), KEYS_EACH);
    for (const key of keysOf('a')) t.false(await b.exists(key), key);
  },
);

simulated('masters: a frozen head comes back, and nobody has lost anybody', async (t, world) => {
  const addr = `10.0.0.1:${PORT},10.0.0.2:${PORT}`;
  const head = await startHolder(world, { host: '10.0.0.1', addr, keys: keysOf('head') });
  const b = await startStore(world, { host: '10.0.0.2', addr });
  const c = await startStore(world, { host: '10.0.0.3', addr });
  await world.until(() => membersOf(b, c) === '3,3');
  await setAll(t, c, 'c');
  head.process.stop();
  await world.until(() => membersOf(b, c) === '2,2');
  t.is(await readable(b, 'c'), KEYS_EACH);
  head.process.continue();
  const awakeMs = world.nowMs;
  await world.until(() => membersOf(b, c) === '3,3');
  while (world.nowMs - awakeMs < 2 * TTL_S * 1000) {
    t.true(b.runtime.members().has(c.runtime.nodeId) && c.runtime.members().has(b.runtime.nodeId));
    await world.until(() => isEverythingFound([b, c], ['c', 'head']));
    await world.sleep(20);
  }
  t.is(await readable(b, 'head'), KEYS_EACH);
});

simulated(
  'masters: the older of two stores with one id stops publishing, says so, and goes on reading',
  async (t, world) => {
    const addr = `10.0.0.1:${PORT}`;
    const a = await startStore(world, { host: '10.0.0.1', addr });
    const older = await startStore(world, { host: '10.0.0.2', addr, config: { node_id: 'twin' } });
    await setAll(t, a, 'a');
    await setAll(t, older, 'older');
    t.is(await readable(a, 'older'), KEYS_EACH);
    const newer = await startStore(world, { host: '10.0.0.3', addr, config: { node_id: 'twin' } });
    await setAll(t, newer, 'newer');
    await world.until(() => older.runtime.troubles().some((trouble) => trouble.includes('taken its place')));
    t.false(await older.set('late', content(1, PAGE_BYTES)));
    t.is(await a.get('late'), null);
    for (const key of keysOf('older')) t.false(await a.exists(key));
    t.is(await readable(a, 'newer'), KEYS_EACH);
    t.is(await readable(older, 'a'), KEYS_EACH);
    t.is(await readable(older, 'older'), KEYS_EACH);
    await newer.close();
    await world.until(() => older.runtime.troubles().length === 0);
    await world.until(() => isEverythingFound([a], ['older']));
    t.true(await older.set('late', content(1, PAGE_BYTES)));
  },
);

simulated(
  'masters: after a partition every page is found from both sides, and what was cleared meanwhile is not',
  async (t, world) => {
    const addr = `10.0.0.1:${PORT}`;
    const hosts = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4'];
    const stores: MeshCacheStore[] = [];
    for (const host of hosts) stores.push(await startStore(world, { host, addr }));
    const [a, b, c, d] = stores as [MeshCacheStore, MeshCacheStore, MeshCacheStore, MeshCacheStore];
    await world.until(() => membersOf(...stores) === '4,4,4,4');
    for (const [i, store] of stores.entries()) await setAll(t, store, 'abcd'[i] as string);
    await world.until(() => isEverythingFound(stores, ['a', 'b', 'c', 'd']));
    world.isolate('10.0.0.3', '10.0.0.4');
    await world.until(() => membersOf(...stores) === '2,2,2,2');
    await world.until(() => isEverythingFound([a, b], ['a', 'b']));
    await world.until(() => isEverythingFound([c, d], ['c', 'd']));
    await a.clear();
    await setAll(t, a, 'a later');
    await setAll(t, c, 'c later');
    world.heal();
    const healedMs = world.nowMs;
    await world.until(() => membersOf(...stores) === '4,4,4,4');
    await world.until(() => isEverythingFound(stores, ['b', 'c', 'd', 'a later', 'c later']));
    t.log(`everything was found ${(world.nowMs - healedMs).toFixed(0)} ms after the partition`);
    for (const store of stores) for (const key of keysOf('a')) t.false(await store.exists(key), key);
  },
);

simulated(
  'masters: both listed hosts are killed; the living fill the seats, and nodes join by any of them and by a listed one that is back',
  async (t, world) => {
    const addr = `10.0.0.1:${PORT},10.0.0.2:${PORT}`;
    const heads = [
      await startHolder(world, { host: '10.0.0.1', addr, keys: [] }),
      await startHolder(world, { host: '10.0.0.2', addr, keys: [] }),
    ];
    const living: MeshCacheStore[] = [];
    for (const i of [3, 4, 5, 6]) living.push(await startStore(world, { host: `10.0.0.${i}`, addr }));
    const [c, d, e, f] = living as [MeshCacheStore, MeshCacheStore, MeshCacheStore, MeshCacheStore];
    await world.until(() => membersOf(...living) === '6,6,6,6' && c.runtime.isMeta);
    t.deepEqual(
      [d, e, f].map((store) => store.runtime.isMeta),
      [false, false, false],
    );
    await setAll(t, f, 'f');
    for (const { process } of heads) process.kill();
    const killedMs = world.nowMs;
    await world.until(
      () => c.runtime.isMeta && d.runtime.isMeta && e.runtime.isMeta && membersOf(...living) === '4,4,4,4',
    );
    const filledMs = world.nowMs - killedMs;
    t.true(filledMs < 2 * TTL_S * 1000, `${filledMs} ms to fill the seats`);
    t.log(`${filledMs.toFixed(0)} ms to fill the seats`);
    t.false(f.runtime.isMeta);
    t.deepEqual(f.runtime.troubles(), []);
    const masters = async (store: MeshCacheStore) => (await store.runtime.report()).masters.join();
    const seats = [3, 4, 5].map((i) => `10.0.0.${i}:${PORT}`).join();
    for (const store of living) t.is(await masters(store), seats);

    const joinBy = async (host: string, listed: string): Promise<void> => {
      const newcomer = await startStore(world, { host, addr: listed });
      living.push(newcomer);
      await world.until(() => living.every((store) => store.stats().members === living.length));
      await world.until(() => isEverythingFound([newcomer], ['f']));
    };
    await joinBy('10.0.0.7', `10.0.0.5:${PORT}`);
    t.is(await masters(living.at(-1) as MeshCacheStore), seats);
    // The second listed one is back, and gets its seat again.
    await joinBy('10.0.0.2', addr);
    await world.until(() => !e.runtime.isMeta);
    await joinBy('10.0.0.8', `10.0.0.2:${PORT}`);
    const after = [2, 3, 4].map((i) => `10.0.0.${i}:${PORT}`).join();
    await world.until(async () => (await Promise.all(living.map(masters))).every((one) => one === after));
    t.is(await readable(living.at(-1) as MeshCacheStore, 'f'), KEYS_EACH);
  },
);
