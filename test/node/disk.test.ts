import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { digestOfStart } from '../../src/directory/shard/node-starts.js';
import { HostRegion } from '../../src/memory/host-region.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { createStore } from '../_support/node/store-fixture.js';
import { content, freePort, until } from '../_support/support.js';

const PAGE = 16 * 2 ** 10;

function folder(t: ExecutionContext): string {
  const path = mkdtempSync(join(tmpdir(), 'meshcache-disk-'));
  t.teardown(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

interface Node {
  readonly store: MeshCacheStore;
  readonly path: string;
}

/** A store with a pool of `poolPages` pages and a disk. */
async function diskNode(
  t: ExecutionContext,
  port: number,
  { poolPages = 16, path = folder(t), ...extra }: { poolPages?: number; path?: string } & Record<string, unknown> = {},
): Promise<Node> {
  const store = await createStore(port, {
    global_segment_size: poolPages * PAGE,
    disk_enabled: true,
    disk_path: path,
    disk_size: '32mb',
    reuse_quarantine_ms: 0,
    ...extra,
  });
  t.teardown(() => store.close());
  return { store, path };
}

/** Sets pages one by one, each written before the next. A disk that stalls skips pages, which are set again. */
async function setAll(store: MeshCacheStore, from: number, to: number): Promise<void> {
  for (let i = from; i < to; i++) {
    await until(async () => {
      const skipped = store.stats().disk?.skippedPages;
      if (!(await store.set(`k${i}`, content(i, PAGE)))) throw new Error(`k${i} was not set`);
      await until(() => store.stats().disk?.queueBytes === 0);
      return store.stats().disk?.skippedPages === skipped;
    });
  }
}

/** Which of the pages were read; wrong bytes throw. */
async function readAll(store: MeshCacheStore, from: number, to: number): Promise<boolean[]> {
  const results: boolean[] = [];
  for (let i = from; i < to; i++) {
    const bytes = new Uint8Array(PAGE);
    const isRead = await store.get(`k${i}`, bytes);
    if (isRead && Buffer.compare(bytes, content(i, PAGE)) !== 0) throw new Error(`k${i}: wrong bytes`);
    results.push(isRead);
  }
  return results;
}

const all = (count: number): boolean[] => new Array<boolean>(count).fill(true);

test('disk tier: pages that fell out of the pool are read from the own disk, and exist', async (t) => {
  const { store } = await diskNode(t, await freePort());
  await setAll(store, 0, 64);
  t.true(store.stats().evictions > 40);
  t.deepEqual(await readAll(store, 0, 64), all(64));
  t.true(store.stats().hits.disk >= 48, `${store.stats().hits.disk} from disk`);
  t.is(store.stats().misses, 0);
  t.is(await store.batchExists(Array.from({ length: 65 }, (_, i) => `k${i}`)), 64);
  t.deepEqual(await store.get('k3'), content(3, PAGE), 'also without knowing the length');
});

test('disk tier: another node reads all of it, by way of a pool that is too small', async (t) => {
  const port = await freePort();
  const { store: owner } = await diskNode(t, port, { poolPages: 8 });
  const reader = await createStore(port);
  t.teardown(() => reader.close());
  await until(() => owner.stats().members === 2 && reader.stats().members === 2);
  await setAll(owner, 0, 200);
  const { region, keys, ptrs, sizes } = batchOf(t, 200);
  t.deepEqual(await reader.batchGet(keys, ptrs, sizes), all(200));
  for (let i = 0; i < 200; i++) t.is(Buffer.compare(region.bytes(i * PAGE, PAGE), content(i, PAGE)), 0, `k${i}`);
  t.is(reader.stats().hits.remote, 200);
  t.is(reader.stats().misses, 0);
});

test('disk tier: eight readers at once of the same pages touch the disk once a page', async (t) => {
  const port = await freePort();
  const { store: owner } = await diskNode(t, port, { poolPages: 32 });
  const readers = await Promise.all(Array.from({ length: 8 }, () => createStore(port)));
  for (const reader of readers) t.teardown(() => reader.close());
  await until(() => [owner, ...readers].every((store) => store.stats().members === 9));
  await setAll(owner, 0, 64);
  const before = owner.stats().disk?.readPages ?? 0;
  // Few enough that all of them stay in the pool once they are there.
  const outcomes = await Promise.all(readers.map((reader) => readAll(reader, 0, 8)));
  t.deepEqual(outcomes, new Array(8).fill(all(8)));
  t.is((owner.stats().disk?.readPages ?? 0) - before, 8);
});

test('disk tier: what was on disk is served after a restart, to the node itself and to others', async (t) => {
  const port = await freePort();
  const other = await createStore(port);
  t.teardown(() => other.close());
  const first = await diskNode(t, port, { node_id: 'disk-node' });
  await until(() => other.stats().members === 2);
  await setAll(first.store, 0, 40);
  await first.store.close();
  await until(() => other.stats().members === 1);
  const second = await diskNode(t, port, { node_id: 'disk-node', path: first.path });
  t.is(second.store.stats().disk?.entries, 40);
  await until(() => other.stats().members === 2 && second.store.stats().members === 2);
  await until(async () => (await other.batchExists(Array.from({ length: 40 }, (_, i) => `k${i}`))) === 40);
  t.deepEqual(await readAll(other, 0, 40), all(40));
  t.deepEqual(await readAll(second.store, 0, 40), all(40));
});

test('disk tier: close writes what waits', async (t) => {
  const port = await freePort();
  const first = await diskNode(t, port, { poolPages: 512 });
  const { region, keys, ptrs, sizes } = batchOf(t, 60);
  for (let i = 0; i < 60; i++) region.bytes(i * PAGE, PAGE).set(content(i, PAGE));
  t.deepEqual(await first.store.batchSet(keys, ptrs, sizes), all(60));
  await first.store.close();
  const second = await diskNode(t, port, { path: first.path });
  t.is(second.store.stats().disk?.entries, 60);
  t.deepEqual(await readAll(second.store, 0, 60), all(60));
});

test('disk tier: clear drops everything, here and in the directory', async (t) => {
  const port = await freePort();
  const { store: owner } = await diskNode(t, port);
  const reader = await createStore(port);
  t.teardown(() => reader.close());
  await until(() => owner.stats().members === 2 && reader.stats().members === 2);
  await setAll(owner, 0, 32);
  await owner.clear();
  t.false(await reader.exists('k3'));
  t.false(await reader.exists('k31'));
  t.deepEqual(await readAll(owner, 0, 32), new Array<boolean>(32).fill(false));
  t.is(owner.stats().disk?.entries, 0);
});

test('disk tier: what the disk drops, the directory forgets', async (t) => {
  const port = await freePort();
  const { store: owner } = await diskNode(t, port, { poolPages: 8, disk_size: '1mb' });
  const reader = await createStore(port);
  t.teardown(() => reader.close());
  await until(() => owner.stats().members === 2 && reader.stats().members === 2);
  await setAll(owner, 0, 100);
  const kept = owner.stats().disk?.entries ?? 0;
  t.true(kept > 20 && kept < 60, `${kept} pages on disk`);
  await until(async () => !(await reader.exists('k3')));
  t.true(await reader.exists('k99'));
  t.deepEqual(await readAll(reader, 0, 100 - kept - 8), new Array<boolean>(100 - kept - 8).fill(false));
  t.deepEqual(await readAll(reader, 100 - kept, 100), all(kept));
});

test('disk tier: other bytes under a key take the place of the old ones everywhere', async (t) => {
  const port = await freePort();
  const { store: owner } = await diskNode(t, port, { poolPages: 128 });
  for (let round = 0; round < 20; round++) {
    t.true(await owner.set('k', content(round, PAGE)));
    t.is(Buffer.compare((await owner.get('k')) as Uint8Array, content(round, PAGE)), 0);
  }
  await until(() => owner.stats().disk?.queueBytes === 0);
  await setAll(owner, 100, 300);
  t.is(Buffer.compare((await owner.get('k')) as Uint8Array, content(19, PAGE)), 0);
});

test('disk tier: ranks of one host have a folder each, a second node none', async (t) => {
  const port = await freePort();
  const { store, path } = await diskNode(t, port);
  await t.throwsAsync(diskNode(t, port, { path }), { code: 'ERR_DISK', message: /in use/ });
  t.is(store.stats().members, 1);
  await t.throwsAsync(diskNode(t, port, { path: '/etc/passwd/disk' }), { code: 'ERR_DISK' });
  await t.throwsAsync(createStore(port, { disk_enabled: true }), { code: 'ERR_CONFIG', message: /disk_path/ });
});

test('disk tier: an overwrite that the pool cannot keep does not leave the old page to be read', async (t) => {
  const port = await freePort();
  const { store } = await diskNode(t, port, { poolPages: 16 });
  t.true(await store.set('k', content(1, PAGE)));
  await until(() => store.stats().disk?.queueBytes === 0);
  const { region, keys, ptrs, sizes } = batchOf(t, 16);
  t.is(region.length, 16 * PAGE);
  const overwriting = store.set('k', content(2, PAGE));
  const filling = store.batchSet(
    keys.map((key) => `other ${key}`),
    ptrs,
    sizes,
  );
  const [isSet] = await Promise.all([overwriting, filling]);
  t.true(isSet);
  const found = await store.get('k');
  t.true(found === null || Buffer.compare(found, content(2, PAGE)) === 0);
});

test('disk tier: nor does it leave an old page that is still on its way to the disk', async (t) => {
  const { store } = await diskNode(t, await freePort(), { poolPages: 16 });
  const { keys, ptrs, sizes } = batchOf(t, 16);
  for (let round = 0; round < 20; round++) {
    const key = `k ${round}`;
    t.true(await store.set(key, content(1, PAGE)));
    const overwriting = store.set(key, content(2, PAGE));
    const filling = store.batchSet(
      keys.map((other) => `${round} ${other}`),
      ptrs,
      sizes,
    );
    const [isSet] = await Promise.all([overwriting, filling]);
    t.true(isSet);
    await until(() => store.stats().disk?.queueBytes === 0);
    const found = await store.get(key);
    t.true(found === null || Buffer.compare(found, content(2, PAGE)) === 0, `round ${round}: the old page`);
  }
});

test('disk tier: a batch larger than the queue is written all the same while the pool has it', async (t) => {
  const { store } = await diskNode(t, await freePort(), { poolPages: 256 });
  const { region, keys, ptrs, sizes } = batchOf(t, 200);
  for (let i = 0; i < 200; i++) region.bytes(i * PAGE, PAGE).set(content(i, PAGE));
  t.deepEqual(await store.batchSet(keys, ptrs, sizes), all(200));
  await until(() => store.stats().disk?.entries === 200);
  t.is(store.stats().disk?.skippedPages, 0);
});

function batchOf(t: ExecutionContext, count: number) {
  const region = HostRegion.allocate(count * PAGE);
  t.teardown(() => region.free());
  return {
    region,
    keys: Array.from({ length: count }, (_, i) => `k${i}`),
    ptrs: Array.from({ length: count }, (_, i) => region.addr + BigInt(i * PAGE)),
    sizes: new Array<number>(count).fill(PAGE),
  };
}

test('disk: a store that is closed writes what found no room in the queue', async (t) => {
  const port = await freePort();
  // A queue of an eighth of the pool.
  const { store, path } = await diskNode(t, port, { poolPages: 1024 });
  const keys = Array.from({ length: 200 }, (_, i) => `k${i}`);
  const source = HostRegion.allocate(200 * PAGE);
  t.teardown(() => source.free());
  for (let i = 0; i < 200; i++) source.bytes(i * PAGE, PAGE).set(content(i, PAGE));
  const pointers = keys.map((_, i) => source.addr + BigInt(i * PAGE));
  const sizes = keys.map(() => PAGE);
  t.true((await store.batchSet(keys, pointers, sizes)).every(Boolean));
  await store.close();
  t.is(store.stats().disk?.skippedPages, 0);
  const again = await diskNode(t, await freePort(), { poolPages: 1024, path });
  t.true((await readAll(again.store, 0, 200)).every(Boolean));
});

test('disk: a node notes which start has known all pages to be good; a damaged note costs nothing', async (t) => {
  const port = await freePort();
  // Pages settle only when there is another node.
  const other = await createStore(port);
  t.teardown(() => other.close());
  const { store, path } = await diskNode(t, port);
  const file = join(path, 'start.json');
  const isNoted = ({ runtime }: MeshCacheStore) =>
    existsSync(file) &&
    readFileSync(file, 'utf8').includes(`"start":${digestOfStart(runtime.nodeId, runtime.incarnation)}}`);
  await until(() => isNoted(store));
  await setAll(store, 0, 20);
  await store.close();
  t.true(existsSync(file));
  for (const damaged of ['{', '{"format":2,"start":7}', '{"format":1,"start":-7}', '']) {
    writeFileSync(file, damaged);
    const { store: next } = await diskNode(t, port, { path });
    await until(async () => !(await readAll(next, 0, 20)).includes(false));
    if (damaged === '') await until(() => isNoted(next));
    await next.close();
  }
});
