import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import { DiskStore } from '../../src/disk/disk-store.js';
import { Journal } from '../../src/disk/journal/journal.js';
import { crc32 } from '../../src/memory/checksum.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import type { EntryKind } from '../../src/types.js';
import { entriesIn, entryOf, IndexModel, optionsFor, Twin, testFolder } from '../_support/disk/journals.js';
import { unhurriedClock } from '../_support/disk/kill-support.js';
import { content } from '../_support/support.js';
import { verifiedEnd } from '../_support/verified.js';

const PAGE = 8 * 2 ** 10;
const env = systemEnvironment({ clock: unhurriedClock, log: silentLogger });

/** A disk store and its present; `again` closes it and opens it anew. */
async function setUp(t: ExecutionContext) {
  const path = mkdtempSync(join(tmpdir(), 'meshcache-disk-'));
  t.teardown(() => rmSync(path, { recursive: true, force: true }));
  const time = { present: 1 };
  let version = 0;
  const open = async () => {
    const store = await DiskStore.open(path, 16 * 2 ** 20, { nodeId: 'n1', env, present: () => time.present });
    t.teardown(() => verifiedEnd([store], () => store.close()));
    return store;
  };
  let store = await open();
  return {
    time,
    path,
    get store() {
      return store;
    },
    put(key: string, expires: number, { seed = 1, kind = 'named' }: { seed?: number; kind?: EntryKind } = {}) {
      const bytes = content(seed, PAGE);
      const origin = { version: ++version, kind, setBy: 0, expires };
      return store.putPage(key, { views: [bytes], length: PAGE }, crc32(bytes), () => {}, origin);
    },
    async again() {
      await verifiedEnd([store], () => store.close());
      store = await open();
    },
  };
}

test('disk expiry: a page is not found from its expiry on, whether it is written or waits to be', async (t) => {
  const disk = await setUp(t);
  disk.put('written', 10);
  disk.put('stays', 0);
  await disk.store.flush();
  disk.put('waits', 10, { seed: 2 });
  t.deepEqual([...disk.store.hasBatch(['written', 'waits', 'stays'])], [1, 1, 1]);
  disk.time.present = 10;
  t.deepEqual([...disk.store.hasBatch(['written', 'waits', 'stays'])], [0, 0, 1]);
  t.deepEqual([await disk.store.get('written'), await disk.store.get('waits')], [null, null]);
  t.is(disk.store.peekBatch(['written'])[0], null);
  await disk.store.flush();
  t.deepEqual(new Set(disk.store.removeExpired(100)), new Set(['written', 'waits']));
  t.deepEqual([disk.store.keys(), disk.store.firstExpiry], [['stays'], 0]);
  t.deepEqual(Buffer.from((await disk.store.get('stays')) as Uint8Array), Buffer.from(content(1, PAGE)));
});

test('disk expiry: expiries are kept across a restart, and across a rewriting of the index', async (t) => {
  const disk = await setUp(t);
  disk.put('short', 10);
  disk.put('long', 100, { seed: 2 });
  disk.put('stays', 0, { seed: 3 });
  await disk.store.flush();
  await disk.again();
  t.deepEqual(
    disk.store.peekBatch(['short', 'long', 'stays']).map((page) => page?.expires),
    [10, 100, 0],
  );
  disk.time.present = 10;
  t.is(await disk.store.get('short'), null);
  await disk.again();
  t.is(await disk.store.get('short'), null, 'it was not removed before the restart');
  t.deepEqual(disk.store.removeExpired(100), ['short']);
  await disk.again();
  disk.time.present = 1;
  t.deepEqual([...disk.store.hasBatch(['short', 'long', 'stays'])], [0, 1, 1]);
});

test('disk expiry: a page that is put over an expired one is the only one of its key', async (t) => {
  const disk = await setUp(t);
  for (const seed of [1, 2]) {
    disk.time.present = 1;
    disk.put('k', 10);
    await disk.store.flush();
    disk.time.present = 10;
    disk.store.dropExpired(['k', 'other']);
    t.is(disk.put('k', 0, { seed }), 'queued');
    await disk.store.flush();
    t.deepEqual(Buffer.from((await disk.store.get('k')) as Uint8Array), Buffer.from(content(seed, PAGE)));
    t.is(disk.store.info().entries, 1);
    disk.store.verify();
    disk.store.remove('k');
  }
});

test('disk expiry: the same bytes set again have the new expiry, computed ones the later, also after a restart', async (t) => {
  const disk = await setUp(t);
  disk.put('named', 100);
  disk.put('computed', 100, { seed: 2, kind: 'computed' });
  await disk.store.flush();
  t.is(disk.put('named', 50), 'present');
  t.is(disk.put('computed', 50, { seed: 2, kind: 'computed' }), 'present');
  await disk.again();
  t.deepEqual(
    disk.store.peekBatch(['named', 'computed']).map((page) => page?.expires),
    [50, 100],
  );
  disk.put('named', 0);
  disk.put('computed', 0, { seed: 2, kind: 'computed' });
  await disk.again();
  t.deepEqual(
    disk.store.peekBatch(['named', 'computed']).map((page) => page?.expires),
    [0, 0],
  );
});

test('disk expiry: an index of version 2 is read, and is of version 3 before anything is appended', async (t) => {
  const path = join(testFolder(t), 'index');
  const twin = await Twin.create(path);
  twin.put({ ...entryOf(1), version: 5, kind: 'named' });
  twin.put(entryOf(2));
  await twin.journal.close();
  const old = readFileSync(path);
  t.is(old.readUInt32LE(4), 3);
  old.writeUInt32LE(2, 4);
  old.writeUInt32LE(crc32(old.subarray(0, 28)), 28);
  writeFileSync(path, old);
  const { journal, entries } = await Journal.open(path, optionsFor(new IndexModel()));
  t.deepEqual(entries, [{ ...entryOf(1), version: 5, kind: 'named' }, entryOf(2)]);
  t.is(readFileSync(path).readUInt32LE(4), 3);
  journal.put({ ...entryOf(3), expires: 77 });
  await journal.close();
  t.deepEqual((await entriesIn(testFolder(t), readFileSync(path))).at(-1), { ...entryOf(3), expires: 77 });
});
