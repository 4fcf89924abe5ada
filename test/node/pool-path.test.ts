import { execFile } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import test, { type ExecutionContext } from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import { seededRandom } from '../../src/base/environment/random.js';
import { ConfigError } from '../../src/base/errors.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { openPoolFolder } from '../../src/node/warm/pool-folder.js';
import { systemFiles } from '../../src/system/files/system-files.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { hugeSuffix, mountedHuge, withHugePages } from '../_support/disk/mounts.js';
import { serialWithAddon, suffix } from '../_support/native/addon.js';
import { createStore } from '../_support/node/store-fixture.js';
import { content, freePort, until } from '../_support/support.js';

const PAGE_BYTES = 16 * 2 ** 10;
const KEYS = Array.from({ length: 64 }, (_, i) => `key ${i}`);

/** A folder in memory that goes with the test. */
function memoryFolder(t: ExecutionContext): string {
  const path = mkdtempSync('/dev/shm/meshcache-test-');
  t.teardown(() => rmSync(path, { recursive: true, force: true }));
  return join(path, 'pool');
}

async function keptStore(
  t: ExecutionContext,
  port: number,
  extra: Record<string, unknown> & { pool_path: string },
): Promise<MeshCacheStore> {
  const store = await createStore(port, { global_segment_size: '4mb', node_id: 'kept', ...extra });
  t.teardown(() => store.close());
  return store;
}

async function setAll(store: MeshCacheStore, from = 0): Promise<void> {
  for (const [i, key] of KEYS.entries()) {
    if (!(await store.set(key, content(from + i, PAGE_BYTES)))) throw new Error(`${key} was not set`);
  }
}

/** Number of the keys that are read; wrong bytes throw. */
async function readAll(store: MeshCacheStore, from = 0): Promise<number> {
  let count = 0;
  for (const [i, key] of KEYS.entries()) {
    const bytes = await store.get(key);
    if (bytes === null) continue;
    count++;
    if (Buffer.compare(bytes, content(from + i, PAGE_BYTES)) !== 0) throw new Error(`${key} has other bytes`);
  }
  return count;
}

serialWithAddon(
  `pool path: a node that starts again finds all its pages, and serves them to others${suffix}`,
  async (t) => {
    const port = await freePort();
    const path = memoryFolder(t);
    const before = await keptStore(t, port, { pool_path: path });
    await setAll(before);
    await before.close();
    t.is(statSync(join(path, 'pages')).mode & 0o777, 0o600);
    const store = await keptStore(t, port, { pool_path: path });
    await until(async () => (await readAll(store)) === KEYS.length);
    t.is(store.stats().hits.local >= KEYS.length, true);
    const other = await createStore(port);
    t.teardown(() => other.close());
    await until(() => other.stats().members === 2);
    await until(async () => (await readAll(other)) === KEYS.length);
    t.true(other.stats().hits.remote >= KEYS.length);
  },
);

const onHugePages = suffix === '' ? withHugePages : serialWithAddon;
onHugePages(`pool path: on hugetlbfs${suffix || hugeSuffix}`, async (t) => {
  const port = await freePort();
  const path = join(mountedHuge(t, 16), 'pool');
  const before = await keptStore(t, port, { pool_path: path });
  await setAll(before);
  t.deepEqual(await before.delete(['key 1']), [true]);
  await t.throwsAsync(keptStore(t, port, { pool_path: path }), {
    message: /is in use by process \d+: each node needs/,
  });
  await before.close();
  const store = await keptStore(t, port, { pool_path: path });
  await until(async () => (await readAll(store)) === KEYS.length - 1);
  await store.close();
  await t.throwsAsync(keptStore(t, port, { pool_path: path, global_segment_size: '5mb' }), {
    instanceOf: ConfigError,
    message: /pages cannot be 5 MiB long: on hugetlbfs, global_segment_size must be a multiple of the huge pages/,
  });
});

