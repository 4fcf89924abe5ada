import { existsSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { JOURNAL_MIN_BYTES } from '../../src/base/limits.js';
import type { IndexEntry } from '../../src/disk/journal/journal.js';
import {
  bytesOnDisk,
  type CrashedFiles,
  crashedFiles,
  entriesIn,
  entryOf,
  heldRewriting,
  IndexModel,
  journalEnv,
  seeded,
  Twin,
  testFolder,
} from '../_support/disk/journals.js';

/** Enough for several slices of a rewriting. */
const PAGES = 1600;
const yieldToOthers = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('journal: rewritten, it is shorter and leads to the same', async (t) => {
  const path = join(testFolder(t), 'index');
  const random = seeded(t);
  const twin = await Twin.create(path);
  for (let i = 0; i < 5000; i++) twin.change(random, 50);
  await twin.journal.flush();
  const before = twin.journal.stats();
  await twin.journal.rewrite();
  const after = twin.journal.stats();
  t.true(after.bytes < before.bytes / 10);
  t.is(after.rewrites, before.rewrites + 1);
  t.false(existsSync(`${path}.new`));
  await twin.journal.close();
  const again = await Twin.open(path);
  t.deepEqual(again.model.entries, twin.model.entries);
  await again.journal.close();
});

interface Crash {
  readonly files: CrashedFiles;
  /** What it may lead to: one of the states from the last that was flushed to the last that was said. */
  readonly states: readonly (readonly IndexEntry[])[];
}

test('journal: a crash at any step of a rewriting, changes going on, leaves what had been flushed or something newer', async (t) => {
  const path = join(testFolder(t), 'index');
  const random = seeded(t);
  const model = new IndexModel();
  const crashes: Crash[] = [];
  const history: (readonly IndexEntry[])[] = [];
  let flushed = 0;
  const crash = () => crashes.push({ files: crashedFiles(path), states: history.slice(flushed) });
  const snapshot = () => {
    const { entriesOf, ...order } = model.snapshot();
    return {
      ...order,
      entriesOf(some: readonly string[]) {
        crash();
        return entriesOf(some);
      },
    };
  };
  const twin = await Twin.create(path, { snapshot }, model);
  for (let page = 0; page < PAGES; page++) twin.put(entryOf(page));
  history.push(model.entries);
  await twin.journal.flush();
  for (let round = 0; round < 8; round++) {
    let isOver = false;
    const rewriting = twin.journal.rewrite().finally(() => {
      isOver = true;
    });
    for (let step = 0; !isOver || step < 5; step++) {
      for (let i = random(4); i > 0; i--) {
        twin.change(random, PAGES);
        history.push(model.entries);
      }
      const said = history.length - 1;
      const flush = twin.journal.flush().then(() => {
        flushed = Math.max(flushed, said);
      });
      if (random(2) === 0) await flush;
      else await yieldToOthers();
      crash();
    }
    await rewriting;
  }
  await twin.journal.close();

  const folder = testFolder(t);
  for (const [i, { files, states }] of crashes.entries()) {
    const entries = await entriesIn(folder, files.index, files.rewritten);
    t.true(
      states.some((state) => isSame(state, entries)),
      `crash ${i}: none of ${states.length} states`,
    );
  }
  const rewritten = crashes.filter(({ files }) => files.rewritten !== undefined).length;
  t.log(`${crashes.length} crashes, ${rewritten} with a second file`);
  t.true(rewritten > 8);
});

function isSame(a: readonly IndexEntry[], b: readonly IndexEntry[]): boolean {
  return a.length === b.length && a.every((entry, i) => entry.key === b[i]?.key && entry.checksum === b[i]?.checksum);
}

for (const maxBytes of [JOURNAL_MIN_BYTES, 300_000]) {
  test(`journal: both files together stay within ${maxBytes} bytes while ten times that is written`, async (t) => {
    const path = join(testFolder(t), 'index');
    const random = seeded(t);
    const twin = await Twin.create(path, { maxBytes });
    let most = 0;
    const sample = () => {
      most = Math.max(most, bytesOnDisk(path));
    };
    const flushing = new Set<Promise<void>>();
    for (let said = 0, i = 0; said < 10 * maxBytes; i++) {
      const key = `${random(20) === 0 ? 'long'.repeat(random(1000)) : 'k'}-${i}`;
      twin.replace({ ...entryOf(random(2000)), key });
      for (let uses = random(10); uses > 0; uses--) twin.use(random(2000) * 4096);
      said += key.length + 19;
      if (random(5) === 0) {
        const flush = twin.journal.flush();
        flushing.add(flush);
        await (random(3) === 0 ? flush : yieldToOthers());
      }
      sample();
    }
    await Promise.all(flushing);
    sample();
    const { rewrites, entries } = twin.journal.stats();
    t.log(`${rewrites} rewrites, ${entries} entries, at most ${most} bytes`);
    t.true(most <= maxBytes, `${most} bytes`);
    t.true(rewrites >= 10);
    t.is(entries, twin.model.entries.length);
    await twin.journal.close();
    const again = await Twin.open(path, { maxBytes });
    t.deepEqual(again.model.entries, twin.model.entries);
    t.is(again.journal.hasRoomFor('k'), twin.journal.hasRoomFor('k'));
    await again.journal.close();
  });
}

test('journal: opened with a smaller limit, it comes within it', async (t) => {
  const path = join(testFolder(t), 'index');
  const first = await Twin.create(path, { maxBytes: 4 << 20 });
  for (let page = 0; page < 8_000; page++) first.journal.put(entryOf(page));
  await first.journal.close();
  const twin = await Twin.open(path, { maxBytes: JOURNAL_MIN_BYTES });
  t.true(bytesOnDisk(path) > JOURNAL_MIN_BYTES);
  t.false(twin.journal.hasRoomFor('another'));
  twin.replace(entryOf(30_000));
  await twin.journal.flush();
  t.true(twin.model.entries.length < 2000);
  t.true(bytesOnDisk(path) <= JOURNAL_MIN_BYTES);
  await twin.journal.close();
  const again = await Twin.open(path, { maxBytes: JOURNAL_MIN_BYTES });
  t.deepEqual(again.model.entries, twin.model.entries);
  await again.journal.close();
});

test('journal: closed in the middle of a rewriting, it keeps everything and leaves no second file', async (t) => {
  const path = join(testFolder(t), 'index');
  const { files, hold, release } = heldRewriting();
  const twin = await Twin.create(path, { env: { ...journalEnv, files } });
  for (let page = 0; page < PAGES; page++) twin.put(entryOf(page));
  await twin.journal.flush();
  hold();
  const rewriting = twin.journal.rewrite();
  twin.use(entryOf(5).offset);
  const ending = t.throwsAsync(rewriting, { message: /stopped/ });
  const flushed = twin.journal.flush();
  const closed = twin.journal.close();
  await flushed;
  for (let turns = 0; turns < 20; turns++) await yieldToOthers();
  release();
  await closed;
  await ending;
  t.false(existsSync(`${path}.new`));
  const again = await Twin.open(path);
  t.deepEqual(again.model.entries, twin.model.entries);
  await again.journal.close();
});
