import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { applyFault } from '../../src/sim/world/faults.js';
import { type SimStore, startStore } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';

const ADDR = 'etcd://10.2.0.1:2379';

const membersOf = (...stores: MeshCacheStore[]): string => stores.map((store) => store.stats().members).join();
const mastersOf = (...stores: MeshCacheStore[]): number => stores.filter(({ runtime }) => runtime.isMeta).length;
const hostsOf = (count: number): string[] => Array.from({ length: count }, (_, i) => `10.0.0.${i + 1}`);
const all = (count: number): string => Array.from({ length: count }, () => count).join();

const startAll = (world: TestWorld, hosts: readonly string[]): Promise<SimStore[]> =>
  Promise.all(hosts.map((host) => startStore(world, { host, addr: ADDR })));

/** Starts a cluster on etcd, and waits until it is at rest. */
async function settled(world: TestWorld, count: number): Promise<SimStore[]> {
  const stores = await startAll(world, hostsOf(count));
  await world.until(() => membersOf(...stores) === all(count));
  await world.sleep(30_000);
  return stores;
}

async function lostBy(stores: readonly SimStore[]): Promise<number> {
  let lost = 0;
  for (const store of stores) lost += await store.metric('meshcache_member_changes_total', { change: 'lost' });
  return lost;
}

simulated('etcd: nodes meet, those with a master register it, and a key ends with its node', async (t, world) => {
  const stores = await settled(world, 6);
  t.is(mastersOf(...stores), 3);
  t.is(world.etcd.keysCount, 3);
  const master = stores.find(({ runtime }) => runtime.isMeta) as SimStore;
  await master.close();
  t.is(world.etcd.keysCount, 2, 'a node that leaves takes its key along');
  const others = stores.filter((store) => store !== master);
  await world.until(() => membersOf(...others) === all(5) && world.etcd.keysCount === 3);
  others.find(({ runtime }) => runtime.isMeta)?.process.kill();
  await world.sleep(15_000);
  t.is(world.etcd.keysCount, 3, 'the key of a dead node is gone, that of the next one is there');
});

const troubles: Record<string, (world: TestWorld) => Promise<void>> = {
  'stopped for a minute': async (world) => {
    applyFault(world, { kind: 'etcd-down', atMs: world.nowMs, targets: [], durationMs: 60_000 });
    await world.sleep(60_001);
  },
  'frozen for a minute': async (world) => {
    applyFault(world, { kind: 'etcd-silent', atMs: world.nowMs, targets: [], durationMs: 60_000 });
    await world.sleep(60_001);
  },
  wiped: async (world) => {
    applyFault(world, { kind: 'etcd-wipe', atMs: world.nowMs, targets: [] });
  },
  'bereft of all leases': async (world) => {
    world.etcd.dropLeases();
  },
};

for (const [what, trouble] of Object.entries(troubles)) {
  simulated(`etcd: when it is ${what}, no node loses a peer, and a new one joins within 5 s`, async (t, world) => {
    const stores = await settled(world, 5);
    const before = await lostBy(stores);
    await trouble(world);
    t.is(membersOf(...stores), all(5));
    const sinceMs = world.nowMs;
    const late = await startStore(world, { host: '10.0.0.6', addr: ADDR });
    await world.until(() => membersOf(...stores, late) === all(6));
    t.true(world.nowMs - sinceMs < 5_000, `${world.nowMs - sinceMs} ms`);
    await world.sleep(60_000);
    t.is(membersOf(...stores, late), all(6));
    t.is(await lostBy(stores), before, 'no node was lost for a moment');
    t.is(world.etcd.keysCount, 3);
  });
}

simulated(
  'etcd: restarted with an old snapshot, whose masters are dead, it changes nothing for nodes that run',
  async (t, world) => {
    const first = await startAll(world, ['10.0.0.91', '10.0.0.92', '10.0.0.93']);
    await world.until(() => membersOf(...first) === all(3) && world.etcd.keysCount === 3);
    const snapshot = world.etcd.snapshot();
    const stores = await startAll(world, hostsOf(4));
    await world.until(() => membersOf(...stores) === '7,7,7,7');
    for (const store of first) await store.close();
    await world.until(() => membersOf(...stores) === all(4) && world.etcd.keysCount === 3);
    world.etcd.restart(snapshot);
    const sinceMs = world.nowMs;
    const late = await startStore(world, { host: '10.0.0.5', addr: ADDR });
    await world.until(() => membersOf(...stores, late) === all(5));
    t.true(world.nowMs - sinceMs < 5_000, `${world.nowMs - sinceMs} ms`);
    await world.sleep(40_000);
    t.is(membersOf(...stores, late), all(5));
    t.is(world.etcd.keysCount, 3, 'the keys of the snapshot have ended');
  },
);

simulated('etcd: nodes that start while it is down are one cluster 5 s after its return', async (t, world) => {
  world.etcd.setState('silent');
  const stores = await startAll(world, hostsOf(4));
  await world.sleep(20_000);
  t.is(membersOf(...stores), '1,1,1,1');
  world.etcd.setState('up');
  const sinceMs = world.nowMs;
  await world.until(() => membersOf(...stores) === all(4));
  t.true(world.nowMs - sinceMs < 5_000, `${world.nowMs - sinceMs} ms`);
});

simulated('etcd: at rest, only nodes with a master ask it more than twice a minute', async (t, world) => {
  const stores = await settled(world, 8);
  world.etcd.counts.clear();
  await world.sleep(60_000);
  const { counts } = world.etcd;
  t.is(mastersOf(...stores), 3);
  t.true((counts.get('kv/range') ?? 0) <= 8 * 3, JSON.stringify([...counts]));
  t.true((counts.get('lease/keepalive') ?? 0) <= 3 * 21, JSON.stringify([...counts]));
  t.deepEqual([...counts.keys()].sort(), ['kv/range', 'lease/keepalive']);
});
