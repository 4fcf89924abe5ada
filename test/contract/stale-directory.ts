import type { ExecutionContext } from 'ava';
import { type Keys, stringsOf } from '../../src/core/binding/key-batch.js';
import { LocatedPages } from '../../src/directory/messages/located-pages.js';
import { HostRegion } from '../../src/memory/host-region.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import type { DataLocation } from '../../src/types.js';
import { content } from '../_support/support.js';

const LENGTHS = [1, 5, 6, 7, 4096, 5000, 100_000];
const KEYS = LENGTHS.map((length) => `page of ${length}`);
const PTR_ALIGN = 128 * 1024;
const POOL_BYTES = 1024 * 1024;

/** What the case runs on: stores of one cluster over some transport. */
export interface StoresOfCase {
  readonly createStore: (config: Readonly<Record<string, unknown>>) => Promise<MeshCacheStore>;
  readonly until: (condition: () => boolean | Promise<boolean>) => Promise<void>;
}

type Found = Parameters<MeshCacheStore['runtime']['directory']['find']>[1];

/** Ways in which a page is freed; each resolves when a reader must not get the old bytes any more. */
const WAYS: Readonly<Record<string, (owner: MeshCacheStore, until: StoresOfCase['until']) => Promise<unknown>>> = {
  overwritten: (owner) => setAll(owner, KEYS, 2),
  'overwritten with other lengths': (owner) => Promise.all(KEYS.map((key, i) => owner.set(key, content(i, 300 + i)))),
  cleared: (owner) => owner.clear(),
  'cleared, and its bytes set under other keys': async (owner) => {
    await owner.clear();
    await setAll(
      owner,
      KEYS.map((key) => `other ${key}`),
      1,
    );
  },
  deleted: (owner) => owner.delete(KEYS),
  evicted: (owner, until) => evictAll(owner, until, 0),
  'evicted, and its place used again many times': (owner, until) => evictAll(owner, until, 100),
};

/**
 * Sets so many fillers, and more until none of the pages is left: while what is freed is in quarantine, fillers find no
 * room.
 */
async function evictAll(owner: MeshCacheStore, until: StoresOfCase['until'], fillers: number): Promise<void> {
  let count = 0;
  const fill = () => owner.set(`filler ${count}`, content(count++, 50_000));
  while (count < fillers) await fill();
  const isLeft = async () => (await Promise.all(KEYS.map((key) => owner.exists(key)))).some(Boolean);
  await until(async () => {
    await fill();
    return !(await isLeft());
  });
}

function setAll(store: MeshCacheStore, keys: readonly string[], seed: number): Promise<boolean[]> {
  return Promise.all(keys.map((key, i) => store.set(key, content(seed * 100 + i, LENGTHS[i] as number))));
}

/**
 * A reader whose directory is stuck: it goes on naming the locations of before, whatever its owner does. No read may
 * succeed by them once their pages are freed, and every one does before.
 */
export async function staleDirectoryCase(t: ExecutionContext, { createStore, until }: StoresOfCase): Promise<void> {
  const owner = await createStore({ global_segment_size: POOL_BYTES });
  const reader = await createStore({ global_segment_size: POOL_BYTES });
  const target = HostRegion.allocate(KEYS.length * PTR_ALIGN);
  const ptrs = KEYS.map((_, i) => target.addr + BigInt(i * PTR_ALIGN));
  try {
    await until(() => owner.stats().members === 2 && reader.stats().members === 2);
    const { directory } = reader.runtime;
    const find = directory.find.bind(directory);
    for (const [way, free] of Object.entries(WAYS)) {
      // What was freed just now may still be in quarantine.
      await until(async () => (await setAll(owner, KEYS, 1)).every(Boolean));
      const stuck = new Map<string, DataLocation>();
      const objectKeys = reader.keyEncoder.encodeKeys(KEYS, 'kv');
      await find(objectKeys, (found) => {
        for (const [i, location] of found) stuck.set(objectKeys[i] as string, location);
      });
      t.is(stuck.size, KEYS.length, way);
      const findStuck = async (keys: Keys, onFound: Found): Promise<void> =>
        onFound(
          LocatedPages.of(
            stringsOf(keys).flatMap((key, i) => (stuck.has(key) ? [[i, stuck.get(key) as DataLocation] as const] : [])),
          ),
        );
      Object.assign(directory, { find: findStuck });
      // Without checksums a read that takes long is a miss.
      await until(async () => (await reader.batchGet(KEYS, ptrs, LENGTHS)).every(Boolean));
      for (const [i, length] of LENGTHS.entries()) {
        t.is(
          Buffer.compare(target.bytes(i * PTR_ALIGN, length), content(100 + i, length)),
          0,
          `${way}: ${length} bytes`,
        );
      }
      await free(owner, until);
      for (let round = 0; round < 3; round++) {
        t.deepEqual(
          await reader.batchGet(KEYS, ptrs, LENGTHS),
          KEYS.map(() => false),
          way,
        );
      }
      Object.assign(directory, { find });
      await owner.clear();
    }
    t.true(reader.stats().staleReads > 0);
    t.is(reader.stats().checksumFailures, 0, 'a freed page is no damaged one');
  } finally {
    await Promise.all([owner.close(), reader.close()]);
    target.free();
  }
}
