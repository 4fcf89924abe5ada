import test, { type ExecutionContext } from 'ava';
import { DISK_CLEARS_MAX_COUNT, DISK_NEVER_MIN_KEYS } from '../../src/base/limits.js';
import { DiskStore } from '../../src/disk/disk-store.js';
import { crc32 } from '../../src/memory/checksum.js';
import type { LeavingPage } from '../../src/pool/page-batch.js';
import { LeavingPages } from '../../src/store/disk/leaving-pages.js';
import { silentEnv } from '../_support/disk/kill-support.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { content } from '../_support/support.js';

const PAGE = 4096;

/** Pages that leave a pool for a real disk; `inPool`: the keys that are still in the pool. */
async function setUp(t: ExecutionContext, queueMaxBytes = 2 ** 20) {
  const disk = await DiskStore.open(temporaryFolder(t), 16 * 2 ** 20, { nodeId: 'n', env: silentEnv, queueMaxBytes });
  t.teardown(() => disk.close());
  const inPool = new Set<string>();
  const written: string[] = [];
  const pool = {
    get size() {
      return inPool.size;
    },
    hasBatch: (keys: unknown) => Uint8Array.from(keys as string[], (key) => Number(inPool.has(key))),
  };
  const pages = new LeavingPages(disk, pool, (key) => written.push(key));
  t.teardown(() => pages.close());
  const leave = (i: number, given: Partial<LeavingPage> = {}, isIntact = () => true): void => {
    const all = content(i, PAGE);
    const bytes = { views: [all.subarray(0, 100), all.subarray(100)], length: PAGE, isIntact };
    const about = { checksum: crc32(all, 0), version: 5, kind: 'named', expires: 0, setBy: 0 } as const;
    pages.leaving({ key: `k${i}`, bytes, ...about, ...given });
    // The range belongs to another page now.
    all.fill(0);
  };
  const found = async (i: number): Promise<boolean> => {
    const bytes = await disk.get(`k${i}`);
    if (bytes !== null) t.deepEqual(bytes, content(i, PAGE));
    return bytes !== null;
  };
  return { disk, pages, inPool, written, leave, found };
}

test('leaving pages: a page is on disk with its own bytes, and that is told once it is', async (t) => {
  const { disk, leave, found, written, pages } = await setUp(t);
  leave(1);
  t.true(await found(1), 'while it waits');
  await disk.flush();
  t.true(await found(1));
  t.deepEqual(written, ['k1']);
  t.like(disk.peekBatch(['k1'])[0], { version: 5, kind: 'named', setBy: 0 });
  leave(1);
  await disk.flush();
  t.is(disk.info().writtenPages, 1, 'what is there is not written again');
  pages.verify();
});

test('leaving pages: a page that came back meanwhile, or was removed, is not told', async (t) => {
  const { disk, inPool, leave, written } = await setUp(t);
  leave(1);
  inPool.add('k1');
  leave(2);
  disk.remove('k2');
  await disk.flush();
  t.deepEqual(written, []);
});

test('leaving pages: copies are not written, nor what finds no room in the queue', async (t) => {
  const { disk, leave, found } = await setUp(t, 2 * PAGE);
  leave(1, { setBy: 7 });
  t.is(disk.info().skippedPages, 0);
  for (const i of [2, 3, 4, 5]) leave(i);
  await disk.flush();
  t.deepEqual(await Promise.all([1, 2, 3, 4, 5].map(found)), [false, true, true, false, false]);
  t.is(disk.info().skippedPages, 2);
});

test('leaving pages: what is never asked for is not written, until it is asked for', async (t) => {
  const { disk, pages, inPool, leave, found } = await setUp(t);
  for (const key of ['k1', 'k2', 'k3']) inPool.add(key);
  pages.expect(['k1', 'k2', 'k3', 'k4'], Number.POSITIVE_INFINITY);
  pages.asked(['k2']);
  pages.expect(['k3'], 60_000);
  for (const i of [1, 2, 3, 4]) leave(i);
  await disk.flush();
  t.deepEqual(await Promise.all([1, 2, 3, 4].map(found)), [false, true, true, true]);
});

test('leaving pages: keys whose pages have gone are forgotten', async (t) => {
  const { pages, inPool, leave, found } = await setUp(t);
  const keys = Array.from({ length: DISK_NEVER_MIN_KEYS }, (_, i) => `k${i}`);
  for (const key of keys) inPool.add(key);
  pages.expect(keys, Number.POSITIVE_INFINITY);
  inPool.clear();
  inPool.add('other');
  pages.expect(['other'], Number.POSITIVE_INFINITY);
  leave(1);
  t.true(await found(1));
});

test('leaving pages: pages from before a clear are not written, however many clears came later', async (t) => {
  const { disk, pages, leave, found } = await setUp(t);
  pages.cleared({ voidBelow: 5, isCleared: (key) => key === 'k1' || key === 'k3' });
  leave(1, { version: 4 });
  leave(2, { version: 4 });
  leave(3, { version: 5 });
  await disk.flush();
  t.deepEqual(await Promise.all([1, 2, 3].map(found)), [false, true, true]);
  for (let i = 0; i < DISK_CLEARS_MAX_COUNT; i++) pages.cleared({ voidBelow: 2, isCleared: () => false });
  leave(1, { version: 4 });
  leave(4, { version: 4 });
  leave(5, { version: 5 });
  await disk.flush();
  t.deepEqual(await Promise.all([1, 4, 5].map(found)), [false, false, true]);
  pages.verify();
});

test('leaving pages: nothing is written after the end', async (t) => {
  const { disk, pages, leave, found } = await setUp(t);
  pages.close();
  leave(1);
  await disk.flush();
  t.false(await found(1));
});

test('leaving pages: a page without a checksum gets one; memory that was freed is not written', async (t) => {
  const { disk, leave, found } = await setUp(t);
  leave(1, { checksum: undefined });
  leave(2, { checksum: undefined }, () => false);
  await disk.flush();
  t.deepEqual(await Promise.all([1, 2].map(found)), [true, false]);
});

test('leaving pages: what the disk has under the key stays for the call that overwrites it', async (t) => {
  const { disk, leave, found } = await setUp(t);
  disk.put('k1', content(7, PAGE));
  await disk.flush();
  leave(1);
  await disk.flush();
  t.deepEqual(await disk.get('k1'), content(7, PAGE));
  disk.removeOther('k1', { length: PAGE, checksum: crc32(content(1, PAGE), 0) });
  t.false(await found(1));
});
