import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { ArgumentError, ClosedError, DiskError } from '../../src/base/errors.js';
import { JOURNAL_USE_DELAY_MS, KEY_MAX_BYTES, KEY_PREFIX_BYTES } from '../../src/base/limits.js';
import { Journal } from '../../src/disk/journal/journal.js';
import { ManualClock } from '../_support/clock.js';
import {
  entriesIn,
  entryOf,
  IndexModel,
  journalEnv,
  optionsFor,
  seeded,
  Twin,
  testFolder,
} from '../_support/disk/journals.js';
import { until } from '../_support/support.js';

test('journal: pages and the order of their use are found again, whatever was done', async (t) => {
  const path = join(testFolder(t), 'index');
  const random = seeded(t);
  let twin = await Twin.create(path);
  for (let round = 0; round < 60; round++) {
    for (let i = random(60); i > 0; i--) {
      twin.change(random);
      if (random(8) === 0) await twin.journal.flush();
    }
    const before = twin.model.entries;
    await twin.journal.close();
    twin = await Twin.open(path);
    t.deepEqual(twin.model.entries, before, `round ${round}`);
    t.is(twin.journal.stats().entries, before.length);
  }
  await twin.journal.close();
});

test('journal: a use counts at its moment, between the pages that were put before and after it', async (t) => {
  const path = join(testFolder(t), 'index');
  const { journal } = await Twin.create(path);
  for (const page of [1, 2, 3]) journal.put(entryOf(page));
  journal.use(entryOf(2).offset);
  journal.use(entryOf(1).offset);
  journal.use(entryOf(2).offset);
  journal.put(entryOf(4));
  journal.use(entryOf(3).offset);
  await journal.close();
  const { model, journal: again } = await Twin.open(path);
  t.deepEqual(
    model.entries.map(({ key }) => key),
    ['page-1', 'page-2', 'page-4', 'page-3'],
  );
  await again.close();
});

test('journal: a page takes the place of one with its key, and of one with its offset', async (t) => {
  const path = join(testFolder(t), 'index');
  const { journal } = await Twin.create(path);
  journal.put(entryOf(1, 1));
  journal.put(entryOf(2, 2));
  journal.put(entryOf(1, 3));
  journal.put(entryOf(4, 2));
  journal.remove('page-2');
  await journal.flush();
  t.deepEqual(await entriesIn(testFolder(t), readFileSync(path)), [entryOf(1, 3), entryOf(4, 2)]);
  await journal.close();
});

test('journal: a page whose version no clock can have is left out, and the others are there', async (t) => {
  // Cause: a version of a clock far ahead, as an earlier build wrote, made the whole disk tier be set aside.
  const path = join(testFolder(t), 'index');
  const { journal } = await Twin.create(path);
  const good = { ...entryOf(1), version: 5, kind: 'named' as const };
  journal.put(good);
  journal.put({ ...entryOf(2), version: 2 ** 53 - 2, kind: 'named' });
  journal.put({ ...entryOf(3), version: 6, kind: 'named', expires: 2 ** 53 - 2 });
  journal.put({ ...entryOf(4), version: 7, kind: 'named' });
  await journal.flush();
  const entries = await entriesIn(testFolder(t), readFileSync(path));
  t.deepEqual(
    entries.map(({ key }) => key),
    ['page-1', 'page-4'],
  );
  await journal.close();
});

test('journal: offsets, lengths and checksums keep every bit, keys every character', async (t) => {
  const path = join(testFolder(t), 'index');
  const twin = await Twin.create(path);
  const longest = KEY_MAX_BYTES + KEY_PREFIX_BYTES;
  const keys = [
    '',
    '\0',
    'ä€𝄞\u{10ffff}\uffff\ufeff',
    '\ufeffbom',
    'é',
    'e\u0301',
    'x'.repeat(longest),
    '€'.repeat(longest / 3),
  ];
  for (const [i, key] of keys.entries()) {
    twin.put({ key, offset: 2 ** 48 - 1 - i, length: 2 ** 30 - i, checksum: 0xffffffff - i });
  }
  await twin.journal.close();
  const { model, journal } = await Twin.open(path);
  t.deepEqual(model.entries, twin.model.entries);
  await journal.close();
});

test('journal: a key that has no UTF-8 form or is too long is refused, and nothing of it is kept', async (t) => {
  const path = join(testFolder(t), 'index');
  const { journal } = await Twin.create(path);
  const longest = KEY_MAX_BYTES + KEY_PREFIX_BYTES;
  for (const key of ['\ud800', 'a\udfffb', 'x'.repeat(longest + 1), '€'.repeat(longest / 3 + 1)]) {
    t.throws(() => journal.put({ ...entryOf(1), key }), { instanceOf: ArgumentError });
    t.throws(() => journal.remove(key), { instanceOf: ArgumentError });
  }
  t.is(journal.stats().entries, 0);
  journal.put(entryOf(2));
  await journal.flush();
  t.deepEqual(await entriesIn(testFolder(t), readFileSync(path)), [entryOf(2)]);
  await journal.close();
});

