import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import test, { type ExecutionContext } from 'ava';
import type { OpenFile, OpenOptions } from '../../src/base/environment/files.js';
import { silentLogger } from '../../src/base/environment/log.js';
import { seededRandom } from '../../src/base/environment/random.js';
import { DiskStore, type DiskStoreOptions, diskSizeFor } from '../../src/disk/disk-store.js';
import { crc32 } from '../../src/memory/checksum.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { systemRandom } from '../../src/system/system-random.js';
import { unhurriedClock } from '../_support/disk/kill-support.js';
import { content } from '../_support/support.js';
import { verifiedEnd } from '../_support/verified.js';

const KIB = 2 ** 10;
const MIB = 2 ** 20;
const PAGE = 64 * KIB;

const env = systemEnvironment({ clock: unhurriedClock, log: silentLogger });

function folder(t: ExecutionContext): string {
  const path = mkdtempSync(join(tmpdir(), 'meshcache-disk-'));
  t.teardown(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

async function open(
  t: ExecutionContext,
  path: string,
  maxBytes = 16 * MIB,
  options: Partial<DiskStoreOptions> = {},
): Promise<DiskStore> {
  const store = await DiskStore.open(path, maxBytes, { nodeId: 'n1', env, ...options });
  t.teardown(() => verifiedEnd([store], () => store.close()));
  return store;
}

async function bytesIn(path: string): Promise<number> {
  let sum = 0;
  for (const name of await readdir(path, { recursive: true })) {
    // Files of the lock come and go.
    sum += await stat(join(path, name)).then(
      ({ blocks }) => blocks * 512,
      () => 0,
    );
  }
  return sum;
}

test('disk store: its lock is in the network that it is given, and its files are those that it is given', async (t) => {
  const path = folder(t);
  const servers: string[] = [];
  const opened: string[] = [];
  const store = await open(t, path, 16 * MIB, {
    env: {
      ...env,
      network: {
        ...env.network,
        createServer(...args) {
          servers.push('lock');
          return env.network.createServer(...args);
        },
      },
      files: {
        ...env.files,
        open(file, options) {
          opened.push(basename(file));
          return env.files.open(file, options);
        },
      },
    },
  });
  await store.close();
  t.deepEqual(servers, ['lock']);
  // The folder is opened to flush its names.
  t.deepEqual([...new Set(opened)].sort(), ['index.new', 'lock', 'pages', 'store.json.new', basename(path)].sort());
});

test('disk store: a file system that cannot flush directories is good enough', async (t) => {
  const withFlush = (code: string) => ({
    ...env,
    files: {
      ...env.files,
      async open(path: string, options?: OpenOptions): Promise<OpenFile> {
        const file = await env.files.open(path, options);
        if (options?.directory) file.datasync = () => Promise.reject(Object.assign(new Error(code), { code }));
        return file;
      },
    },
  });
  const store = await open(t, folder(t), 16 * MIB, { env: withFlush('EINVAL') });
  await store.close();
  await t.throwsAsync(open(t, folder(t), 16 * MIB, { env: withFlush('EIO') }), { message: /EIO/ });
});

test('disk store: what was put is there, byte for byte, also after another start', async (t) => {
  const path = folder(t);
  const lengths = [1, 100, 4096, 4097, PAGE, 3 * MIB + 17];
  const first = await open(t, path);
  for (const length of lengths) first.put(`page ${length}`, content(length, length));
  t.deepEqual(await first.get('page 100'), content(100, 100), 'while it waits');
  await first.flush();
  t.deepEqual(first.stats(), [lengths.reduce((sum, length) => sum + length, 0), lengths.length]);
  await first.close();
  const second = await open(t, path);
  t.deepEqual(second.stats(), first.stats());
  for (const length of lengths) {
    t.true(second.exists(`page ${length}`));
    t.deepEqual(Buffer.compare((await second.get(`page ${length}`)) as Uint8Array, content(length, length)), 0);
  }
  t.is(await second.get('another'), null);
  t.false(await second.getInto('page 100', new Uint8Array(99)), 'another length is a miss');
});

test('disk store: the caller may reuse the bytes as soon as put has returned', async (t) => {
  const store = await open(t, folder(t));
  const bytes = content(1, PAGE);
  store.put('a', bytes);
  bytes.fill(0);
  t.deepEqual(await store.get('a'), content(1, PAGE));
  await store.flush();
  t.deepEqual(await store.get('a'), content(1, PAGE));
});

test('disk store: a page put again is written once; other bytes take its place', async (t) => {
  const store = await open(t, folder(t));
  for (let i = 0; i < 5; i++) store.put('a', content(1, PAGE));
  await store.flush();
  store.put('a', content(1, PAGE));
  await store.flush();
  t.is(store.info().writtenPages, 1);
  store.put('a', content(2, PAGE));
  t.deepEqual(await store.get('a'), content(2, PAGE));
  await store.flush();
  t.deepEqual(await store.get('a'), content(2, PAGE));
  t.deepEqual(store.stats(), [PAGE, 1]);
});

test('disk store: the least recently used page goes first, and its key is told; the order outlives a restart', async (t) => {
  const path = folder(t);
  const evicted: string[] = [];
  const { maxBytes: size, indexBytes } = diskSizeFor(20, PAGE);
  const onEvict = (keys: string[]) => void evicted.push(...keys);
  const first = await open(t, path, size, { onEvict, indexBytes });
  const capacity = Math.floor(first.info().capacityBytes / PAGE);
  t.true(capacity >= 20 && capacity <= 32, `${capacity} pages`);
  for (let i = 0; i < capacity; i++) first.put(`p${i}`, content(i, PAGE));
  await first.flush();
  t.deepEqual(evicted, []);
  await first.get('p0');
  first.touchBatch(['p2']);
  await first.close();
  const second = await open(t, path, size, { onEvict, indexBytes });
  t.deepEqual(second.keys().slice(0, 3), ['p1', 'p3', 'p4']);
  t.deepEqual(second.keys().slice(-2), ['p0', 'p2']);
  for (let i = 0; i < 3; i++) second.put(`q${i}`, content(i, PAGE));
  await second.flush();
  t.deepEqual(evicted, ['p1', 'p3', 'p4']);
  t.false(second.exists('p1'));
  t.is(second.info().evictions, 3);
});

test('disk store: never more on disk than allowed while ten times as much is written', async (t) => {
  const path = folder(t);
  const maxBytes = 8 * MIB;
  const store = await open(t, path, maxBytes);
  const seed = systemRandom.u32();
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  let written = 0;
  let largest = 0;
  for (let i = 0; written < 10 * maxBytes; i++) {
    const length = 1 + (random.u32() % 200_000);
    store.put(`k${i}`, content(i, length));
    written += length;
    store.verify();
    if (i % 16 > 0) continue;
    await store.flush();
    largest = Math.max(largest, await bytesIn(path));
  }
  t.true(largest <= maxBytes, `${largest} of ${maxBytes} bytes`);
  t.true(store.stats()[0] > maxBytes * 0.8);
});

test('disk store: what is removed stays so', async (t) => {
  const path = folder(t);
  const store = await open(t, path);
  for (const key of ['a', 'b', 'c']) store.put(key, content(1, PAGE));
  await store.flush();
  store.remove('b');
  store.put('d', content(1, PAGE));
  store.remove('d');
  await store.flush();
  t.deepEqual(store.keys(), ['a', 'c']);
  t.is(await store.get('d'), null);
  await store.close();
  const again = await open(t, path);
  t.deepEqual(again.keys(), ['a', 'c']);
  for (const key of ['a', 'c']) again.remove(key);
  again.put('e', content(5, PAGE));
  await again.close();
  const last = await open(t, path);
  t.deepEqual(last.keys(), ['e']);
});

test('disk store: beyond the queue pages are skipped, and counted', async (t) => {
  const store = await open(t, folder(t), 64 * MIB, { queueMaxBytes: 4 * PAGE });
  for (let i = 0; i < 40; i++) store.put(`k${i}`, content(i, PAGE));
  const { skippedPages, queueBytes } = store.info();
  t.is(skippedPages, 36);
  t.is(queueBytes, 4 * PAGE);
  await store.flush();
  t.is(store.stats()[1], 4);
  t.is(store.info().queueBytes, 0);
});

test('disk store: bytes that do not have their checksum are a miss, are dropped and told', async (t) => {
  const evicted: string[] = [];
  const store = await open(t, folder(t), 16 * MIB, { onEvict: (keys) => void evicted.push(...keys) });
  const bytes = content(1, PAGE);
  let released = 0;
  const page = { views: [bytes], length: PAGE };
  t.is(
    store.putPage('bad', page, (crc32(bytes, 0) ^ 1) >>> 0, () => released++),
    'queued',
  );
  await store.flush();
  t.is(released, 1);
  t.is(await store.get('bad'), null);
  t.false(store.exists('bad'));
  t.is(store.info().corruptPages, 1);
  t.deepEqual(evicted, ['bad']);
});

test('disk store: one process, and one store, has a directory', async (t) => {
  const path = folder(t);
  const store = await open(t, path);
  await t.throwsAsync(open(t, path), { code: 'ERR_DISK', message: /in use by process \d+ \(node n1\)/ });
  await store.close();
  await (await open(t, path)).close();
});

test('disk store: bad arguments', async (t) => {
  const store = await open(t, folder(t));
  await t.throwsAsync(open(t, folder(t), 1000), { code: 'ERR_DISK', message: /1000/ });
  await t.throwsAsync(open(t, '/etc/passwd/here'), { code: 'ERR_DISK', message: /\/etc\/passwd\/here/ });
  t.throws(() => store.put('', content(1, 10)), { code: 'ERR_ARGUMENT' });
  t.throws(() => store.put('a', new Uint8Array(0)), { code: 'ERR_ARGUMENT' });
  await store.close();
  t.throws(() => store.put('a', content(1, 10)), { code: 'ERR_CLOSED' });
  await t.throwsAsync(store.get('a'), { code: 'ERR_CLOSED' });
});

test('disk store: a smaller disk keeps what fits', async (t) => {
  const path = folder(t);
  const store = await open(t, path, 32 * MIB);
  for (let i = 0; i < 20; i++) store.put(`k${i}`, content(i, MIB));
  await store.close();
  const smaller = await open(t, path, 8 * MIB);
  t.true(await bytesIn(path).then((bytes) => bytes <= 8 * MIB));
  t.true(smaller.stats()[1] > 2 && smaller.stats()[1] <= 8);
  for (const key of smaller.keys()) {
    t.is(Buffer.compare((await smaller.get(key)) as Uint8Array, content(Number(key.slice(1)), MIB)), 0);
  }
  await smaller.close();
  const larger = await open(t, path, 32 * MIB);
  t.is(larger.stats()[1], smaller.stats()[1]);
});

test('disk store: reads and writes of random pages against a map', async (t) => {
  const seed = systemRandom.u32();
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const path = folder(t);
  const size = 6 * MIB;
  let store = await open(t, path, size);
  const latest = new Map<string, Uint8Array>();
  let hits = 0;
  for (let step = 0; step < 3000; step++) {
    const key = `k${random.u32() % 200}`;
    const dice = random.u32() / 2 ** 32;
    if (dice < 0.5) {
      const bytes = content(step, 1 + (random.u32() % 100_000));
      latest.set(key, bytes);
      store.put(key, bytes);
    } else if (dice < 0.55) {
      latest.delete(key);
      store.remove(key);
    } else if (dice < 0.552) {
      await store.close();
      store = await open(t, path, size);
    } else {
      const found = await store.get(key);
      if (found === null) continue;
      hits++;
      const wanted = latest.get(key);
      t.true(wanted !== undefined && Buffer.compare(found, wanted) === 0, `step ${step}: ${key}`);
    }
  }
  t.true(hits > 100, `${hits} hits`);
});

test('disk store: small pages with long keys fill the index first; the least recently used ones go, also in a burst', async (t) => {
  for (const [characters, pages] of [
    [300, 6000],
    [3000, 1500],
  ] as const) {
    const path = folder(t);
    let evicted = 0;
    const onEvict = (keys: string[]) => {
      evicted += keys.length;
    };
    const store = await open(t, path, 32 * MIB, { onEvict });
    const key = (i: number) => `${'x'.repeat(characters)}${i}`;
    for (let i = 0; i < pages; i++) store.put(key(i), content(i, 1000));
    await store.flush();
    const { entries, skippedPages, writeErrors } = store.info();
    t.deepEqual([skippedPages, writeErrors], [0, 0]);
    t.is(entries + evicted, pages);
    t.true(evicted > 0 && entries > 50, `${entries} pages, ${evicted} evicted`);
    t.true(store.exists(key(pages - 1)) && !store.exists(key(0)));
    t.true((await bytesIn(path)) <= 32 * MIB);
    await store.close();
    const again = await open(t, path, 32 * MIB);
    t.is(again.stats()[1], entries);
  }
});

test('disk store: a directory with files of others is refused, and they stay as they are', async (t) => {
  for (const name of ['pages', 'index']) {
    const path = folder(t);
    writeFileSync(join(path, name), 'mine');
    await t.throwsAsync(open(t, path), { code: 'ERR_DISK', message: new RegExp(`a file ${name} that is no store's`) });
    t.is(readFileSync(join(path, name), 'utf8'), 'mine');
  }
});

test('disk store: a page that is overwritten or removed does not come back after a crash', async (t) => {
  const path = folder(t);
  const store = await open(t, path);
  for (const key of ['a', 'b', 'c']) store.put(key, content(1, PAGE));
  await store.flush();
  store.remove('a');
  store.put('b', content(2, PAGE));
  await store.removalsWritten();
  const crashed = folder(t);
  cpSync(path, crashed, { recursive: true, filter: (source) => !source.includes('/lock') });
  const again = await open(t, crashed);
  t.false(again.exists('a'));
  t.not(Buffer.compare((await again.get('b')) ?? new Uint8Array(), content(1, PAGE)), 0);
  t.deepEqual(await again.get('c'), content(1, PAGE));
});

test('disk store: a listener that throws hurts nothing', async (t) => {
  const { maxBytes, indexBytes } = diskSizeFor(4, PAGE);
  const onEvict = () => {
    throw new Error('no');
  };
  const store = await open(t, folder(t), maxBytes, { indexBytes, onEvict });
  for (let i = 0; i < 40; i++) {
    store.put(`k${i}`, content(i, PAGE));
    await store.flush();
  }
  t.is(store.info().skippedPages, 0);
  t.is(Buffer.compare((await store.get('k39')) as Uint8Array, content(39, PAGE)), 0);
});

test('disk store: a page that is overwritten while it is being read is written all the same', async (t) => {
  const store = await open(t, folder(t));
  store.put('a', content(1, 4 * MIB));
  await store.flush();
  const reading = store.get('a');
  store.put('a', content(2, 4 * MIB));
  t.is(Buffer.compare((await reading) as Uint8Array, content(1, 4 * MIB)), 0);
  await store.flush();
  t.is(Buffer.compare((await store.get('a')) as Uint8Array, content(2, 4 * MIB)), 0);
  t.is(store.info().skippedPages, 0);
});

test('disk store: what was written is not kept in memory while others wait', async (t) => {
  const store = await open(t, folder(t), 64 * MIB, { queueMaxBytes: 8 * PAGE });
  const kept: WeakRef<Uint8Array>[] = [];
  for (let i = 0; i < 200; i++) {
    const bytes = content(i, PAGE);
    kept.push(new WeakRef(bytes));
    while (!store.hasRoomFor(PAGE)) await new Promise((resolve) => setImmediate(resolve));
    store.putPage(`k${i}`, { views: [bytes], length: PAGE }, crc32(bytes, 0), () => {});
  }
  setFlagsFromString('--expose-gc');
  await new Promise((resolve) => setImmediate(resolve));
  (runInNewContext('gc') as () => void)();
  const alive = kept.filter((ref) => ref.deref() !== undefined).length;
  t.true(alive < 100, `${alive} pages`);
});

test('disk store: a target that is no Uint8Array is refused, and is no failure of the disk', async (t) => {
  // Cause: reading into it failed, and the disk was taken for a failing one.
  const store = await open(t, folder(t));
  store.put('a', content(1, 4));
  await store.flush();
  for (const target of ['text', [0, 0, 0, 0], null, undefined]) {
    await t.throwsAsync(store.getInto('a', target as never), { code: 'ERR_ARGUMENT' });
  }
  t.is(store.info().failure, null);
});

test('disk store: a page that is set again with the same bytes has the later version, also after another start', async (t) => {
  // Cause: the first version stayed on the disk; after a restart the directory knew of a later one, and the page was
  // removed as outdated.
  const path = folder(t);
  const first = await open(t, path);
  const bytes = content(1, PAGE);
  const put = (key: string, version: number): string => {
    const page = { views: [bytes], length: bytes.length };
    return first.putPage(key, page, crc32(bytes), () => {}, { version, kind: 'named', setBy: 0, expires: 0 });
  };
  put('written', 1);
  await first.flush();
  t.is(put('written', 2), 'present');
  put('waits', 1);
  t.is(put('waits', 2), 'present');
  t.is(put('waits', 1), 'present', 'the later one stays');
  await first.flush();
  const versions = (store: DiskStore) => store.peekBatch(['written', 'waits']).map((page) => page?.version);
  t.deepEqual(versions(first), [2, 2]);
  const { length } = bytes;
  first.renew('waits', { length, checksum: crc32(bytes), version: 3, kind: 'named', expires: 0, setBy: 0 });
  first.renew('written', { length, checksum: 0, version: 3, kind: 'named', expires: 0, setBy: 0 });
  await first.close();
  t.deepEqual(versions(await open(t, path)), [2, 3]);
});
