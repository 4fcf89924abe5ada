import { HostRegion } from '../../../src/memory/host-region.js';
import { hostPages } from '../../../src/store/namespace/host-pages.js';
import type { TestWorld } from '../simulated.js';
import { content } from '../support.js';
import { PAGE_BYTES, type SimStore, startStore } from './simulated-stores.js';

/** Pages in each list of keys. */
export const COUNT = 24;
export const PAGES = keysOf('page');
export const KEPT = keysOf('kept');
/** Shards remember so few removals that {@link makeForget} makes them forget all of them. */
const LIMITS = { removalsMaxKeys: 100, droppedMaxKeys: 100 };
/** The host of the node that goes away. */
export const AWAY = '10.0.0.9';
export const DISK = { disk_enabled: true, disk_path: '/cache', disk_size: '64mb' };
export const POOL = { pool_path: '/memory/pool' };
export const DISK_AND_POOL = { ...DISK, ...POOL };
/** For so long a node may be gone before others notice: what they had forgotten before that does not count. */
export const NOTICED_AFTER_MS = 70_000;
export type Config = Readonly<Record<string, unknown>>;

export const TIERS: Readonly<Record<string, Config>> = { disk: DISK, pool: POOL, 'disk and pool': DISK_AND_POOL };

export function keysOf(name: string): string[] {
  return Array.from({ length: COUNT }, (_, i) => `${name} ${i}`);
}

/** Starts a node whose shard forgets soon. */
export function startNode(world: TestWorld, config: Config = {}, host?: string, addr?: string): Promise<SimStore> {
  return startStore(world, { host, config, env: { simulated: LIMITS }, ...(addr === undefined ? {} : { addr }) });
}

/** Starts nodes that are a cluster when this resolves. */
export async function startNodes(world: TestWorld, count = 3, config: Config = {}): Promise<SimStore[]> {
  const stores: SimStore[] = [];
  for (let i = 0; i < count; i++) stores.push(await startNode(world, config));
  await areAll(world, stores);
  return stores;
}

/** Resolves when these nodes are the members, from the point of view of each. */
export async function areAll(world: TestWorld, stores: readonly SimStore[]): Promise<void> {
  await world.until(() => stores.every((store) => store.stats().members === stores.length));
}

/** Has so many keys removed that no shard remembers what was removed before. */
export async function makeForget(store: SimStore): Promise<void> {
  const keys = Array.from({ length: 2_000 }, (_, i) => `unknown ${i}`);
  if ((await store.delete(keys)).includes(false)) throw new Error('not deleted');
}

/** Like {@link makeForget}, by clears: without asking every member, and also for copies. */
export async function clearMany(store: SimStore): Promise<void> {
  for (let round = 0; round < 40; round++) {
    for (let i = 0; i < 50; i++) await store.set(`other ${round} ${i}`, content(i, 64));
    await store.clear();
  }
}

/** Sets named pages with the contents from `first` on. */
export async function setAll(store: SimStore, keys: readonly string[], first = 0): Promise<void> {
  for (const [i, key] of keys.entries()) {
    if (!(await store.set(key, content(first + i, PAGE_BYTES)))) throw new Error(`${key} was not set`);
  }
}

/** Sets pages as computed ones. */
export async function computeAll(store: SimStore, keys: readonly string[]): Promise<void> {
  const region = HostRegion.wrap(Buffer.concat(keys.map((_, i) => content(i, PAGE_BYTES))));
  await store.registerMemPoolHost(hostPages({ region, pageBytes: PAGE_BYTES }));
  if (
    (
      await store.batchSetV1(
        [...keys],
        keys.map((_, i) => i),
      )
    ).includes(false)
  )
    throw new Error('not set');
  region.free();
}

/** Deletes pages everywhere. */
export async function deleteAll(store: SimStore, keys: readonly string[]): Promise<void> {
  if ((await store.delete([...keys])).includes(false)) throw new Error('not deleted');
}

/** How many of the keys any store reads, whatever bytes. */
export async function readable(stores: readonly SimStore[], keys: readonly string[]): Promise<number> {
  const found = new Set<string>();
  for (const store of stores) for (const key of keys) if ((await store.get(key)) !== null) found.add(key);
  return found.size;
}

/** Reads for a while; how many keys were ever found. */
export async function everReadable(
  world: TestWorld,
  stores: readonly SimStore[],
  keys: readonly string[],
): Promise<number> {
  let most = 0;
  for (let look = 0; look < 16; look++) {
    most = Math.max(most, await readable(stores, keys));
    await world.sleep(500);
  }
  return most;
}

/**
 * Reads pages for a while: how many keys were ever found with the contents from `first` on, and how often others were
 * read.
 */
export async function contentsOf(
  world: TestWorld,
  stores: readonly SimStore[],
  first: number,
): Promise<{ newest: number; older: number }> {
  const newest = new Set<string>();
  let older = 0;
  for (let look = 0; look < 8; look++) {
    for (const store of stores) {
      for (const [i, key] of PAGES.entries()) {
        const bytes = await store.get(key);
        if (bytes === null) continue;
        if (Buffer.compare(bytes, content(first + i, PAGE_BYTES)) === 0) newest.add(key);
        else older++;
      }
    }
    await world.sleep(500);
  }
  return { newest: newest.size, older };
}

/** A cluster of three, and the node that will be away, which has set these pages. */
export async function clusterWith(
  world: TestWorld,
  config: Config,
  keys = PAGES,
): Promise<{ stores: SimStore[]; remover: SimStore; before: SimStore }> {
  const stores = await startNodes(world);
  const before = await startNode(world, config, AWAY);
  await areAll(world, [...stores, before]);
  await setAll(before, keys);
  await world.sleep(1_000);
  return { stores, remover: stores[1] as SimStore, before };
}
