import { HybridClock } from '../../src/base/concurrency/hybrid-clock.js';
import { LocatedPages } from '../../src/directory/messages/located-pages.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { PageStatements } from '../../src/store/ground/page-statements.js';
import type { DataLocation } from '../../src/types.js';
import { PAGE_BYTES, PORT, type SimStore, startCluster, startStore } from '../_support/node/simulated-stores.js';
import { TestHostPool } from '../_support/node/store-fixture.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const KEYS = Array.from({ length: 60 }, (_, i) => `key ${i}`);

// Cause: a node that was cut off when the page was overwritten states it again to owners that were cut off, too.
simulated(
  'reads: a node that has set a page and lost it reads no older one, and its holder drops that',
  async (t, world) => {
    const stores = await startCluster(world, 2);
    const [writer, holder] = stores as [SimStore, SimStore];
    t.true(await holder.set('key', content(1, PAGE_BYTES)));
    // Versions of two nodes are in the order of real time from one millisecond to the next.
    await world.sleep(2);
    const objectKeys = writer.keyEncoder.encodeKeys(['key'], 'kv');
    const [older] = await writer.runtime.directory.get(objectKeys);
    const { drop } = PageStatements.prototype;
    // The holder does not hear that the page is superseded.
    PageStatements.prototype.drop = async () => {};
    t.true(await writer.set('key', content(2, PAGE_BYTES)));
    PageStatements.prototype.drop = drop;
    await writer.clear();
    t.deepEqual(await holder.get('key'), content(1, PAGE_BYTES));
    writer.runtime.directory.find = async (_keys, onFound) => onFound(LocatedPages.of([[0, older as DataLocation]]));
    t.false(await writer.get('key', new Uint8Array(PAGE_BYTES)));
    await world.until(async () => (await holder.get('key')) === null);
  },
);

// Cause: the node of the content that lost was told that pages below the next version are void, and so was the other
// content to it.
simulated('reads: of two contents of one version every node reads the same one, and it stays', async (t, world) => {
  const stores = (await startCluster(world, 2)) as SimStore[];
  const nodeIdOf = (store: SimStore): string => store.runtime.nodeId;
  const [loser, winner] = stores.toSorted((a, b) => (nodeIdOf(a) < nodeIdOf(b) ? -1 : 1)) as [SimStore, SimStore];
  const { next } = HybridClock.prototype;
  const version = loser.runtime.versions.next();
  HybridClock.prototype.next = () => version;
  t.true(await loser.set('key', content(1, PAGE_BYTES)));
  t.true(await winner.set('key', content(2, PAGE_BYTES)));
  HybridClock.prototype.next = next;
  for (let round = 0; round < 3; round++) {
    for (const store of stores) t.deepEqual(await store.get('key'), content(2, PAGE_BYTES));
    await world.sleep(1_000);
  }
  t.true(await loser.set('key', content(3, PAGE_BYTES)));
  for (const store of stores) t.deepEqual(await store.get('key'), content(3, PAGE_BYTES));
});

// Cause: the owners of some keys were all away; nobody that they asked knew of anything newer.
simulated(
  'reads: nodes that were cut off learn what has been set meanwhile, also when it is gone since',
  async (t, world) => {
    const hosts = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4'] as const;
    const addr = `${hosts[0]}:${PORT},${hosts[2]}:${PORT}`;
    const stores: MeshCacheStore[] = [];
    for (const host of hosts) stores.push(await startStore(world, { host, addr }));
    const [writer, reader, holder] = stores as [SimStore, SimStore, SimStore];
    const areAll = (count: number) => world.until(() => stores.every((store) => store.stats().members === count));
    await areAll(4);
    for (const [i, key] of KEYS.entries()) t.true(await holder.set(key, content(i, PAGE_BYTES)));
    world.isolate(hosts[2], hosts[3]);
    await areAll(2);
    for (const [i, key] of KEYS.entries()) t.true(await writer.set(key, content(1000 + i, PAGE_BYTES)));
    await writer.clear();
    world.heal();
    await areAll(4);
    for (const store of [holder, reader]) {
      await world.until(async () =>
        (await Promise.all(KEYS.map((key) => store.get(key)))).every((page) => page === null),
      );
    }
    t.is(holder.stats().members, 4);
  },
);

// Cause: the location of the computed page did not say that a named content, newer than the other nodes' page, had been
// set before it.
simulated(
  'reads: nodes that have started while others were cut off tell them of named contents, also when computed again since',
  async (t, world) => {
    const hosts = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4'] as const;
    const addr = `${hosts[0]}:${PORT},${hosts[2]}:${PORT}`;
    const stores: SimStore[] = [];
    const pools: TestHostPool[] = [];
    const start = async (host: string): Promise<SimStore> => {
      const store = await startStore(world, { host, addr });
      const pool = new TestHostPool(KEYS.length, PAGE_BYTES, 1);
      t.teardown(() => pool.region.free());
      await store.registerMemPoolHost(pool);
      pools.push(pool);
      stores.push(store);
      return store;
    };
    const compute = async (store: SimStore, firstContent: number): Promise<void> => {
      const pool = pools[stores.indexOf(store)] as TestHostPool;
      for (const i of KEYS.keys()) pool.component(i, 0).set(content(firstContent + i, PAGE_BYTES));
      t.false((await store.batchSetV1(KEYS, pool.indices(0, KEYS.length))).includes(false));
    };
    const areAll = (count: number) => world.until(() => stores.every((store) => store.stats().members === count));
    const holder = await start(hosts[0]);
    await start(hosts[1]);
    await areAll(2);
    await compute(holder, 0);
    for (const host of [hosts[2], hosts[3]]) world.process(host);
    world.isolate(hosts[2], hosts[3]);
    const writer = await start(hosts[2]);
    await start(hosts[3]);
    await areAll(2);
    for (const [i, key] of KEYS.entries()) t.true(await writer.set(key, content(1000 + i, PAGE_BYTES)));
    await compute(writer, 2000);
    world.heal();
    await areAll(4);
    for (const store of stores) {
      await world.until(async () => {
        const pages = await Promise.all(KEYS.map((key) => store.get(key)));
        return pages.every((page, i) => page !== null && Buffer.compare(page, content(2000 + i, PAGE_BYTES)) === 0);
      });
    }
  },
);

simulated(
  'reads: the directory may answer while the store closes, about pages from before its start',
  async (t, world) => {
    // Cause: the closed disk store was asked whether the page is still good, and nobody waited for that answer yet.
    const [other] = (await startCluster(world, 1)) as [SimStore];
    const config = { node_id: 'restarted', disk_enabled: true, disk_path: '/cache', disk_size: '64mb' };
    const setup = { host: '10.0.0.9', config };
    const before = await startStore(world, setup);
    t.true(await before.set('key', content(1, PAGE_BYTES)));
    await before.close();
    await world.until(() => other.stats().members === 1);
    const store = await startStore(world, setup);
    const objectKeys = store.keyEncoder.encodeKeys(['key'], 'kv');
    const { directory } = store.runtime;
    await world.until(async () => (await directory.get(objectKeys))[0]?.nodeId === 'restarted');
    const [own] = await directory.get(objectKeys);
    let closing: Promise<void> | undefined;
    directory.find = async (_keys, onFound) => {
      closing = store.close();
      onFound(LocatedPages.of([[0, own as DataLocation]]));
      await world.sleep(5);
    };
    t.false(await store.get('key', new Uint8Array(PAGE_BYTES)));
    t.truthy(closing);
    await closing;
  },
);