serialWithAddon(`pool path: what is overwritten, deleted or cleared does not come back${suffix}`, async (t) => {
  const port = await freePort();
  const path = memoryFolder(t);
  const before = await keptStore(t, port, { pool_path: path });
  await setAll(before);
  t.true(await before.set('key 0', content(900, PAGE_BYTES)));
  t.deepEqual(await before.delete(['key 1']), [true]);
  const tagged = before.namespace({ tag: 'other' });
  t.true(await tagged.set('key 2', content(901, PAGE_BYTES)));
  await tagged.clear();
  await before.close();
  const store = await keptStore(t, port, { pool_path: path });
  await until(async () => (await store.get('key 2')) !== null);
  t.deepEqual(await store.get('key 0'), content(900, PAGE_BYTES));
  t.is(await store.get('key 1'), null);
  t.is(await store.namespace({ tag: 'other' }).get('key 2'), null);
  await store.clear();
  await store.close();
  const cleared = await keptStore(t, port, { pool_path: path });
  t.is(cleared.stats().poolEntries, 0);
});

serialWithAddon(
  `pool path: while the node is away others overwrite, delete and compute its pages; none of its own is read${suffix}`,
  async (t) => {
    const port = await freePort();
    const path = memoryFolder(t);
    const other = await createStore(port, { node_id: 'other' });
    t.teardown(() => other.close());
    const before = await keptStore(t, port, { pool_path: path });
    await until(() => other.stats().members === 2 && before.stats().members === 2);
    await setAll(before);
    await before.close();
    await until(() => other.stats().members === 1);
    for (let i = 0; i < 16; i++) t.true(await other.set(`key ${i}`, content(500 + i, PAGE_BYTES)));
    t.false((await other.delete(KEYS.slice(16, 32))).includes(false));
    const store = await keptStore(t, port, { pool_path: path });
    // What others have replaced may be dropped by now; the rest has come back.
    t.true(store.stats().poolEntries >= KEYS.length - 32);
    for (const reader of [store, other, store]) {
      for (let i = 0; i < 16; i++) {
        const bytes = await reader.get(`key ${i}`);
        t.true(bytes === null || Buffer.compare(bytes, content(500 + i, PAGE_BYTES)) === 0, `key ${i}`);
      }
      for (let i = 16; i < 32; i++) t.is(await reader.get(`key ${i}`), null, `key ${i}`);
    }
    for (const reader of [store, other]) {
      await until(async () => {
        const pages = await Promise.all(KEYS.slice(32).map((key) => reader.get(key)));
        return pages.every((page, i) => page !== null && Buffer.compare(page, content(32 + i, PAGE_BYTES)) === 0);
      });
    }
    await until(() => store.stats().poolEntries === KEYS.length - 32);
  },
);

serialWithAddon(
  `pool path: a set just after the start is the newest content, also of a page from before${suffix}`,
  async (t) => {
    const port = await freePort();
    const path = memoryFolder(t);
    const before = await keptStore(t, port, { pool_path: path });
    await setAll(before);
    await before.close();
    const store = await keptStore(t, port, { pool_path: path });
    await setAll(store, 700);
    t.is(await readAll(store, 700), KEYS.length);
    t.is(store.stats().poolEntries, KEYS.length);
  },
);

serialWithAddon(`pool path: another size, policy or quota keeps the pages that have room${suffix}`, async (t) => {
  const port = await freePort();
  const path = memoryFolder(t);
  const start = (extra: Record<string, unknown>) => keptStore(t, port, { pool_path: path, ...extra });
  const before = await start({});
  await setAll(before);
  await before.close();
  const larger = await start({ global_segment_size: '8mb', eviction_policy: 's3fifo', verify_reads: false });
  await until(async () => (await readAll(larger)) === KEYS.length);
  await larger.close();
  const smaller = await start({ global_segment_size: '512kb' });
  const left = smaller.stats().poolEntries;
  t.true(left > 0 && left <= 32, `${left}`);
  await until(async () => (await readAll(smaller)) === left);
  await smaller.close();
  const unlimited = await start({ namespace: 'team', namespace_quotas: { team: { max: 1 } } });
  await setAll(unlimited);
  await unlimited.close();
  const limited = await start({ namespace: 'team', namespace_quotas: { team: { max: 0.125 } } });
  t.is(limited.stats().poolEntries, 64, 'those of the smaller pool, and as many as an eighth has room for');
  await until(async () => (await readAll(limited)) === 32);
});

