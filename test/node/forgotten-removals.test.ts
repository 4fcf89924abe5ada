import {
  AWAY,
  areAll,
  COUNT,
  DISK,
  everReadable,
  KEPT,
  keysOf,
  makeForget,
  NOTICED_AFTER_MS,
  POOL,
  readable,
  setAll,
  startNode,
  startNodes,
} from '../_support/node/away-nodes.js';
import { PAGE_BYTES, type SimStore, startCluster, startStore } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const DELETED = keysOf('deleted');
const REPLACED = keysOf('replaced');
const TIERS = { 'on its disk': DISK, 'in its pool': POOL };

/** Starts a node with these tiers, has it set the pages, and takes it away again. */
async function leavePages(
  world: TestWorld,
  stores: readonly SimStore[],
  config: Record<string, unknown>,
  leave = async (store: SimStore): Promise<void> => {
    await world.sleep(1_000);
    store.process.kill();
  },
): Promise<void> {
  const before = await startNode(world, config, AWAY);
  await areAll(world, [...stores, before]);
  for (const keys of [DELETED, REPLACED, KEPT]) await setAll(before, keys, 0);
  await leave(before);
  await areAll(world, stores);
}

/** Has pages removed and that forgotten while the node is away, and starts it again; returns all nodes. */
async function returnTooLate(
  world: TestWorld,
  stores: readonly SimStore[],
  config: Record<string, unknown>,
): Promise<SimStore[]> {
  const [remover] = stores as [SimStore];
  await removeBoth(remover);
  await makeForget(remover);
  const all = [...stores, await startNode(world, config, AWAY)];
  await areAll(world, all);
  return all;
}

/** Deletes some keys and replaces others; nobody has the new contents afterwards either. */
async function removeBoth(store: SimStore): Promise<void> {
  if ((await store.delete(DELETED)).includes(false)) throw new Error('not deleted');
  await setAll(store, REPLACED, 1000);
  await store.clear();
}

for (const [where, config] of Object.entries(TIERS)) {
  simulated(
    `forgotten removals: pages ${where} that were removed while a node was down stay away`,
    async (t, world) => {
      const stores = await startNodes(world);
      await leavePages(world, stores, config, (store) => store.close());
      const all = await returnTooLate(world, stores, config);
      t.is(await everReadable(world, all, [...DELETED, ...REPLACED]), 0);
    },
  );

  simulated(
    `forgotten removals: what is forgotten before a node goes down costs no page ${where}`,
    async (t, world) => {
      const stores = await startNodes(world);
      const before = await startNode(world, config, AWAY);
      await areAll(world, [...stores, before]);
      await setAll(before, KEPT, 0);
      await makeForget(stores[0] as SimStore);
      await world.sleep(NOTICED_AFTER_MS);
      before.process.kill();
      await areAll(world, stores);
      const returned = await startNode(world, config, AWAY);
      const all = [...stores, returned];
      await areAll(world, all);
      await world.until(async () => (await readable([stores[1] as SimStore], KEPT)) === COUNT);
      t.is(await readable([returned], KEPT), COUNT);
    },
  );

  simulated(`forgotten removals: a node that is killed before its pages ${where} are settled`, async (t, world) => {
    const stores = await startNodes(world);
    const before = await startNode(world, config, AWAY);
    await areAll(world, [...stores, before]);
    await setAll(before, DELETED, 0);
    await world.sleep(1_000);
    before.process.kill();
    await areAll(world, stores);
    const [remover] = stores as [SimStore];
    t.false((await remover.delete(DELETED)).includes(false));
    await makeForget(remover);
    // It becomes a member, and nobody answers it.
    const second = await startNode(world, config, AWAY);
    second.process.kill();
    await areAll(world, stores);
    const returned = await startNode(world, config, AWAY);
    const all = [...stores, returned];
    await areAll(world, all);
    t.is(await everReadable(world, all, DELETED), 0);
  });
}

for (const [where, tier] of Object.entries(TIERS)) {
  simulated(`forgotten removals: pages ${where} that only their own node owns in the directory`, async (t, world) => {
    const shared = { directory_replicas: 1 };
    const config = { ...tier, ...shared };
    const stores = [await startNode(world, shared), await startNode(world, shared)];
    await leavePages(world, stores, config, (store) => store.close());
    const all = await returnTooLate(world, stores, config);
    const returned = all.at(-1) as SimStore;
    t.is(await everReadable(world, all, [...DELETED, ...REPLACED]), 0);
    await setAll(returned, KEPT, 0);
    t.is(await readable(stores, KEPT), COUNT);
    await returned.close();
    await areAll(world, stores);
    const again = await startNode(world, config, AWAY);
    await areAll(world, [...stores, again]);
    await world.until(async () => (await readable(stores, KEPT)) === COUNT);
  });
}

simulated('forgotten removals: pages of a node that was cut off, and goes on, stay away', async (t, world) => {
  const stores = await startNodes(world);
  const away = await startNode(world, {}, AWAY);
  const all = [...stores, away];
  await areAll(world, all);
  for (const keys of [DELETED, REPLACED]) await setAll(away, keys, 0);
  await world.sleep(1_000);
  world.isolate(AWAY);
  await areAll(world, stores);
  const [remover] = stores as [SimStore];
  await removeBoth(remover);
  await makeForget(remover);
  world.heal();
  await areAll(world, all);
  await world.until(async () => (await readable(all, [...DELETED, ...REPLACED])) === 0);
  t.is(await everReadable(world, all, [...DELETED, ...REPLACED]), 0);
});

