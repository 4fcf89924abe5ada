import {
  AWAY,
  areAll,
  COUNT,
  clearMany,
  clusterWith,
  computeAll,
  DISK,
  DISK_AND_POOL,
  deleteAll,
  everReadable,
  KEPT,
  makeForget,
  PAGES,
  readable,
  setAll,
  startNode,
  startNodes,
} from '../_support/node/away-nodes.js';
import { PAGE_BYTES, type SimStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

for (const jumpMs of [-86_400_000, 3_600_000]) {
  simulated(`clocks apart: the clock of the returning node jumps by ${jumpMs}`, async (t, world) => {
    const { stores, remover, before } = await clusterWith(world, DISK_AND_POOL);
    before.process.kill();
    await areAll(world, stores);
    await deleteAll(remover, PAGES);
    await makeForget(remover);
    before.process.host.time.jump(jumpMs);
    const returned = await startNode(world, DISK_AND_POOL, AWAY);
    await areAll(world, [...stores, returned]);
    t.is(await everReadable(world, [...stores, returned], PAGES), 0);
    await setAll(returned, KEPT);
    t.is(await readable(stores, KEPT), COUNT);
  });
}

for (const doesForget of [true, false]) {
  for (const computed of [true, false]) {
    simulated(
      `clocks apart: pages set by a clock that is an hour ahead, forgotten ${doesForget}, computed ${computed}`,
      async (t, world) => {
        const stores = await startNodes(world);
        world.process(AWAY).host.time.jump(3_600_000);
        const before = await startNode(world, DISK, AWAY);
        await areAll(world, [...stores, before]);
        if (computed) await computeAll(before, PAGES);
        else await setAll(before, PAGES);
        await world.sleep(1_000);
        before.process.kill();
        await areAll(world, stores);
        const remover = stores[1] as SimStore;
        await deleteAll(remover, PAGES);
        if (doesForget) await makeForget(remover);
        const returned = await startNode(world, DISK, AWAY);
        await areAll(world, [...stores, returned]);
        t.is(await everReadable(world, [...stores, returned], PAGES), 0);
      },
    );
  }
}

for (const doesForget of [true, false]) {
  simulated(
    `clocks apart: pages set by a clock that is an hour ahead, overwritten and evicted, forgotten ${doesForget}`,
    async (t, world) => {
      const stores = await startNodes(world);
      world.process(AWAY).host.time.jump(3_600_000);
      const before = await startNode(world, DISK, AWAY);
      await areAll(world, [...stores, before]);
      await setAll(before, PAGES);
      await world.sleep(1_000);
      before.process.kill();
      await areAll(world, stores);
      const setter = stores[1] as SimStore;
      if (doesForget) await clearMany(stores[2] as SimStore);
      await setAll(setter, PAGES, 500);
      const returned = await startNode(world, DISK, AWAY);
      const all = [...stores, returned];
      await areAll(world, all);
      for (let look = 0; look < 6; look++) {
        for (const store of all) {
          for (const [i, key] of PAGES.entries()) {
            const bytes = await store.get(key);
            if (bytes !== null) t.deepEqual(Buffer.from(bytes), Buffer.from(content(500 + i, PAGE_BYTES)));
          }
        }
        await world.sleep(500);
      }
      t.is(await readable(all, PAGES), COUNT);
    },
  );
}
