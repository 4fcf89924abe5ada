import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { applyFault } from '../../src/sim/world/faults.js';
import { startStore } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';

const NAME = 'nodes.test';
const ADDR = `dns://${NAME}:31990`;

const membersOf = (...stores: MeshCacheStore[]): string => stores.map((store) => store.stats().members).join();
const mastersOf = (...stores: MeshCacheStore[]): number => stores.filter(({ runtime }) => runtime.isMeta).length;
const hostsOf = (count: number): string[] => Array.from({ length: count }, (_, i) => `10.0.0.${i + 1}`);

const startAll = (world: TestWorld, hosts: readonly string[]) =>
  Promise.all(hosts.map((host) => startStore(world, { host, addr: ADDR })));

simulated('dns: nodes meet by a name, and at most max_masters of them run a master', async (t, world) => {
  world.names.set(NAME, hostsOf(5));
  const stores = await startAll(world, hostsOf(5));
  await world.until(() => membersOf(...stores) === '5,5,5,5,5');
  await world.sleep(5_000);
  t.is(mastersOf(...stores), 3);
});

for (const state of ['silent', 'down'] as const) {
  simulated(
    `dns: while it is ${state}, and while its answer is empty or wrong, no node loses a peer`,
    async (t, world) => {
      world.names.set(NAME, hostsOf(4));
      const stores = await startAll(world, hostsOf(4));
      await world.until(() => membersOf(...stores) === '4,4,4,4');
      applyFault(world, { kind: `names-${state}`, atMs: world.nowMs, targets: [], durationMs: 60_000 });
      await world.sleep(60_001);
      for (const wrong of [[], ['10.9.9.9'], ['10.0.0.4'], ['10.9.9.1', '10.9.9.2', '10.9.9.3', '10.9.9.4']]) {
        world.names.set(NAME, wrong);
        await world.sleep(30_000);
        t.is(membersOf(...stores), '4,4,4,4', `answer ${wrong.join()}`);
      }
      // Longer than an address is kept that the source does not name any more.
      await world.sleep(330_000);
      for (const store of stores) t.is(await store.metric('meshcache_member_changes_total', { change: 'lost' }), 0);
      t.is(mastersOf(...stores), 3, 'masters at addresses that are not listed any more have ended');
    },
  );
}

simulated('dns: a node that starts while it is silent joins within 5 s of its return', async (t, world) => {
  world.names.set(NAME, hostsOf(4));
  const stores = await startAll(world, hostsOf(3));
  await world.until(() => membersOf(...stores) === '3,3,3');
  world.names.state = 'silent';
  const late = await startStore(world, { host: '10.0.0.4', addr: ADDR });
  await world.sleep(20_000);
  t.is(membersOf(...stores, late), '3,3,3,1');
  t.regex(late.runtime.troubles().join(), /no discovery master answers \(dns:\/\/nodes\.test:31990\)/);
  world.names.state = 'up';
  const sinceMs = world.nowMs;
  await world.until(() => membersOf(...stores, late) === '4,4,4,4');
  t.true(world.nowMs - sinceMs < 5_000, `${world.nowMs - sinceMs} ms`);
});

simulated('dns: nodes to whom it shows different parts merge once it shows all the same', async (t, world) => {
  const hosts = hostsOf(6);
  // Six parts of one node each, then two parts of three.
  for (const host of hosts) world.names.set(NAME, [host], host);
  const stores = await startAll(world, hosts);
  await world.sleep(3_000);
  t.is(membersOf(...stores), '1,1,1,1,1,1');
  for (const host of hosts.slice(0, 3)) world.names.set(NAME, hosts.slice(0, 3), host);
  for (const host of hosts.slice(3)) world.names.set(NAME, hosts.slice(3), host);
  await world.until(() => membersOf(...stores) === '3,3,3,3,3,3');
  world.names.showAllTheSame();
  world.names.set(NAME, hosts);
  await world.until(() => membersOf(...stores) === '6,6,6,6,6,6');
  await world.sleep(20_000);
  t.is(membersOf(...stores), '6,6,6,6,6,6');
});

