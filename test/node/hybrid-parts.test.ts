import type { ExecutionContext } from 'ava';
import { PAGE_BYTES, type SimStore, startStore } from '../_support/node/simulated-stores.js';
import { TestHostPool } from '../_support/node/store-fixture.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const PAGES = 64;
const YIELD = { global_segment_size: PAGES * PAGE_BYTES, eviction_policy: 'yield', reuse_quarantine_ms: 0 };

function keysOf(name: string, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `${name}-${i}`);
}

/** Which of these pages the store has, in the main pool and in a further one. */
async function partsOf(store: SimStore, keys: readonly string[]): Promise<[kv: boolean, state: boolean][]> {
  const hit = async (key: string): Promise<[boolean, boolean]> => {
    const state = { name: 'state', keys: [key], hostIndices: null, hitPolicy: 'all_pages' as const };
    const { kvHitPages, extraPoolHitPages } = await store.batchExistsV2([key], [state]);
    const kv = await store.exists(key);
    return [kv, kv ? kvHitPages === 1 && extraPoolHitPages.state !== 0 : false];
  };
  return Promise.all(keys.map(hit));
}

async function setHybrid(t: ExecutionContext, store: SimStore, keys: readonly string[]): Promise<void> {
  const hosts = [new TestHostPool(keys.length, PAGE_BYTES, 1), new TestHostPool(keys.length, PAGE_BYTES, 1)] as const;
  t.teardown(() => hosts.forEach((host) => void host.region.free()));
  await store.registerMemHostPoolV2(hosts[0], 'kv');
  await store.registerMemHostPoolV2(hosts[1], 'state');
  const hostIndices = keys.map((_, i) => i);
  const results = await store.batchSetV2([
    { name: 'kv', keys: [...keys], hostIndices },
    { name: 'state', keys: [...keys], hostIndices },
  ]);
  t.true([...(results.kv ?? []), ...(results.state ?? [])].every((isSet) => isSet));
}

simulated('hybrid parts: what is left of a page without its main part goes before other pages', async (t, world) => {
  const store = await startStore(world, { config: YIELD });
  const keys = keysOf('hybrid', 16);
  await setHybrid(t, store, keys);
  const others = keysOf('other', 24);
  for (const [i, key] of others.entries()) t.true(await store.set(key, content(i, PAGE_BYTES)));
  // The main parts of half of the pages go, whoever chooses them.
  for (const key of keys.slice(0, 8)) t.true(await store.tell('gone', { keys: [key], ended: true }).then(() => true));
  for (const [i, key] of keysOf('more', 24).entries()) t.true(await store.set(key, content(i, PAGE_BYTES)));
  const kept = await partsOf(store, keys.slice(8));
  t.true(kept.filter(([kv, state]) => kv && state).length >= 7, JSON.stringify(kept));
  t.deepEqual(
    await partsOf(store, keys.slice(0, 8)),
    keys.slice(0, 8).map(() => [false, false]),
  );
  t.is((await Promise.all(others.map((key) => store.exists(key)))).filter((isThere) => isThere).length, others.length);
});