serialWithAddon(`pool path: a damaged index costs pages and never brings wrong ones${suffix}`, async (t) => {
  const port = await freePort();
  const path = memoryFolder(t);
  const index = join(path, 'index');
  const random = seededRandom(17);
  const before = await keptStore(t, port, { pool_path: path });
  await setAll(before);
  await before.close();
  const whole = readFileSync(index);
  const pages = readFileSync(join(path, 'pages'));
  const found: number[] = [];
  for (let round = 0; round < 8; round++) {
    const damaged = Buffer.from(whole);
    // Bits of the records, then of everything that was ever used, then a file that ends early.
    if (round < 6) {
      for (let flip = 0; flip < 20; flip++) {
        const at = (round < 4 ? 128 : 0) + (random.u32() % (128 * 64));
        damaged[at] = (damaged[at] as number) ^ (1 << (random.u32() % 8));
      }
    }
    // The magic: with other bytes there the file is that of somebody else.
    whole.copy(damaged, 0, 0, 16);
    writeFileSync(index, round < 6 ? damaged : whole.subarray(0, 128 * (round - 5) * 20 + 40));
    writeFileSync(join(path, 'pages'), pages);
    const store = await keptStore(t, port, { pool_path: path });
    found.push(store.stats().poolEntries);
    await until(async () => (await readAll(store)) === store.stats().poolEntries);
    await store.close();
  }
  t.true(found.every((count) => count < KEYS.length) && found.some((count) => count > 0), found.join());
});

serialWithAddon(
  `pool path: a damaged page is a miss, found when it is read, or at the start with verify_reads off${suffix}`,
  async (t) => {
    const port = await freePort();
    const path = memoryFolder(t);
    for (const verify_reads of [true, false]) {
      const before = await keptStore(t, port, { pool_path: path, verify_reads });
      await setAll(before);
      await before.close();
      const pages = readFileSync(join(path, 'pages'));
      // The first bytes of a page lie at a multiple of the length of these pages.
      pages[8 * PAGE_BYTES + 100] = (pages[8 * PAGE_BYTES + 100] as number) ^ 1;
      writeFileSync(join(path, 'pages'), pages);
      const store = await keptStore(t, port, { pool_path: path, verify_reads });
      if (!verify_reads) t.is(store.stats().poolEntries, KEYS.length - 1);
      await until(async () => (await readAll(store)) === KEYS.length - 1);
      t.is(store.stats().poolEntries, KEYS.length - 1);
      await store.clear();
      await store.close();
    }
  },
);

serialWithAddon(
  `pool path: an index of another version starts empty, and files of others stay as they are${suffix}`,
  async (t) => {
    const port = await freePort();
    const path = memoryFolder(t);
    const index = join(path, 'index');
    const before = await keptStore(t, port, { pool_path: path });
    await setAll(before);
    await before.close();
    const other = readFileSync(index);
    other.writeUInt32LE(2, 16);
    writeFileSync(index, other);
    const store = await keptStore(t, port, { pool_path: path });
    t.is(store.stats().poolEntries, 0);
    await setAll(store);
    await store.close();
    const again = await keptStore(t, port, { pool_path: path });
    t.is(again.stats().poolEntries, KEYS.length);
    await again.close();
    for (const name of ['index', 'pages']) {
      const folder = memoryFolder(t);
      mkdirSync(folder);
      writeFileSync(join(folder, name), 'a letter to somebody');
      await t.throwsAsync(keptStore(t, port, { pool_path: folder }), {
        instanceOf: ConfigError,
        message: new RegExp(`pool_path.*${name} is no file of a meshcache pool`),
      });
      t.is(readFileSync(join(folder, name), 'latin1'), 'a letter to somebody');
    }
  },
);

