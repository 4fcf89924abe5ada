import type { NodeReport } from '../../src/metrics/node-report.js';
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

simulated('etcd: at rest, only nodes with a master ask it more than once in minutes', async (t, world) => {
  const stores = await settled(world, 8);
  world.etcd.counts.clear();
  await world.sleep(300_000);
  const { counts } = world.etcd;
  t.is(mastersOf(...stores), 3);
  t.true((counts.get('kv/range') ?? 0) <= 3 * 13 + 5 * 2, JSON.stringify([...counts]));
  t.true((counts.get('lease/keepalive') ?? 0) <= 3 * 101, JSON.stringify([...counts]));
  t.deepEqual([...counts.keys()].sort(), ['kv/range', 'lease/keepalive']);
});

simulated('etcd: masters that come and go cost the other nodes no request', async (t, world) => {
  const stores = await settled(world, 9);
  const master = stores.find(({ runtime }) => runtime.isMeta) as SimStore;
  const others = stores.filter((store) => store !== master);
  world.etcd.counts.clear();
  await master.close();
  await world.until(() => membersOf(...others) === all(8) && world.etcd.keysCount === 3);
  await world.sleep(20_000);
  const { event = 0, ...requests } = Object.fromEntries(world.etcd.counts);
  t.true(event >= 2 * others.length - 2, 'all are told of both changes');
  const { 'lease/keepalive': _, ...asked } = requests;
  const sum = Object.values(asked).reduce((total, count) => total + count, 0);
  t.true(sum <= 20, JSON.stringify(requests));
});

simulated(
  'etcd: of many nodes that wait for its return, few register, and they do not ask all at once',
  async (t, world) => {
    const count = 40;
    world.etcd.setState('down');
    const stores = await startAll(world, hostsOf(count));
    await world.sleep(60_000);
    world.etcd.counts.clear();
    await world.sleep(10_000);
    const waiting = world.etcd.counts.get('kv/range') ?? 0;
    t.true(waiting <= count * 11, `${waiting} requests in 10 s while it is down`);
    world.etcd.setState('up');
    world.etcd.counts.clear();
    const sinceMs = world.nowMs;
    await world.until(() => membersOf(...stores) === all(count));
    t.true(world.nowMs - sinceMs < 5_000, `${world.nowMs - sinceMs} ms`);
    t.true((world.etcd.counts.get('lease/grant') ?? 0) <= 6, JSON.stringify([...world.etcd.counts]));
    await world.sleep(30_000);
    world.etcd.setState('down');
    await world.sleep(60_000);
    world.etcd.counts.clear();
    await world.sleep(60_000);
    const patient = world.etcd.counts.get('kv/range') ?? 0;
    t.true(patient <= 3 * 65 + (count - 3) * 5, `${patient} requests a minute while it is down`);
    t.is(await lostBy(stores), 0);
  },
);

simulated(
  'etcd: a lone node that cannot register says so, and is a cluster all the same when it can',
  async (t, world) => {
    const [store] = (await startAll(world, hostsOf(1))) as [SimStore];
    await world.until(() => world.etcd.keysCount === 1);
    const { discovery } = (await store.runtime.report()) as NodeReport;
    t.like(discovery, { source: `${ADDR}/meshcache`, found: 1, trouble: '' });
    world.etcd.setState('silent');
    await world.sleep(60_000);
    const report = await store.runtime.report();
    t.regex(report.discovery?.trouble ?? '', /no answer within 2 s/);
    t.true((report.discovery?.answered_ago_s ?? 0) >= 20);
    t.deepEqual(store.runtime.troubles(), [], 'a silent source is no trouble of a node that runs');
    world.etcd.setState('up');
    await world.until(async () => (await store.runtime.report()).discovery?.trouble === '');
  },
);

for (const count of [2, 16]) {
  simulated(`etcd: ${count} numbers of masters that others have written to are left alone`, async (t, world) => {
    const strangers = Array.from({ length: count }, (_, i) => `/meshcache/masters/${String(i).padStart(2, '0')}`);
    const value = Buffer.from('no master').toString('base64');
    const entries = new Map(strangers.map((key) => [key, { value, lease: '0' }]));
    world.etcd.restart({ entries, leases: new Map(), revision: 20 });
    const stores = await startAll(world, hostsOf(2));
    if (count < 16) {
      await world.until(() => membersOf(...stores) === all(2));
    } else {
      await world.sleep(60_000);
      const { discovery } = (await (stores[0] as SimStore).runtime.report()) as NodeReport;
      t.regex(
        discovery?.trouble ?? '',
        /no key is free.*16 of them name none, such as \/meshcache\/masters\/00; remove/,
      );
      t.true((world.etcd.counts.get('kv/range') ?? 0) < 2 * 120, JSON.stringify([...world.etcd.counts]));
      t.is(world.etcd.counts.get('lease/grant'), undefined);
      world.etcd.restart();
      await world.until(() => membersOf(...stores) === all(2));
    }
    await world.sleep(30_000);
    t.is(world.etcd.keysCount, count < 16 ? count + 2 : 2);
  });
}