simulated('dns: nodes find each other although the first addresses of the answer are dead', async (t, world) => {
  const dead = ['10.0.0.91', '10.0.0.92', '10.0.0.93'];
  const hosts = ['10.0.0.94', '10.0.0.95', '10.0.0.96', '10.0.0.97'];
  world.names.set(NAME, [...dead, ...hosts]);
  const stores = await startAll(world, hosts);
  await world.until(() => membersOf(...stores) === '4,4,4,4');
  const late = await startStore(world, { host: '10.0.0.98', addr: ADDR });
  await world.until(() => membersOf(...stores, late) === '5,5,5,5,5');
  t.pass();
});

simulated('dns: a cluster whose nodes are all replaced, one after the other, stays one cluster', async (t, world) => {
  let hosts = hostsOf(4);
  world.names.set(NAME, hosts);
  let stores = await startAll(world, hosts);
  await world.until(() => membersOf(...stores) === '4,4,4,4');
  for (let i = 0; i < 4; i++) {
    // Lower addresses, so that the listed ones change each time.
    const host = `10.0.0.${200 - i}`;
    const [first, ...others] = stores;
    await first?.close();
    hosts = [...hosts.slice(1), host];
    world.names.set(NAME, hosts);
    stores = [...others, await startStore(world, { host, addr: ADDR })];
    await world.until(() => membersOf(...stores) === '4,4,4,4');
  }
  await world.sleep(400_000);
  t.is(membersOf(...stores), '4,4,4,4');
});

simulated('dns: nodes with a list of addresses and nodes with a name are one cluster', async (t, world) => {
  world.names.set(NAME, hostsOf(5));
  const listed = await startStore(world, { host: '10.0.0.5', addr: '10.0.0.5:31990,10.0.0.4:31990' });
  const other = await startStore(world, { host: '10.0.0.4', addr: '10.0.0.5:31990,10.0.0.4:31990' });
  const stores = [listed, other, ...(await startAll(world, hostsOf(3)))];
  await world.until(() => membersOf(...stores) === '5,5,5,5,5');
  t.pass();
});

simulated('dns: SRV records give the ports', async (t, world) => {
  const records = hostsOf(3).map((host, i) => ({ host, port: 32_000 + i }));
  world.names.set(`_meshcache._tcp.${NAME}`, records);
  const stores = await Promise.all(
    hostsOf(3).map((host, i) =>
      startStore(world, { host, addr: i === 0 ? `dns://_meshcache._tcp.${NAME}` : `dns://${NAME}` }),
    ),
  );
  await world.until(() => membersOf(...stores) === '3,3,3');
  t.pass();
});

simulated('dns: nodes whose records appear late, one after the other, become one cluster', async (t, world) => {
  const hosts = hostsOf(4);
  const stores = await startAll(world, hosts);
  await world.sleep(20_000);
  t.is(membersOf(...stores), '1,1,1,1');
  for (let count = 1; count <= hosts.length; count++) {
    world.names.set(NAME, hosts.slice(hosts.length - count));
    await world.sleep(2_000);
  }
  const sinceMs = world.nowMs;
  await world.until(() => membersOf(...stores) === '4,4,4,4');
  t.true(world.nowMs - sinceMs < 5_000, `${world.nowMs - sinceMs} ms`);
});

simulated('dns: answers that hold for no time are asked for every five seconds at most', async (t, world) => {
  world.names.ttlS = 0;
  world.names.set(NAME, hostsOf(3));
  const stores = await startAll(world, hostsOf(3));
  await world.until(() => membersOf(...stores) === '3,3,3');
  const before = world.names.questions;
  await world.sleep(60_000);
  const asked = world.names.questions - before;
  t.true(asked >= 3 * 10 && asked <= 3 * 14, `${asked} questions in a minute`);
});

simulated('dns: nodes with addresses of IPv6 meet', async (t, world) => {
  const hosts = ['fd00::1', 'fd00::2', 'fd00::3'];
  world.names.set(NAME, hosts);
  const stores = await startAll(world, hosts);
  await world.until(() => membersOf(...stores) === '3,3,3');
  t.is(mastersOf(...stores), 3);
});
