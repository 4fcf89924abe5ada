import {
  AWAY,
  areAll,
  COUNT,
  clusterWith,
  computeAll,
  DISK,
  DISK_AND_POOL,
  deleteAll,
  everReadable,
  KEPT,
  keysOf,
  makeForget,
  NOTICED_AFTER_MS,
  PAGES,
  POOL,
  readable,
  setAll,
  startNode,
  startNodes,
  TIERS,
} from '../_support/node/away-nodes.js';
import { drain } from '../_support/node/drain-node.js';
import { PAGE_BYTES, type SimStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const HEAD = '10.0.0.1';

for (const [name, tier] of Object.entries(TIERS)) {
  for (const [ids, id] of [
    ['a generated', {}],
    ['a fixed', { node_id: 'away' }],
  ] as const) {
    simulated(`away: deleted, ${name}, ${ids} node id, killed`, async (t, world) => {
      const config = { ...tier, ...id };
      const { stores, remover, before } = await clusterWith(world, config);
      before.process.kill();
      await areAll(world, stores);
      await deleteAll(remover, PAGES);
      await makeForget(remover);
      const returned = await startNode(world, config, AWAY);
      await areAll(world, [...stores, returned]);
      t.is(await everReadable(world, [...stores, returned], PAGES), 0);
    });

    simulated(`away: repeated quick restarts lose nothing, ${name}, ${ids} node id`, async (t, world) => {
      const config = { ...tier, ...id };
      const stores = await startNodes(world);
      let away = await startNode(world, config, AWAY);
      await areAll(world, [...stores, away]);
      await setAll(away, KEPT);
      for (let round = 0; round < 4; round++) {
        await makeForget(stores[0] as SimStore);
        await world.sleep(NOTICED_AFTER_MS);
        if (round % 2 === 0) away.process.kill();
        else await away.close();
        await world.sleep(200 * round);
        away = await startNode(world, config, AWAY);
        await world.until(async () => (await readable(stores, KEPT)) === COUNT);
        t.is(await readable([away], KEPT), COUNT);
        await world.sleep(3_000);
      }
    });
  }

  simulated(`away: repeated crashes before pages are settled, ${name}`, async (t, world) => {
    const { stores, remover, before } = await clusterWith(world, tier);
    before.process.kill();
    await areAll(world, stores);
    await deleteAll(remover, PAGES);
    await makeForget(remover);
    for (const ms of [0, 1, 5, 10, 20, 30, 50, 60, 80, 120, 300, 1_000]) {
      const started = await startNode(world, tier, AWAY);
      await world.sleep(ms);
      started.process.kill();
      await areAll(world, stores);
    }
    const returned = await startNode(world, tier, AWAY);
    await areAll(world, [...stores, returned]);
    t.is(await everReadable(world, [...stores, returned], PAGES), 0);
  });

  simulated(`away: loss of power while it returns, ${name}`, async (t, world) => {
    const { stores, remover, before } = await clusterWith(world, tier);
    const host = before.process.host;
    await world.sleep(10_000);
    before.process.kill();
    await areAll(world, stores);
    await deleteAll(remover, PAGES);
    await makeForget(remover);
    await world.sleep(NOTICED_AFTER_MS);
    for (const ms of [10, 40, 50, 60, 80, 100, 150, 300, 1_000]) {
      await startNode(world, tier, AWAY);
      await world.sleep(ms);
      host.restart();
      await areAll(world, stores);
    }
    const returned = await startNode(world, tier, AWAY);
    await areAll(world, [...stores, returned]);
    t.is(await everReadable(world, [...stores, returned], PAGES), 0);
  });
}

simulated('away: deleted, disk and pool with different notes', async (t, world) => {
  const { stores, remover, before } = await clusterWith(world, DISK_AND_POOL);
  await before.close();
  await areAll(world, stores);
  await deleteAll(remover, PAGES);
  await makeForget(remover);
  await world.sleep(NOTICED_AFTER_MS);
  // Meanwhile it runs with its pool only: the disk's note stays behind.
  const between = await startNode(world, POOL, AWAY);
  await areAll(world, [...stores, between]);
  await world.sleep(3_000);
  await setAll(between, KEPT);
  await between.close();
  await areAll(world, stores);
  const returned = await startNode(world, DISK_AND_POOL, AWAY);
  await areAll(world, [...stores, returned]);
  t.is(await everReadable(world, [...stores, returned], PAGES), 0);
});

simulated('away: a deleted page that another node sets anew before the return', async (t, world) => {
  const { stores, remover, before } = await clusterWith(world, DISK_AND_POOL);
  before.process.kill();
  await areAll(world, stores);
  await deleteAll(remover, PAGES);
  await makeForget(remover);
  await setAll(remover, PAGES, 500);
  const returned = await startNode(world, DISK_AND_POOL, AWAY);
  const all = [...stores, returned];
  await areAll(world, all);
  for (let look = 0; look < 10; look++) {
    for (const store of all) {
      for (const [i, key] of PAGES.entries()) {
        const bytes = await store.get(key);
        if (bytes === null) continue;
        t.deepEqual(Buffer.from(bytes), Buffer.from(content(500 + i, PAGE_BYTES)));
      }
    }
    await world.sleep(300);
  }
  t.is(await readable(all, PAGES), COUNT);
});

simulated('away: computed pages that were deleted', async (t, world) => {
  const stores = await startNodes(world);
  const before = await startNode(world, DISK_AND_POOL, AWAY);
  await areAll(world, [...stores, before]);
  await computeAll(before, PAGES);
  await world.sleep(1_000);
  t.is(await readable([before], PAGES), COUNT);
  before.process.kill();
  await areAll(world, stores);
  const remover = stores[1] as SimStore;
  await deleteAll(remover, PAGES);
  await makeForget(remover);
  const returned = await startNode(world, DISK_AND_POOL, AWAY);
  await areAll(world, [...stores, returned]);
  t.is(await everReadable(world, [...stores, returned], PAGES), 0);
});

simulated('away: the owners restart one by one while the node is away, before the deletion', async (t, world) => {
  const { stores, before } = await clusterWith(world, DISK_AND_POOL);
  before.process.kill();
  await areAll(world, stores);
  const now = [...stores];
  for (const i of [1, 2]) {
    await (now[i] as SimStore).close();
    now[i] = await startNode(world, {}, (now[i] as SimStore).process.host.address);
    await areAll(world, now);
  }
  await world.sleep(5_000);
  await deleteAll(now[1] as SimStore, PAGES);
  await makeForget(now[1] as SimStore);
  const returned = await startNode(world, DISK_AND_POOL, AWAY);
  await areAll(world, [...now, returned]);
  t.is(await everReadable(world, [...now, returned], PAGES), 0);
});

simulated('away: owners that join while the node is away, after the deletion', async (t, world) => {
  const { stores, remover, before } = await clusterWith(world, DISK_AND_POOL);
  before.process.kill();
  await areAll(world, stores);
  await deleteAll(remover, PAGES);
  await makeForget(remover);
  const now = [...stores, await startNode(world), await startNode(world)];
  await areAll(world, now);
  await world.sleep(10_000);
  const returned = await startNode(world, DISK_AND_POOL, AWAY);
  await areAll(world, [...now, returned]);
  t.is(await everReadable(world, [...now, returned], PAGES), 0);
});

simulated('away: members that own, in the end, what was deleted before they joined', async (t, world) => {
  // Cause: nodes that joined were told what was void of the keys that they owned then, and members that came to own
  // more later were told nothing.
  const config = { directory_replicas: 1 };
  const stores = await startNodes(world, 3, config);
  const before = await startNode(world, { ...config, ...DISK_AND_POOL }, AWAY);
  await areAll(world, [...stores, before]);
  // More keys than a node remembers to have been told of.
  const deleted = Array.from({ length: 400 }, (_, i) => `deleted ${i}`);
  await setAll(before, deleted);
  await world.sleep(1_000);
  before.process.kill();
  await areAll(world, stores);
  await deleteAll(stores[1] as SimStore, deleted);
  const now = [...stores];
  for (let i = 0; i < 8; i++) now.push(await startNode(world, config));
  await areAll(world, now);
  await world.sleep(10_000);
  for (const left of now.splice(1, 2)) await left.close();
  await areAll(world, now);
  await world.sleep(10_000);
  const returned = await startNode(world, { ...config, ...DISK_AND_POOL }, AWAY);
  await areAll(world, [...now, returned]);
  t.is(await everReadable(world, [...now, returned], deleted), 0);
});

simulated('away: a rolling restart of a cluster of disks, that forgets, loses nothing', async (t, world) => {
  const stores: SimStore[] = [];
  for (let i = 1; i <= 4; i++) stores.push(await startNode(world, DISK, `10.0.0.${i}`));
  await areAll(world, stores);
  for (const [i, store] of stores.entries()) await setAll(store, keysOf(`of ${i}`));
  await makeForget(stores[0] as SimStore);
  await world.sleep(NOTICED_AFTER_MS);
  for (let i = 0; i < 4; i++) {
    await (stores[i] as SimStore).close();
    stores[i] = await startNode(world, DISK, `10.0.0.${i + 1}`);
    await areAll(world, stores);
    await world.sleep(3_000);
  }
  for (let i = 0; i < 4; i++) {
    await world.until(async () => (await readable(stores, keysOf(`of ${i}`))) === COUNT);
  }
  t.pass();
});

simulated('away: a node of its own, that forgets, loses nothing by a restart', async (t, world) => {
  let alone = await startNode(world, DISK_AND_POOL, HEAD);
  await setAll(alone, KEPT);
  await makeForget(alone);
  await alone.close();
  alone = await startNode(world, DISK_AND_POOL, HEAD);
  await world.until(async () => (await readable([alone], KEPT)) === COUNT);
  t.pass();
});

simulated('away: a node of its own, that forgets later, loses nothing of before', async (t, world) => {
  let alone = await startNode(world, DISK_AND_POOL, HEAD);
  await setAll(alone, KEPT);
  await world.sleep(NOTICED_AFTER_MS);
  await alone.close();
  alone = await startNode(world, DISK_AND_POOL, HEAD);
  await world.sleep(NOTICED_AFTER_MS);
  await makeForget(alone);
  t.is(await readable([alone], KEPT), COUNT);
  const other = await startNode(world);
  await areAll(world, [alone, other]);
  await world.sleep(NOTICED_AFTER_MS);
  await makeForget(other);
  t.is(await readable([alone], KEPT), COUNT);
  t.is(await readable([other], KEPT), COUNT);
  await world.sleep(300_000);
  t.is(await readable([other], KEPT), COUNT);
});

simulated('away: two nodes on one host, with a disk each, restart', async (t, world) => {
  const stores = await startNodes(world);
  const configs = [
    { ...DISK, disk_path: '/cache/0' },
    { ...DISK, disk_path: '/cache/1' },
  ];
  let nodes = [await startNode(world, configs[0], AWAY), await startNode(world, configs[1], AWAY)];
  await areAll(world, [...stores, ...nodes]);
  await setAll(nodes[0] as SimStore, KEPT);
  await setAll(nodes[1] as SimStore, PAGES);
  await makeForget(stores[0] as SimStore);
  await world.sleep(NOTICED_AFTER_MS);
  for (const node of nodes) node.process.kill();
  await areAll(world, stores);
  nodes = [await startNode(world, configs[1], AWAY), await startNode(world, configs[0], AWAY)];
  await areAll(world, [...stores, ...nodes]);
  await world.until(async () => (await readable(stores, [...KEPT, ...PAGES])) === 2 * COUNT);
  t.pass();
});

simulated('away: a drained node that comes back', async (t, world) => {
  const { stores, remover, before } = await clusterWith(world, DISK_AND_POOL, [...PAGES, ...KEPT]);
  await drain(world, before);
  await before.drained;
  before.process.kill();
  await areAll(world, stores);
  await deleteAll(remover, PAGES);
  await makeForget(remover);
  const returned = await startNode(world, DISK_AND_POOL, AWAY);
  await areAll(world, [...stores, returned]);
  t.is(await everReadable(world, [...stores, returned], PAGES), 0);
});

for (const replicas of [1, 3, 16]) {
  simulated(`away: ${replicas} directory replicas`, async (t, world) => {
    const shared = { directory_replicas: replicas };
    const stores = await startNodes(world, 3, shared);
    const before = await startNode(world, { ...DISK_AND_POOL, ...shared }, AWAY);
    await areAll(world, [...stores, before]);
    await setAll(before, PAGES);
    await world.sleep(1_000);
    before.process.kill();
    await areAll(world, stores);
    await deleteAll(stores[1] as SimStore, PAGES);
    await makeForget(stores[1] as SimStore);
    const returned = await startNode(world, { ...DISK_AND_POOL, ...shared }, AWAY);
    const all = [...stores, returned];
    await areAll(world, all);
    t.is(await everReadable(world, all, PAGES), 0);
    await setAll(returned, KEPT);
    t.is(await readable(stores, KEPT), COUNT);
  });
}

simulated('away: a storage node that was down, and its taken pages', async (t, world) => {
  const stores = await startNodes(world);
  const storage = { ...DISK, role: 'storage' };
  const before = await startNode(world, storage, AWAY);
  await areAll(world, [...stores, before]);
  const setter = stores[1] as SimStore;
  await setAll(setter, PAGES);
  await setAll(setter, KEPT);
  await world.sleep(5_000);
  before.process.kill();
  await areAll(world, stores);
  await deleteAll(setter, PAGES);
  await makeForget(setter);
  const returned = await startNode(world, storage, AWAY);
  const all = [...stores, returned];
  await areAll(world, all);
  t.is(await everReadable(world, all, PAGES), 0);
  t.is(await readable(stores, KEPT), COUNT);
});
