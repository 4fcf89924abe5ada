import {
  AWAY,
  areAll,
  COUNT,
  clearMany,
  clusterWith,
  DISK,
  DISK_AND_POOL,
  deleteAll,
  everReadable,
  KEPT,
  makeForget,
  NOTICED_AFTER_MS,
  PAGES,
  readable,
  setAll,
  startNode,
  startNodes,
  TIERS,
} from '../_support/node/away-nodes.js';
import { PORT, type SimStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';

const HEAD = '10.0.0.1';

simulated('cut off: copies on a node that is cut off, whose original is cleared', async (t, world) => {
  const stores = await startNodes(world);
  const away = await startNode(world, { promote_hot_reads: true }, AWAY);
  const all = [...stores, away];
  await areAll(world, all);
  const setter = stores[1] as SimStore;
  await setAll(setter, PAGES);
  for (let i = 0; i < 20; i++) await readable([away], PAGES);
  await world.sleep(1_000);
  world.isolate(AWAY);
  await areAll(world, stores);
  await setter.clear();
  // Copies are forgotten by as many clears of other pages.
  await clearMany(setter);
  world.heal();
  await areAll(world, all);
  await world.until(async () => (await readable(all, PAGES)) === 0);
  t.is(await everReadable(world, all, PAGES), 0);
});

for (const isAsleep of [false, true]) {
  simulated(`cut off: a node whose host stands still, asleep ${isAsleep}`, async (t, world) => {
    const { stores, remover, before: away } = await clusterWith(world, {});
    away.process.host.freeze({ isAsleep });
    await areAll(world, stores);
    await deleteAll(remover, PAGES);
    await makeForget(remover);
    await world.sleep(NOTICED_AFTER_MS);
    away.process.host.thaw();
    const all = [...stores, away];
    await areAll(world, all);
    await world.until(async () => (await readable(all, PAGES)) === 0);
    t.is(await everReadable(world, all, PAGES), 0);
  });
}

simulated('cut off: a node whose process stands still', async (t, world) => {
  const { stores, remover, before: away } = await clusterWith(world, {});
  away.process.host.stopAll();
  await areAll(world, stores);
  await deleteAll(remover, PAGES);
  await makeForget(remover);
  await world.sleep(NOTICED_AFTER_MS);
  away.process.host.continueAll();
  const all = [...stores, away];
  await areAll(world, all);
  await world.until(async () => (await readable(all, PAGES)) === 0);
  t.is(await everReadable(world, all, PAGES), 0);
});

/** A node that comes back while it is cut off, and is a cluster of its own by then. */
for (const [name, tier] of Object.entries(TIERS)) {
  simulated(`cut off: a listed master that comes back cut off from the others, ${name}`, async (t, world) => {
    const addr = `${AWAY}:${PORT},${HEAD}:${PORT}`;
    const before = await startNode(world, tier, AWAY, addr);
    const stores = [await startNode(world, {}, HEAD, addr), await startNode(world, {}, '10.0.0.2', addr)];
    await areAll(world, [...stores, before]);
    await setAll(before, PAGES);
    await world.sleep(1_000);
    before.process.kill();
    await areAll(world, stores);
    const remover = stores[1] as SimStore;
    await deleteAll(remover, PAGES);
    await makeForget(remover);
    world.isolate(AWAY);
    const returned = await startNode(world, tier, AWAY, addr);
    await world.sleep(30_000);
    world.heal();
    const all = [...stores, returned];
    await areAll(world, all);
    t.is(await everReadable(world, all, PAGES), 0);
  });
}

simulated('cut off: a listed master that is cut off, and goes on', async (t, world) => {
  const addr = `${AWAY}:${PORT},${HEAD}:${PORT}`;
  const away = await startNode(world, {}, AWAY, addr);
  const stores = [await startNode(world, {}, HEAD, addr), await startNode(world, {}, '10.0.0.2', addr)];
  const all = [...stores, away];
  await areAll(world, all);
  await setAll(away, PAGES);
  await world.sleep(1_000);
  world.isolate(AWAY);
  await areAll(world, stores);
  await deleteAll(stores[1] as SimStore, PAGES);
  await makeForget(stores[1] as SimStore);
  await world.sleep(NOTICED_AFTER_MS);
  world.heal();
  await areAll(world, all);
  await world.until(async () => (await readable(all, PAGES)) === 0);
  t.is(await everReadable(world, all, PAGES), 0);
});

for (const isListed of [false, true]) {
  simulated(`cut off: a node that has set pages before it joins, listed ${isListed}`, async (t, world) => {
    const addr = isListed ? `${AWAY}:${PORT},${HEAD}:${PORT}` : `${HEAD}:${PORT}`;
    const stores = [await startNode(world, {}, HEAD, addr), await startNode(world, {}, '10.0.0.2', addr)];
    await areAll(world, stores);
    world.process(AWAY);
    world.isolate(AWAY);
    const away = await startNode(world, {}, AWAY, addr);
    await setAll(away, PAGES);
    await world.sleep(5_000);
    const remover = stores[1] as SimStore;
    // The newest content, and then none.
    await setAll(remover, PAGES, 500);
    await deleteAll(remover, PAGES);
    await makeForget(remover);
    world.heal();
    const all = [...stores, away];
    await areAll(world, all);
    t.is(await everReadable(world, all, PAGES), 0);
  });
}

simulated('cut off: two cut-off nodes together, both owners of some keys', async (t, world) => {
  const addr = `${AWAY}:${PORT},${HEAD}:${PORT}`;
  const away = [await startNode(world, {}, AWAY, addr), await startNode(world, {}, '10.0.0.8', addr)];
  const stores = [await startNode(world, {}, HEAD, addr), await startNode(world, {}, '10.0.0.2', addr)];
  const all = [...stores, ...away];
  await areAll(world, all);
  await setAll(away[0] as SimStore, PAGES);
  await world.sleep(1_000);
  world.isolate(AWAY, '10.0.0.8');
  await areAll(world, stores);
  await areAll(world, away);
  await deleteAll(stores[1] as SimStore, PAGES);
  await makeForget(stores[1] as SimStore);
  world.heal();
  await areAll(world, all);
  await world.sleep(6_000);
  t.is(await everReadable(world, all, PAGES), 0);
});

simulated('cut off: a node that others do not reach, but its master does', async (t, world) => {
  const { stores, remover, before: away } = await clusterWith(world, {});
  for (const { process } of stores.slice(1)) {
    world.cutOneWay(process.host.address, AWAY);
    world.cutOneWay(AWAY, process.host.address);
  }
  await world.sleep(1_000);
  await remover.delete([...PAGES]);
  await remover.delete(Array.from({ length: 2_000 }, (_, i) => `unknown ${i}`));
  await world.sleep(NOTICED_AFTER_MS);
  world.heal();
  const all = [...stores, away];
  await areAll(world, all);
  await world.sleep(6_000);
  t.is(await everReadable(world, all, PAGES), 0);
});

simulated('cut off: a node that finds no master for a minute, and then goes on for long', async (t, world) => {
  const { stores, before } = await clusterWith(world, DISK, KEPT);
  await before.close();
  await areAll(world, stores);
  world.isolate(AWAY);
  const returned = await startNode(world, DISK, AWAY);
  await world.sleep(40_000);
  world.heal();
  const all = [...stores, returned];
  await areAll(world, all);
  await world.until(async () => (await readable(stores, KEPT)) === COUNT);
  await world.sleep(NOTICED_AFTER_MS);
  // It has been a member again for a minute; nothing of this has passed it by.
  await makeForget(stores[0] as SimStore);
  t.is(await readable([returned], KEPT), COUNT);
  await world.sleep(330_000);
  t.is(await readable(stores, KEPT), COUNT);
});

simulated('cut off: a node whose filling is refused for long settles nevertheless', async (t, world) => {
  const { stores, remover, before } = await clusterWith(world, DISK_AND_POOL, KEPT);
  before.process.kill();
  await areAll(world, stores);
  // One member does not hear the node that returns, for longer than that waits.
  const deaf = (stores[2] as SimStore).process.host.address;
  world.cutOneWay(AWAY, deaf);
  const returned = await startNode(world, DISK_AND_POOL, AWAY);
  const all = [...stores, returned];
  await areAll(world, all);
  await world.sleep(40_000);
  world.heal();
  await world.sleep(NOTICED_AFTER_MS + 20_000);
  await makeForget(remover);
  await world.sleep(330_000);
  t.is(await readable(stores, KEPT), COUNT);
});

simulated('cut off: pages set before the node is settled are found when their owner dies', async (t, world) => {
  const shared = { directory_replicas: 1 };
  const stores = await startNodes(world, 4, shared);
  const config = { ...DISK, ...shared };
  const before = await startNode(world, config, AWAY);
  await areAll(world, [...stores, before]);
  await setAll(before, KEPT);
  await before.close();
  await areAll(world, stores);
  // One member does not hear the node for a while: it is not settled.
  world.cutOneWay(AWAY, (stores[3] as SimStore).process.host.address);
  const returned = await startNode(world, config, AWAY);
  await areAll(world, [...stores, returned]);
  await world.sleep(40_000);
  world.heal();
  await world.sleep(30_000);
  await setAll(returned, PAGES);
  t.is(await readable(stores, PAGES), COUNT);
  (stores[1] as SimStore).process.kill();
  const left = [stores[0], stores[2], stores[3], returned] as SimStore[];
  await areAll(world, left);
  await world.sleep(10_000);
  t.is(await readable(left.slice(0, 3), PAGES), COUNT);
});

simulated('cut off: two nodes come back together, and meet the others when they have settled', async (t, world) => {
  const addr = `${AWAY}:${PORT},${HEAD}:${PORT}`;
  const second = '10.0.0.8';
  const before = [await startNode(world, DISK, AWAY, addr), await startNode(world, DISK, second, addr)];
  const stores = [await startNode(world, {}, HEAD, addr), await startNode(world, {}, '10.0.0.2', addr)];
  await areAll(world, [...stores, ...before]);
  await setAll(before[0] as SimStore, PAGES);
  await world.sleep(1_000);
  for (const node of before) node.process.kill();
  await areAll(world, stores);
  await deleteAll(stores[1] as SimStore, PAGES);
  await makeForget(stores[1] as SimStore);
  world.isolate(AWAY, second);
  const returned = [await startNode(world, DISK, AWAY, addr), await startNode(world, DISK, second, addr)];
  await areAll(world, returned);
  await world.sleep(NOTICED_AFTER_MS);
  world.heal();
  const all = [...stores, ...returned];
  await areAll(world, all);
  t.is(await everReadable(world, all, PAGES), 0);
});