test('journal: uses are written when a second has passed, without being asked to', async (t) => {
  const path = join(testFolder(t), 'index');
  const clock = new ManualClock();
  const { journal } = await Twin.create(path, { env: { ...journalEnv, clock } });
  for (const page of [1, 2]) journal.put(entryOf(page));
  await journal.flush();
  const { bytes } = journal.stats();
  journal.use(entryOf(1).offset);
  clock.advance(JOURNAL_USE_DELAY_MS - 1);
  await clock.yield();
  t.is(statSync(path).size, bytes);
  clock.advance(1);
  await until(() => journal.stats().bytes > bytes);
  t.deepEqual(await entriesIn(testFolder(t), readFileSync(path)), [entryOf(2), entryOf(1)]);
  await journal.close();
  t.is(clock.pendingCount, 0);
});

test('journal: a page is written when a second has passed, without being asked to', async (t) => {
  const path = join(testFolder(t), 'index');
  const clock = new ManualClock();
  const { journal } = await Twin.create(path, { env: { ...journalEnv, clock } });
  const { bytes } = journal.stats();
  journal.put(entryOf(1));
  clock.advance(JOURNAL_USE_DELAY_MS);
  await until(() => journal.stats().bytes > bytes);
  t.deepEqual(await entriesIn(testFolder(t), readFileSync(path)), [entryOf(1)]);
  await journal.close();
});

test('journal: flushes that are asked for while one is under way are one', async (t) => {
  const path = join(testFolder(t), 'index');
  const { journal } = await Twin.create(path);
  journal.put(entryOf(0));
  const bytes = () => statSync(path).size;
  await journal.flush();
  const oneBlock = bytes() - 32;
  const flushes = Array.from({ length: 9 }, (_, i) => {
    journal.put(entryOf(i + 1));
    return journal.flush();
  });
  t.true(new Set(flushes).size <= 2);
  await Promise.all(flushes);
  t.true(bytes() < 32 + oneBlock * 10);
  t.is((await entriesIn(testFolder(t), readFileSync(path))).length, 10);
  await journal.close();
});

test('journal: what a flush waits for is in the file when it resolves', async (t) => {
  const path = join(testFolder(t), 'index');
  const folder = testFolder(t);
  const random = seeded(t);
  const twin = await Twin.create(path);
  for (let i = 0; i < 100; i++) {
    twin.change(random);
    if (random(2) === 0) twin.journal.flush().catch(() => {});
    if (random(4) !== 0) continue;
    const flush = twin.journal.flush();
    const told = twin.model.entries;
    await flush;
    t.deepEqual(await entriesIn(folder, readFileSync(path)), told);
  }
  await twin.journal.close();
});

test('journal: many records make several blocks', async (t) => {
  const path = join(testFolder(t), 'index');
  const maxBytes = 64 << 20;
  const twin = await Twin.create(path, { maxBytes });
  const entries = Array.from({ length: 40_000 }, (_, i) => ({ ...entryOf(i), key: `${i}`.padStart(97, 'k') }));
  for (const entry of entries) twin.journal.put(entry);
  await twin.journal.close();
  const { model, journal } = await Twin.open(path, { maxBytes });
  t.deepEqual(model.entries, entries);
  await journal.close();
});

test('journal: there is one at a path, and what it may take is not too little', async (t) => {
  const path = join(testFolder(t), 'index');
  const { journal } = await Twin.create(path);
  await t.throwsAsync(Twin.create(path), { instanceOf: DiskError, message: /already/ });
  await journal.close();
  await t.throwsAsync(Twin.open(path, { maxBytes: 1000 }), { instanceOf: ArgumentError });
  await t.throwsAsync(Twin.open(join(testFolder(t), 'none')), { code: 'ENOENT' });
});

test('journal: closing again is nothing new, and nothing is taken after it', async (t) => {
  const path = join(testFolder(t), 'index');
  const { journal } = await Twin.create(path);
  journal.put(entryOf(1));
  const closing = journal.close();
  t.is(journal.close(), closing);
  await closing;
  t.throws(() => journal.put(entryOf(2)), { instanceOf: ClosedError });
  t.throws(() => journal.use(0), { instanceOf: ClosedError });
  await t.throwsAsync(journal.flush(), { instanceOf: ClosedError });
  await t.throwsAsync(journal.rewrite(), { instanceOf: ClosedError });
  t.deepEqual(await entriesIn(testFolder(t), readFileSync(path)), [entryOf(1)]);
});

test('journal: what a rewriting has left behind is deleted when the journal is opened', async (t) => {
  const path = join(testFolder(t), 'index');
  const { journal } = await Twin.create(path);
  await journal.close();
  writeFileSync(`${path}.new`, 'anything');
  const opened = await Journal.open(path, optionsFor(new IndexModel()));
  t.false(existsSync(`${path}.new`));
  await opened.journal.close();
});
