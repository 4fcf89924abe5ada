import type { ExecutionContext } from 'ava';
import type { OwnerRing } from '../../src/directory/owners/owners.js';
import { DiscoveryClient } from '../../src/discovery/client.js';
import { NodeInfo } from '../../src/types.js';
import { PAGE_BYTES, PORT, type SimStore, startStore, TTL_S } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const KEYS = Array.from({ length: 200 }, (_, i) => `page ${i}`);
/** Milliseconds after which nothing of an earlier ring counts any more. */
const SETTLED_MS = 10_000 * TTL_S;

/** A cluster with one node on each host, in these zones. */
async function clusterIn(world: TestWorld, zones: readonly (string | undefined)[]): Promise<SimStore[]> {
  const stores: SimStore[] = [];
  for (const zone of zones) stores.push(await startStore(world, { config: { node_id: nameOf(stores.length), zone } }));
  await world.until(() => stores.every((store) => store.stats().members === zones.length));
  return stores;
}

function nameOf(node: number): string {
  return `node-${node}`;
}

async function setAll(t: ExecutionContext, store: SimStore, keys = KEYS): Promise<void> {
  const set = await Promise.all(keys.map((key, i) => store.set(key, content(i, PAGE_BYTES))));
  t.false(set.includes(false));
}

/** Number of pages that the node reads with the right bytes. */
async function readAll(store: SimStore, keys = KEYS): Promise<number> {
  const pages = await Promise.all(keys.map((key) => store.get(key)));
  return pages.filter((page, i) => page !== null && Buffer.compare(page, content(i, PAGE_BYTES)) === 0).length;
}

/** The owners of the keys, by their names, as this node chooses them. */
function ownersBy(store: SimStore, keys = KEYS): string[][] {
  const ring = store.runtime.directory.rings()[0] as OwnerRing;
  const owners = ring.getNodesBatch(store.keyEncoder.encodeKeys(keys), 2);
  return keys.map((_, i) => Array.from(owners.subarray(2 * i, 2 * i + 2), (owner) => ring.nodes[owner] as string));
}

function inOneZone(owners: readonly string[], zones: readonly (string | undefined)[]): boolean {
  const [first, second] = owners.map((name) => zones[Number(name.slice('node-'.length))]);
  return first === second;
}

type Counts = Record<'host' | 'zone' | 'other', number>;

async function countsBy(store: SimStore, name: string): Promise<Counts> {
  const of = (distance: string) => store.metric(name, { distance });
  return { host: await of('host'), zone: await of('zone'), other: await of('other') };
}

simulated('zones: the owners of an entry are in different zones, the same ones on all nodes', async (t, world) => {
  const zones = ['a', 'a', 'a', 'b', 'b', 'c'];
  const stores = await clusterIn(world, zones);
  const [first] = stores as [SimStore];
  t.false(ownersBy(first).some((owners) => inOneZone(owners, zones)));
  for (const store of stores) t.deepEqual(ownersBy(store), ownersBy(first));
});

simulated('zones: when a whole zone dies, no page that is left is missed', async (t, world) => {
  // Entries whose owners are all in the dead zone would be found again only when their nodes have announced them anew.
  const stores = await clusterIn(world, ['a', 'b', 'a', 'b']);
  const [, holder, , reader] = stores as [SimStore, SimStore, SimStore, SimStore];
  await setAll(t, holder);
  await world.sleep(SETTLED_MS);
  for (const store of [stores[0], stores[2]] as SimStore[]) store.process.kill();
  t.is(await readAll(reader), KEYS.length);
});

simulated('zones: a page is read from the nearest node that has it', async (t, world) => {
  const stores = await clusterIn(world, ['a', 'a', 'b', 'b']);
  for (const [i, store] of stores.entries()) if (i % 2 === 0) await setAll(t, store);
  await world.sleep(SETTLED_MS);
  for (const store of [stores[1], stores[3]] as SimStore[]) {
    const asked = await countsBy(store, 'meshcache_directory_asked_keys_total');
    t.is(await readAll(store), KEYS.length);
    t.deepEqual(await countsBy(store, 'meshcache_remote_read_pages_total'), { host: 0, zone: KEYS.length, other: 0 });
    t.is((await countsBy(store, 'meshcache_remote_read_bytes_total')).zone, KEYS.length * PAGE_BYTES);
    t.is(
      (await countsBy(store, 'meshcache_directory_asked_keys_total')).other,
      asked.other,
      'lookups stay in the zone',
    );
  }
});

