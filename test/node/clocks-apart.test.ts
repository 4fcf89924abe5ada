import {
  AWAY,
  areAll,
  COUNT,
  clearMany,
  clusterWith,
  computeAll,
  contentsOf,
  DISK,
  DISK_AND_POOL,
  deleteAll,
  everReadable,
  KEPT,
  makeForget,
  NOTICED_AFTER_MS,
  PAGES,
  POOL,
  readable,
  setAll,
  startNode,
  startNodes,
} from '../_support/node/away-nodes.js';
import { PAGE_BYTES, type SimStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

/** The host of a node whose clock is wrong. */
const OTHER = '10.0.0.8';

for (const jumpMs of [-86_400_000, 240_000]) {
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
      `clocks apart: pages set by a clock that is minutes ahead, forgotten ${doesForget}, computed ${computed}`,
      async (t, world) => {
        const stores = await startNodes(world);
        world.process(AWAY).host.time.jump(240_000);
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
    `clocks apart: pages set by a clock that is minutes ahead, overwritten and evicted, forgotten ${doesForget}`,
    async (t, world) => {
      const stores = await startNodes(world);
      world.process(AWAY).host.time.jump(240_000);
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

for (const [name, tier] of Object.entries({ disk: DISK, pool: POOL })) {
  for (const jumpMs of [240_000, -240_000, 5_000]) {
    const shared = { directory_replicas: 1 };

    simulated(`clocks apart: a clock jumps by ${jumpMs} while its node sets pages, ${name}`, async (t, world) => {
      const stores = await startNodes(world, 3, shared);
      const before = await startNode(world, { ...tier, ...shared }, AWAY);
      await areAll(world, [...stores, before]);
      await setAll(before, PAGES);
      before.process.host.time.jump(jumpMs);
      await setAll(before, PAGES, 300);
      await world.sleep(1_000);
      before.process.kill();
      await areAll(world, stores);
      await clearMany(stores[2] as SimStore);
      await setAll(stores[1] as SimStore, PAGES, 600);
      const all = [...stores, await startNode(world, { ...tier, ...shared }, AWAY)];
      await areAll(world, all);
      t.is((await contentsOf(world, all, 600)).older, 0);
      t.is(await readable(all, PAGES), COUNT);
    });

    simulated(`clocks apart: pages are deleted by a clock that is behind by ${jumpMs}, ${name}`, async (t, world) => {
      const stores = await startNodes(world, 2, shared);
      world.process(OTHER).host.time.jump(-jumpMs);
      const deleter = await startNode(world, shared, OTHER);
      const before = await startNode(world, { ...tier, ...shared }, AWAY);
      await areAll(world, [...stores, deleter, before]);
      await setAll(before, PAGES);
      await world.sleep(1_000);
      before.process.kill();
      await areAll(world, [...stores, deleter]);
      await deleteAll(deleter, PAGES);
      const all = [...stores, deleter, await startNode(world, { ...tier, ...shared }, AWAY)];
      await areAll(world, all);
      t.is(await everReadable(world, all, PAGES), 0);
    });
  }

  simulated(`clocks apart: a node whose clock is years behind costs no pages, ${name}`, async (t, world) => {
    const stores = await startNodes(world);
    const holder = await startNode(world, tier, AWAY);
    await areAll(world, [...stores, holder]);
    await setAll(holder, PAGES);
    await world.sleep(NOTICED_AFTER_MS);
    await makeForget(stores[0] as SimStore);
    world.process(OTHER).host.time.jump(-5 * 31_536_000_000);
    const behind = await startNode(world, {}, OTHER);
    const all = [...stores, holder, behind];
    await areAll(world, all);
    await world.sleep(30_000);
    t.is(await readable(all, PAGES), COUNT);
    await setAll(stores[1] as SimStore, PAGES, 200);
    await setAll(behind, PAGES, 400);
    t.is((await contentsOf(world, all, 400)).older, 0);
    t.is(await readable(all, PAGES), COUNT);
  });

  simulated(`clocks apart: writers take turns while a holder restarts, ${name}`, async (t, world) => {
    const stores = await startNodes(world, 2);
    world.process(OTHER).host.time.jump(240_000);
    const ahead = await startNode(world, {}, OTHER);
    let holder = await startNode(world, tier, AWAY);
    await areAll(world, [...stores, ahead, holder]);
    for (let round = 0; round < 6; round++) {
      await setAll([holder, ahead, stores[1]][round % 3] as SimStore, PAGES, 100 * round);
      if (round % 2 === 1) {
        holder.process.kill();
        if (round % 4 === 1) await areAll(world, [...stores, ahead]);
        holder = await startNode(world, tier, AWAY);
        await areAll(world, [...stores, ahead, holder]);
      }
      t.is((await contentsOf(world, [...stores, ahead, holder], 100 * round)).older, 0);
    }
  });
}
