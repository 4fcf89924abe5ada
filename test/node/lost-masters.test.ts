import {
  AWAY,
  areAll,
  COUNT,
  clusterWith,
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
  TIERS,
} from '../_support/node/away-nodes.js';
import { PORT, type SimStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';

const HEAD = '10.0.0.1';

function hostOf(store: SimStore): string {
  return store.process.host.address;
}

simulated('lost masters: the master is lost at the same time', async (t, world) => {
  const addr = `${HEAD}:${PORT},10.0.0.2:${PORT}`;
  const head = await startNode(world, {}, HEAD, addr);
  const stores = [await startNode(world, {}, '10.0.0.2', addr), await startNode(world, {}, '10.0.0.3', addr)];
  const before = await startNode(world, DISK_AND_POOL, AWAY, addr);
  await areAll(world, [head, ...stores, before]);
  await setAll(before, PAGES);
  await world.sleep(2_000);
  head.process.kill();
  before.process.kill();
  await areAll(world, stores);
  const remover = stores[1] as SimStore;
  await deleteAll(remover, PAGES);
  await makeForget(remover);
  await world.sleep(NOTICED_AFTER_MS);
  const returned = await startNode(world, DISK_AND_POOL, AWAY, addr);
  await areAll(world, [...stores, returned]);
  t.is(await everReadable(world, [...stores, returned], PAGES), 0);
});

simulated('lost masters: the only master restarts as the node returns, and knows the node first', async (t, world) => {
  const { stores, remover, before } = await clusterWith(world, DISK_AND_POOL);
  before.process.kill();
  await areAll(world, stores);
  await deleteAll(remover, PAGES);
  await makeForget(remover);
  (stores[0] as SimStore).process.kill();
  await world.sleep(100);
  // The others come a little later than the node that returns.
  const others = stores.slice(1).map(({ process }) => process.host);
  for (const host of others) world.cutOneWay(host.address, hostOf(stores[0] as SimStore));
  const head = await startNode(world, {}, hostOf(stores[0] as SimStore));
  const returned = await startNode(world, DISK_AND_POOL, AWAY);
  await areAll(world, [head, returned]);
  await world.sleep(1_000);
  world.heal();
  const all = [head, ...stores.slice(1), returned];
  await areAll(world, all);
  t.is(await everReadable(world, all, PAGES), 0);
});

for (const [name, tier] of Object.entries(TIERS)) {
  simulated(`lost masters: a quick restart of a listed master loses nothing, ${name}`, async (t, world) => {
    const addr = `${AWAY}:${PORT},${HEAD}:${PORT}`;
    let away = await startNode(world, tier, AWAY, addr);
    const stores = [await startNode(world, {}, HEAD, addr), await startNode(world, {}, '10.0.0.2', addr)];
    await areAll(world, [...stores, away]);
    await setAll(away, KEPT);
    for (let round = 0; round < 3; round++) {
      await makeForget(stores[1] as SimStore);
      await world.sleep(NOTICED_AFTER_MS);
      away.process.kill();
      await world.sleep(round * 1_000);
      away = await startNode(world, tier, AWAY, addr);
      await areAll(world, [...stores, away]);
      await world.until(async () => (await readable(stores, KEPT)) === COUNT);
    }
    t.pass();
  });
}

for (const how of ['deleted', 'replaced, and evicted']) {
  simulated(`lost masters: the only master is down for minutes; contents are ${how}`, async (t, world) => {
    const { stores, remover, before } = await clusterWith(world, DISK_AND_POOL);
    const address = hostOf(stores[0] as SimStore);
    (stores[0] as SimStore).process.kill();
    await world.sleep(500);
    before.process.kill();
    await world.sleep(3_000);
    if (how === 'deleted') {
      const removed = await remover.delete([...PAGES]);
      t.log(`deleted: ${removed.filter((done) => done).length} of ${COUNT}`);
    } else {
      await setAll(remover, PAGES, 500);
      await remover.clear();
    }
    await remover.delete(Array.from({ length: 2_000 }, (_, i) => `unknown ${i}`));
    await world.sleep(3 * NOTICED_AFTER_MS);
    const head = await startNode(world, {}, address);
    await areAll(world, [head, ...stores.slice(1)]);
    const returned = await startNode(world, DISK_AND_POOL, AWAY);
    const all = [head, ...stores.slice(1), returned];
    await areAll(world, all);
    t.is(await everReadable(world, all, PAGES), 0);
  });
}