serialWithAddon(`pool path: a folder in use, on a disk, of others or without room is refused${suffix}`, async (t) => {
  const port = await freePort();
  const path = memoryFolder(t);
  await keptStore(t, port, { pool_path: path });
  const refused = (pool_path: string, message: RegExp, extra = {}) =>
    t.throwsAsync(keptStore(t, port, { pool_path, ...extra }), { instanceOf: ConfigError, message });
  await refused(path, /pool_path.*is in use by process \d+ \(node kept\)/);
  const onDisk = mkdtempSync(join(process.cwd(), 'build', 'not-in-memory-'));
  t.teardown(() => rmSync(onDisk, { recursive: true, force: true }));
  await refused(join(onDisk, 'pool'), /pool_path.*tmpfs/);
  const open = memoryFolder(t);
  mkdirSync(open);
  chmodSync(open, 0o777);
  await refused(open, /pool_path.*others may write to it/);
  const file = memoryFolder(t);
  writeFileSync(file, '');
  await refused(file, /pool_path/);
  const full = memoryFolder(t);
  const files = { ...systemFiles, freeBytes: async () => 8 * 2 ** 20 };
  const env = { ...systemEnvironment({ log: silentLogger }), files };
  await t.throwsAsync(openPoolFolder({ path: full, capacityBytes: 64 * 2 ** 20, nodeId: 'kept', env }), {
    instanceOf: ConfigError,
    message: /pool_path.*pages needs 64 MiB, and its file system has room for 8 MiB/,
  });
  t.false(existsSync(join(full, 'pages')));
});

/** Alone while it runs: the mask is that of the process. */
serialWithAddon(
  `pool path: a folder that the node has made is never one that others may write to${suffix}`,
  async (t) => {
    const port = await freePort();
    const before = process.umask();
    try {
      for (const umask of [0o000, 0o002, 0o007]) {
        process.umask(umask);
        const path = memoryFolder(t);
        const store = await keptStore(t, port, { pool_path: join(path, 'deeper') });
        t.is(statSync(path).mode & 0o777, 0o700);
        await store.close();
      }
    } finally {
      process.umask(before);
    }
  },
);

// Cause: the present was asked for, which belongs to a runtime that was not open yet.
serialWithAddon(
  `pool path: pages that are on a disk too, some of which expire, stay the newest ones${suffix}`,
  async (t) => {
    const port = await freePort();
    const path = memoryFolder(t);
    const disk = { disk_enabled: true, disk_path: mkdtempSync(join(tmpdir(), 'meshcache-disk-')), disk_size: '32mb' };
    t.teardown(() => rmSync(disk.disk_path, { recursive: true, force: true }));
    const before = await keptStore(t, port, { pool_path: path, ...disk });
    await setAll(before);
    t.true(await before.set('key 1', content(801, PAGE_BYTES), { expiresInMs: 3_600_000 }));
    await before.close();
    const onDisk = await createStore(port, { node_id: 'kept', ...disk });
    t.true(await onDisk.set('key 0', content(800, PAGE_BYTES)));
    await onDisk.close();
    const store = await keptStore(t, port, { pool_path: path, ...disk });
    t.is(store.stats().poolEntries, KEYS.length - 1, 'all but the one of which the disk has a newer content');
    await until(async () => (await store.get('key 0')) !== null && (await store.get('key 1')) !== null);
    t.deepEqual(await store.get('key 0'), content(800, PAGE_BYTES));
    t.deepEqual(await store.get('key 1'), content(801, PAGE_BYTES));
  },
);

test('pool path: without the addon the node does not start, and says why', async (t) => {
  const cli = fileURLToPath(new URL('../dist/cli.js', import.meta.url));
  const settings = ['--discovery-addr', `127.0.0.1:${await freePort()}`, '-o', 'pool_path=/dev/shm/meshcache-never'];
  const env = { ...process.env, MESHCACHE_NATIVE: 'off' };
  const error = await t.throwsAsync(promisify(execFile)(process.execPath, [cli, 'node', ...settings], { env }));
  t.regex((error as Error & { stderr: string }).stderr, /pool_path.*needs the native addon: MESHCACHE_NATIVE=off/);
  t.false(existsSync('/dev/shm/meshcache-never'));
});