simulated('zones: when the nearest holder hands out nothing, the next one is read', async (t, world) => {
  const stores = await clusterIn(world, ['a', 'a', 'b', 'b']);
  const [near, reader, far] = stores as [SimStore, SimStore, SimStore];
  await setAll(t, near);
  await setAll(t, far);
  await near.runtime.transport.close();
  t.is(await readAll(reader), KEYS.length);
  t.is((await countsBy(reader, 'meshcache_remote_read_pages_total')).other, KEYS.length);
});

simulated('zones: a node of the same host is nearer than others of the zone', async (t, world) => {
  const start = (host: string, zone: string) => startStore(world, { host, config: { zone } });
  const stores = [await start('10.0.0.1', 'a'), await start('10.0.0.2', 'a'), await start('10.0.0.2', 'a')];
  await world.until(() => stores.every((store) => store.stats().members === 3));
  const [other, beside, reader] = stores as [SimStore, SimStore, SimStore];
  await setAll(t, other);
  await setAll(t, beside);
  t.is(await readAll(reader), KEYS.length);
  t.deepEqual(await countsBy(reader, 'meshcache_remote_read_pages_total'), { host: KEYS.length, zone: 0, other: 0 });
});

simulated('zones: a node that returns in another zone is followed by all, and nothing is missed', async (t, world) => {
  const stores = await clusterIn(world, ['a', 'b', 'a', 'b']);
  const [, holder, moving] = stores as [SimStore, SimStore, SimStore];
  await setAll(t, holder);
  await world.sleep(SETTLED_MS);
  await moving.close();
  const moved = await startStore(world, { config: { node_id: nameOf(2), zone: 'b' } });
  const rest = [stores[0], stores[1], stores[3], moved] as SimStore[];
  for (let i = 0; i < 20; i++) {
    for (const store of rest) t.is(await readAll(store), KEYS.length);
    await world.sleep(100);
  }
  const zones = ['a', 'b', 'b', 'b'];
  t.false(ownersBy(moved).some((owners) => owners.includes(nameOf(0)) && inOneZone(owners, zones)));
  for (const store of rest) t.deepEqual(ownersBy(store), ownersBy(moved));
});

simulated(
  'zones: they do not count while a member does not know them, and nothing is missed then',
  async (t, world) => {
    const zones = ['a', 'b', 'a', 'b'];
    const stores = await clusterIn(world, zones);
    const [first, holder] = stores as [SimStore, SimStore];
    await setAll(t, holder);
    const process = world.process();
    const older = new NodeInfo({
      nodeId: 'older',
      controlHost: process.host.address,
      controlPort: 9,
      incarnation: process.environment.clock.wallMs(),
    });
    const client = new DiscoveryClient(`10.0.0.1:${PORT}`, older, { env: process.environment, heartbeatInterval: 0.2 });
    await process.run(() => client.start());
    await world.until(() => stores.every((store) => store.stats().members === 5));
    t.true(ownersBy(first).some((owners) => !owners.includes('older') && inOneZone(owners, zones)));
    for (const store of stores) t.is(await readAll(store), KEYS.length);
    await process.run(() => client.stop());
    await world.until(() => stores.every((store) => store.stats().members === 4));
    for (const store of stores) t.is(await readAll(store), KEYS.length);
    t.false(ownersBy(first).some((owners) => inOneZone(owners, zones)));
  },
);

simulated('zones: a node without a zone counts nothing by distance', async (t, world) => {
  const stores = await clusterIn(world, ['a', 'b', undefined]);
  const [holder, , reader] = stores as [SimStore, SimStore, SimStore];
  await setAll(t, holder);
  t.is(await readAll(reader), KEYS.length);
  for (const name of ['meshcache_remote_read_pages_total', 'meshcache_directory_asked_keys_total']) {
    t.deepEqual(await countsBy(reader, name), { host: 0, zone: 0, other: 0 });
  }
});