simulated('forgotten removals: a whole cluster that starts again finds the pages of its disks', async (t, world) => {
  const config = TIERS['on its disk'];
  const hosts = ['10.0.0.1', '10.0.0.2', '10.0.0.3'];
  const startAll = async (): Promise<SimStore[]> => {
    const stores: SimStore[] = [];
    for (const host of hosts) stores.push(await startNode(world, config, host));
    await areAll(world, stores);
    return stores;
  };
  const before = await startAll();
  await setAll(before[1] as SimStore, KEPT, 0);
  await makeForget(before[0] as SimStore);
  await world.sleep(1_000);
  for (const store of before) store.process.kill();
  const stores = await startAll();
  await world.until(async () => (await readable([stores[2] as SimStore], KEPT)) === COUNT);
  t.pass();
});

simulated('forgotten removals: a cluster that forgets nothing loses nothing', async (t, world) => {
  const stores = await startCluster(world, 2);
  const config = TIERS['on its disk'];
  const before = await startStore(world, { host: AWAY, config });
  await areAll(world, [...stores, before]);
  await setAll(before, KEPT, 0);
  await before.close();
  await areAll(world, stores);
  await makeForget(stores[0] as SimStore);
  const returned = await startStore(world, { host: AWAY, config });
  await areAll(world, [...stores, returned]);
  await world.until(async () => (await readable(stores, KEPT)) === COUNT);
  t.pass();
});

simulated('forgotten removals: nodes that have joined while another was down bring nothing back', async (t, world) => {
  const stores = await startNodes(world);
  const config = TIERS['on its disk'];
  await leavePages(world, stores, config);
  await removeBoth(stores[0] as SimStore);
  await makeForget(stores[0] as SimStore);
  stores.push(await startNode(world), await startNode(world));
  await areAll(world, stores);
  await world.sleep(10_000);
  const all = [...stores, await startNode(world, config, AWAY)];
  await areAll(world, all);
  t.is(await everReadable(world, all, [...DELETED, ...REPLACED]), 0);
});

simulated(
  'forgotten removals: a node with one id and a clock that was set back brings nothing back',
  async (t, world) => {
    const stores = await startNodes(world);
    const config = { ...TIERS['in its pool'], node_id: 'away' };
    await leavePages(world, stores, config);
    await removeBoth(stores[0] as SimStore);
    await makeForget(stores[0] as SimStore);
    world.hosts.get(AWAY)?.time.jump(-3_600_000);
    const all = [...stores, await startNode(world, config, AWAY)];
    await areAll(world, all);
    t.is(await everReadable(world, all, [...DELETED, ...REPLACED]), 0);
  },
);

simulated('forgotten removals: disk and pool of different times bring nothing back', async (t, world) => {
  const stores = await startNodes(world);
  const both = { ...TIERS['on its disk'], ...TIERS['in its pool'] };
  await leavePages(world, stores, both);
  await removeBoth(stores[0] as SimStore);
  const alone = await startNode(world, TIERS['in its pool'], AWAY);
  await areAll(world, [...stores, alone]);
  await world.sleep(1_000);
  await makeForget(stores[0] as SimStore);
  await world.sleep(NOTICED_AFTER_MS);
  await alone.close();
  await areAll(world, stores);
  const all = [...stores, await startNode(world, both, AWAY)];
  await areAll(world, all);
  t.is(await everReadable(world, all, [...DELETED, ...REPLACED]), 0);
});

simulated('forgotten removals: what was set since is found, also from the node that returns', async (t, world) => {
  const stores = await startNodes(world);
  const config = TIERS['on its disk'];
  await leavePages(world, stores, config);
  const [writer] = stores as [SimStore];
  t.false((await writer.delete(DELETED)).includes(false));
  await setAll(writer, DELETED, 500);
  await setAll(writer, REPLACED, 600);
  await makeForget(writer);
  const returned = await startNode(world, config, AWAY);
  const all = [...stores, returned];
  await areAll(world, all);
  for (let look = 0; look < 10; look++) {
    for (const store of all) {
      for (const [i, key] of DELETED.entries()) t.deepEqual(await store.get(key), content(500 + i, PAGE_BYTES));
      for (const [i, key] of REPLACED.entries()) t.deepEqual(await store.get(key), content(600 + i, PAGE_BYTES));
    }
    await world.sleep(500);
  }
});

simulated('forgotten removals: pages of a process that was stopped stay away', async (t, world) => {
  const stores = await startNodes(world);
  const away = await startNode(world, {}, AWAY);
  const all = [...stores, away];
  await areAll(world, all);
  for (const keys of [DELETED, REPLACED]) await setAll(away, keys, 0);
  away.process.stop();
  await areAll(world, stores);
  await removeBoth(stores[0] as SimStore);
  await makeForget(stores[0] as SimStore);
  away.process.continue();
  await areAll(world, all);
  await world.until(async () => (await readable(all, [...DELETED, ...REPLACED])) === 0);
  t.is(await everReadable(world, all, [...DELETED, ...REPLACED]), 0);
});

simulated('forgotten removals: a node that starts again many times keeps what is good', async (t, world) => {
  const stores = await startNodes(world);
  const config = TIERS['on its disk'];
  let node = await startNode(world, config, AWAY);
  await areAll(world, [...stores, node]);
  await setAll(node, KEPT, 0);
  await world.sleep(NOTICED_AFTER_MS);
  for (let round = 0; round < 5; round++) {
    node.process.kill();
    node = await startNode(world, config, AWAY);
    await areAll(world, [...stores, node]);
    await world.until(async () => (await readable(stores, KEPT)) === COUNT);
    await world.sleep(1_000);
  }
  t.is(await readable([node], KEPT), COUNT);
});
