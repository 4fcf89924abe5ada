import {
  AWAY,
  areAll,
  COUNT,
  type Config,
  computeAll,
  contentsOf,
  DISK,
  DISK_AND_POOL,
  deleteAll,
  everReadable,
  KEPT,
  PAGES,
  readable,
  setAll,
  startNode,
  startNodes,
} from '../_support/node/away-nodes.js';
import { PAGE_BYTES, type SimStore } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const OTHER = '10.0.0.8';
const MINUTES_MS = 240_000;
const HOUR_MS = 3_600_000;
/** The contents of pages that are set anew begin with this one. */
const NEWEST = 500;

/** Starts the node that goes away, with a clock that is ahead, and has it set pages. */
async function setAhead(
  world: TestWorld,
  stores: readonly SimStore[],
  { aheadMs, config, set = setAll }: { aheadMs: number; config: Config; set?: typeof computeAll },
): Promise<SimStore> {
  world.process(AWAY).host.time.jump(aheadMs);
  const ahead = await startNode(world, config, AWAY);
  await areAll(world, [...stores, ahead]);
  await set(ahead, PAGES);
  return ahead;
}

for (const how of ['deleted', 'set'] as const) {
  simulated(`heard clocks: pages are ${how} when all that had heard of a clock have restarted`, async (t, world) => {
    const shared = { directory_replicas: 1 };
    const config = { ...DISK, ...shared };
    const stores = await startNodes(world, 3, shared);
    const ahead = await setAhead(world, stores, { aheadMs: MINUTES_MS, config });
    await world.sleep(1_000);
    await ahead.close();
    await areAll(world, stores);
    for (let i = 0; i < 3; i++) {
      const { address } = (stores[i] as SimStore).process.host;
      await (stores[i] as SimStore).close();
      stores[i] = await startNode(world, shared, address);
      await areAll(world, stores);
      await world.sleep(2_000);
    }
    const remover = stores[1] as SimStore;
    if (how === 'deleted') await deleteAll(remover, PAGES);
    else await setAll(remover, PAGES, NEWEST);
    const all = [...stores, await startNode(world, config, AWAY)];
    await areAll(world, all);
    t.deepEqual(await contentsOf(world, all, NEWEST), { newest: how === 'deleted' ? 0 : COUNT, older: 0 });
  });
}

simulated('heard clocks: nodes that have joined since set pages', async (t, world) => {
  const shared = { directory_replicas: 1 };
  const config = { ...DISK, ...shared };
  const stores = await startNodes(world, 2, shared);
  const ahead = await setAhead(world, stores, { aheadMs: MINUTES_MS, config });
  await ahead.close();
  await areAll(world, stores);
  for (let i = 0; i < 12; i++) stores.push(await startNode(world, shared));
  await areAll(world, stores);
  await world.sleep(5_000);
  for (const [i, key] of PAGES.entries()) {
    t.true(await (stores[2 + (i % 12)] as SimStore).set(key, content(NEWEST + i, PAGE_BYTES)));
  }
  const all = [...stores, await startNode(world, config, AWAY)];
  await areAll(world, all);
  t.deepEqual(await contentsOf(world, all, NEWEST), { newest: COUNT, older: 0 });
});

for (const [aheadMs, how] of [
  [100, 'deleted'],
  [900, 'deleted'],
  [900, 'computed and deleted'],
  [900, 'computed and set'],
] as const) {
  simulated(`heard clocks: pages are ${how} just after a node has left, ${aheadMs} ms ahead`, async (t, world) => {
    const stores = await startNodes(world);
    const set = how.startsWith('computed') ? computeAll : setAll;
    const ahead = await setAhead(world, stores, { aheadMs, config: DISK, set });
    await ahead.close();
    await areAll(world, stores);
    const remover = stores[1] as SimStore;
    if (how.endsWith('set')) await setAll(remover, PAGES, NEWEST);
    else await deleteAll(remover, PAGES);
    const all = [...stores, await startNode(world, DISK, AWAY)];
    await areAll(world, all);
    t.deepEqual(await contentsOf(world, all, NEWEST), { newest: how.endsWith('set') ? COUNT : 0, older: 0 });
  });
}

for (const isDown of [false, true]) {
  simulated(
    `heard clocks: placed pages are cleared by a restarted node whose clock is behind, storage node down ${isDown}`,
    async (t, world) => {
      const stores = await startNodes(world);
      const storage = { ...DISK, role: 'storage' };
      let taker = await startNode(world, storage, OTHER);
      const config = { node_id: 'writer', write_policy: 'storage' };
      let writer = await startNode(world, config, AWAY);
      await areAll(world, [...stores, taker, writer]);
      await setAll(writer, PAGES);
      await world.until(() => writer.stats().placement?.unplacedPages === 0);
      await world.sleep(2_000);
      writer.process.kill();
      await areAll(world, [...stores, taker]);
      if (isDown) taker.process.kill();
      if (isDown) await areAll(world, stores);
      world.process(AWAY).host.time.jump(-HOUR_MS);
      writer = await startNode(world, config, AWAY);
      await areAll(world, [...stores, ...(isDown ? [] : [taker]), writer]);
      await writer.clear();
      if (isDown) taker = await startNode(world, storage, OTHER);
      const all = [...stores, writer, taker];
      await areAll(world, all);
      if (isDown) await world.sleep(6_000);
      t.is(await everReadable(world, all, PAGES), 0);
    },
  );
}

simulated('heard clocks: nodes that come and go, an hour behind, cost no pages', async (t, world) => {
  const stores = await startNodes(world);
  const away = await startNode(world, DISK_AND_POOL, AWAY);
  await areAll(world, [...stores, away]);
  await setAll(away, KEPT);
  await away.close();
  await areAll(world, stores);
  world.process(OTHER).host.time.jump(-HOUR_MS);
  const returned = await startNode(world, DISK_AND_POOL, AWAY);
  for (let round = 0; round < 40; round++) {
    const guest = await startNode(world, {}, OTHER);
    await world.sleep(1_000);
    guest.process.kill();
    await world.sleep(1_500);
    await (stores[0] as SimStore).delete(Array.from({ length: 300 }, (_, i) => `unknown ${round} ${i}`));
  }
  await areAll(world, [...stores, returned]);
  await world.until(async () => (await readable(stores, KEPT)) === COUNT);
  t.pass();
});
