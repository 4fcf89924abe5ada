import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { type IndexEntry, Journal, JournalDamage } from '../../src/disk/journal/journal.js';
import { crc32 } from '../../src/memory/checksum.js';
import { entriesIn, entryOf, IndexModel, optionsFor, Twin, testFolder } from '../_support/disk/journals.js';

interface Moment {
  readonly bytes: number;
  readonly entries: readonly IndexEntry[];
}

/** A journal of several blocks: its bytes, and what it led to after each. */
async function written(t: ExecutionContext): Promise<{ bytes: Buffer; moments: Moment[] }> {
  const path = join(testFolder(t), 'index');
  const twin = await Twin.create(path);
  const moments: Moment[] = [];
  const steps = [
    () => {},
    () => twin.put(entryOf(1)),
    () => twin.put(entryOf(2)),
    () => [twin.use(entryOf(1).offset), twin.put(entryOf(3))],
    () => [twin.remove('page-2'), twin.put({ ...entryOf(4), key: 'last \0 €' })],
  ];
  for (const step of steps) {
    step();
    await twin.journal.flush();
    moments.push({ bytes: statSync(path).size, entries: twin.model.entries });
  }
  await twin.journal.close();
  return { bytes: readFileSync(path), moments };
}

function momentAt(moments: readonly Moment[], length: number): Moment | undefined {
  return moments.findLast(({ bytes }) => bytes <= length);
}

test('journal: truncated anywhere, it leads to what it did when it ended there', async (t) => {
  const { bytes, moments } = await written(t);
  const folder = testFolder(t);
  for (let length = 0; length <= bytes.length; length++) {
    const moment = momentAt(moments, length);
    const opening = entriesIn(folder, bytes.subarray(0, length));
    if (moment === undefined) await t.throwsAsync(opening, { instanceOf: JournalDamage });
    else t.deepEqual(await opening, moment.entries, `${length} bytes`);
  }
});

test('journal: a last block of which only the first bytes are there, and zeros after it, is cut off', async (t) => {
  const { bytes, moments } = await written(t);
  const folder = testFolder(t);
  const [before, whole] = moments.slice(-2) as [Moment, Moment];
  for (let length = before.bytes; length < bytes.length; length++) {
    for (const zeros of [1, 11, 12, 13, bytes.length - length, 5000]) {
      const torn = Buffer.concat([bytes.subarray(0, length), Buffer.alloc(zeros)]);
      const isWholeAfterAll = torn.subarray(0, bytes.length).equals(bytes);
      const { entries } = isWholeAfterAll ? whole : before;
      t.deepEqual(await entriesIn(folder, torn), entries, `${length} bytes and ${zeros} zeros`);
    }
  }
});

test('journal: after a torn end was cut off, it goes on', async (t) => {
  const { bytes, moments } = await written(t);
  const [before] = moments.slice(-2) as [Moment, Moment];
  const path = join(testFolder(t), 'index');
  for (const tail of [bytes.subarray(before.bytes, -3), Buffer.alloc(100_000)]) {
    writeFileSync(path, Buffer.concat([bytes.subarray(0, before.bytes), tail]));
    const twin = await Twin.open(path);
    t.is(statSync(path).size, before.bytes);
    twin.put(entryOf(7));
    await twin.journal.close();
    const again = await Twin.open(path);
    t.deepEqual(again.model.entries, [...before.entries, entryOf(7)]);
    await again.journal.close();
  }
});

test('journal: one flipped bit is damage, or costs the last block', async (t) => {
  const { bytes, moments } = await written(t);
  const folder = testFolder(t);
  const [before] = moments.slice(-2) as [Moment, Moment];
  t.true(bytes.length > 200);
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const flipped = Buffer.from(bytes);
    flipped[bit >> 3] = (flipped[bit >> 3] as number) ^ (1 << (bit & 7));
    const outcome = await entriesIn(folder, flipped).catch((error: unknown) => error);
    if (outcome instanceof JournalDamage)
      t.deepEqual(readFileSync(join(folder, 'copy')), flipped, 'it is left as it is');
    else t.deepEqual(outcome, before.entries, `bit ${bit}`);
    if (bit >> 3 < before.bytes) t.true(outcome instanceof JournalDamage, `bit ${bit}`);
  }
});

test('journal: zeros in the middle are damage', async (t) => {
  const { bytes, moments } = await written(t);
  const folder = testFolder(t);
  for (let i = 1; i + 1 < moments.length; i++) {
    const zeroed = Buffer.from(bytes).fill(0, (moments[i - 1] as Moment).bytes, (moments[i] as Moment).bytes);
    await t.throwsAsync(entriesIn(folder, zeroed), { instanceOf: JournalDamage, message: /damaged at byte/ });
  }
});

test('journal: one of another store, of another version, or none at all is refused and left alone', async (t) => {
  const { bytes } = await written(t);
  const path = join(testFolder(t), 'index');
  writeFileSync(path, bytes);
  const storeId = 'f'.repeat(32);
  const opening = Journal.open(path, { ...optionsFor(new IndexModel()), storeId });
  await t.throwsAsync(opening, { instanceOf: JournalDamage, message: /belongs to store 0011/ });
  t.deepEqual(readFileSync(path), bytes);

  const future = Buffer.from(bytes);
  future.writeUInt32LE(4, 4);
  future.writeUInt32LE(crc32(future.subarray(0, 28)), 28);
  const folder = testFolder(t);
  await t.throwsAsync(entriesIn(folder, future), { instanceOf: JournalDamage, message: /version 4/ });
  await t.throwsAsync(entriesIn(folder, Buffer.alloc(0)), { instanceOf: JournalDamage });
  await t.throwsAsync(entriesIn(folder, Buffer.alloc(4096)), { instanceOf: JournalDamage });
  await t.throwsAsync(entriesIn(folder, Buffer.from('{"format":1}'.repeat(10))), { instanceOf: JournalDamage });
});

test('journal: records that are none are damage, though their checksum is right', async (t) => {
  const { bytes } = await written(t);
  const folder = testFolder(t);
  const bodies = [[0], [5], [255], [3, 0, 0], [1, 0, 0], [2, 9, 0, 0, 0, 65], [4, 1, 255, 255, 255, 255]];
  for (const body of bodies.map((records) => Buffer.from(records))) {
    const header = Buffer.alloc(12);
    header.writeUInt32LE(body.length, 0);
    header.writeUInt32LE(crc32(body), 4);
    header.writeUInt32LE(crc32(header.subarray(0, 8)), 8);
    const opening = entriesIn(folder, Buffer.concat([bytes, header, body]));
    await t.throwsAsync(opening, { instanceOf: JournalDamage, message: /record/ }, body.toString('hex'));
  }
});
