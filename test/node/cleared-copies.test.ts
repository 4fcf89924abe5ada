import { type SimStore, startCluster, TTL_S } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const PAGE = 64 * 1024;
const SMALL = { global_segment_size: '1mb', reuse_quarantine_ms: 0 };
const POOL_PAGES = 2 ** 20 / PAGE;

simulated('clear: the copy of an evicted page goes, also on a node that was cut off meanwhile', async (t, world) => {
  // Cause: the owners did not know the version of a page that had been evicted when it was cleared, and took its copy again.
  const [owner, copier] = (await startCluster(world, 2, SMALL)) as [SimStore, SimStore];
  t.true(await owner.set('page', content(1, PAGE)));
  t.deepEqual(await copier.pin(['page'], { forMs: 1 }), [true]);
  t.is(copier.stats().poolEntries, 1);
  world.isolate(copier.process.host.address);
  await world.until(() => owner.stats().members === 1);
  for (let i = 0; i < 2 * POOL_PAGES; i++) t.true(await owner.set(`other ${i}`, content(100 + i, PAGE)));
  await owner.clear();
  world.heal();
  await world.until(() => [owner, copier].every((store) => store.stats().members === 2));
  await world.sleep(5 * TTL_S * 1000);
  for (const store of [owner, copier]) t.is(await store.get('page'), null);
});
