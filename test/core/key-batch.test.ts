import test from 'ava';
import fc from 'fast-check';
import { createXXHash64, createXXHash128 } from 'hash-wasm';
import { sliceKeys, stringsOf } from '../../src/core/binding/key-batch.js';
import {
  ArgumentError,
  ConsistentHashRing,
  type Core,
  KeyBatch,
  KeyEncoder,
  type Keys,
  PoolAllocator,
} from '../../src/core/index.js';
import { BINARIES, freshCore } from '../_support/core/binaries.js';

const MIXED = ['', 'plain', 'grün', '漢字', '🙂', 'x'.repeat(10_000), 'é'.repeat(10_000), '\ufeffmark'];

function plainText(keys: readonly string[]): { text: string; lengths: number[] } {
  return {
    text: Buffer.concat(keys.map((key) => Buffer.from(key))).toString('hex'),
    lengths: keys.map((key) => Buffer.byteLength(key)),
  };
}

function textOf(batch: KeyBatch): { text: string; lengths: number[] } {
  return { text: Buffer.from(batch.text).toString('hex'), lengths: Array.from(batch.lengths) };
}

/** Has a core compute the batch's hashes; the words of both in hexadecimal. */
function hashesOf(core: Core, keys: Keys): { digests: string; positions: string } {
  const { area } = core;
  const words = (count: number): string => {
    const bytes = area.u8.slice(area.hashes, area.hashes + 4 * count);
    return Buffer.from(bytes).toString('hex');
  };
  area.writeDigests(keys, 4);
  const digests = words(4 * area.count);
  area.writePositions(keys, 4);
  return { digests, positions: words(2 * area.count) };
}

/** By the definition: of each key alone. */
async function naiveHashes(keys: readonly string[]): Promise<{ digests: string; positions: string }> {
  const [xxh3, xxh64] = [await createXXHash128(0, 0), await createXXHash64(0, 0)];
  const reversed = (hex: string): string => Buffer.from(hex, 'hex').reverse().toString('hex');
  // The canonical form has the high word first; reversed as a whole it is low word and high word, each little endian.
  const digests = keys.map((key) => reversed(xxh3.init().update(Buffer.from(key)).digest()));
  const positions = keys.map((key) => reversed(xxh64.init().update(Buffer.from(key)).digest()));
  return { digests: digests.join(''), positions: positions.join('') };
}

test('key batch: text and lengths are the UTF-8 of the keys', (t) => {
  for (const keys of [[], [''], ['a'], ['one', 'two'], MIXED]) {
    const batch = KeyBatch.of(keys);
    t.deepEqual(batch.keys, keys);
    t.is(batch.count, keys.length);
    t.deepEqual(textOf(batch), plainText(keys));
  }
});

test('key batch: text, lengths and hashes are computed once, and only when they are needed', (t) => {
  const core = freshCore();
  const batch = KeyBatch.of(MIXED);
  t.is(batch.digests, undefined);
  t.is(batch.positions, undefined);
  core.area.writeDigests(batch, 0);
  const { digests, text, lengths } = batch;
  t.is(batch.positions, undefined);
  core.area.writePositions(batch, 0);
  const { positions } = batch;
  freshCore().area.writeDigests(batch, 8);
  core.area.writePositions(batch, 8);
  t.is(batch.digests, digests);
  t.is(batch.positions, positions);
  t.is(batch.text, text);
  t.is(batch.lengths, lengths);
});

test('key batch: a list that changes afterwards does not change it', (t) => {
  const keys = ['a', 'b'];
  const batch = KeyBatch.of(keys);
  keys[0] = 'c';
  t.deepEqual(batch.keys, ['a', 'b']);
});

for (const name of BINARIES) {
  test(`key batch: hashes are those of each key alone, however the batch was made (${name})`, async (t) => {
    const core = freshCore(name);
    const key = fc.oneof(
      fc.string(),
      fc.string({ unit: 'binary' }),
      fc.string({ unit: 'grapheme', minLength: 30, maxLength: 300, size: 'max' }),
    );
    const property = fc.asyncProperty(
      fc.array(key, { maxLength: 20 }),
      fc.array(fc.nat({ max: 1000 }), { maxLength: 30 }),
      fc.nat({ max: 7 }),
      async (keys, picks, computed) => {
        const indices = keys.length === 0 ? [] : picks.map((pick) => pick % keys.length);
        const batch = KeyBatch.of(keys);
        // What is there by now is copied; what is not is computed anew.
        if (computed & 1) void batch.text;
        if (computed & 2) core.area.writeDigests(batch, 0);
        if (computed & 4) core.area.writePositions(batch, 0);
        const picked = batch.pick(indices);
        const chosen = indices.map((i) => keys[i] as string);
        const cases: [Keys, string[]][] = [
          [keys, keys],
          [picked, chosen],
          [picked.pick(indices.map((_, i) => i).reverse()), chosen.toReversed()],
          [KeyBatch.concat([batch, picked, batch]), [...keys, ...chosen, ...keys]],
          [batch, keys],
        ];
        for (const [made, expected] of cases) {
          t.deepEqual(hashesOf(core, made), await naiveHashes(expected));
          if (!(made instanceof KeyBatch)) continue;
          t.deepEqual(made.keys, expected);
          t.deepEqual(textOf(made), plainText(expected));
        }
      },
    );
    await t.notThrowsAsync(fc.assert(property, { numRuns: 40 }));
  });
}

test('key batch: picking everything in order, and one batch alone, are the batch itself', (t) => {
  const batch = KeyBatch.of(MIXED);
  t.is(batch.pick(MIXED.map((_, i) => i)), batch);
  t.is(KeyBatch.concat([batch]), batch);
  t.is(KeyBatch.concat([]).count, 0);
  t.not(batch.pick([0]), batch);
  t.not(batch.pick(MIXED.map((_, i) => MIXED.length - 1 - i)), batch);
});

test('key batch: a slice of all keys is the list or the batch itself, any other one is of its kind', (t) => {
  const batch = KeyBatch.of(MIXED);
  t.is(sliceKeys(MIXED, 0, MIXED.length), MIXED);
  t.is(sliceKeys(batch, 0, MIXED.length + 1), batch);
  for (const [start, end] of [
    [0, 3],
    [2, 5],
    [4, MIXED.length + 9],
    [3, 3],
  ] as const) {
    const part = sliceKeys(batch, start, end);
    t.true(part instanceof KeyBatch);
    t.deepEqual(stringsOf(part), MIXED.slice(start, end));
    t.deepEqual(textOf(part as KeyBatch), plainText(MIXED.slice(start, end)));
    t.deepEqual(sliceKeys(MIXED, start, end), MIXED.slice(start, end));
  }
});

test('key batch: what was computed is copied to picked and joined batches', (t) => {
  const core = freshCore();
  const batch = KeyBatch.of(MIXED);
  const early = batch.pick([1, 2, 5]);
  core.area.writeDigests(batch, 0);
  core.area.writePositions(batch, 0);
  for (const made of [early, batch.pick([3]), KeyBatch.concat([batch, early])]) {
    t.is(made.digests?.length, 4 * made.count);
    t.is(made.positions?.length, 2 * made.count);
  }
  const mixed = KeyBatch.concat([batch, KeyBatch.of(['new'])]);
  t.is(mixed.digests, undefined);
  t.is(mixed.positions, undefined);
});

test('key batch: keys that have no UTF-8 form, are no text or are too long are refused as lists of them are', (t) => {
  const core = freshCore();
  const ring = new ConsistentHashRing(1, { core });
  const wrong = [
    ['fine', '\ud800'],
    ['a\udc00b'],
    // The halves of a surrogate pair in two keys are not made whole by being written one after the other.
    ['\ud83d', '\ude42'],
    ['x'.repeat(70_000)],
    ['é'.repeat(40_000)],
    [5 as unknown as string],
    Array<string>(2 ** 20 + 1).fill(''),
  ];
  for (const keys of wrong) {
    const { message } = t.throws(() => ring.getNodesBatch(keys, 1), { instanceOf: ArgumentError });
    t.throws(() => KeyBatch.of(keys).text, { instanceOf: ArgumentError, message });
    t.throws(() => KeyBatch.of(keys).lengths, { instanceOf: ArgumentError, message });
    t.throws(() => ring.getNodesBatch(KeyBatch.of(keys), 1), { instanceOf: ArgumentError, message });
  }
  for (const keys of ['ab', null, undefined, 5]) {
    const { message } = t.throws(() => ring.getNodesBatch(keys as never, 1), { instanceOf: ArgumentError });
    t.throws(() => KeyBatch.of(keys as never), { instanceOf: ArgumentError, message });
  }
  for (const index of [-1, 2, 0.5, Number.NaN]) {
    t.throws(() => KeyBatch.of(['a', 'b']).pick([index]), { instanceOf: ArgumentError });
  }
});

test('key batch: an encoder makes one of object keys, with the same errors', (t) => {
  const core = freshCore();
  const encoder = new KeyEncoder({ tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false }, { core });
  const keys = ['', 'a', 'grün'];
  const batch = encoder.encodeBatch(keys, 'mamba');
  t.deepEqual(batch.keys, encoder.encodeKeys(keys, 'mamba'));
  t.deepEqual(textOf(batch), plainText(batch.keys));
  for (const key of ['\ud800', 'x'.repeat(65_537), 5 as unknown as string]) {
    t.throws(() => encoder.encodeBatch([key]), { instanceOf: ArgumentError });
  }
});

test('key batch: pools take batches of more pages than their memory had room for', (t) => {
  // The memory grows between the copy of the digests and the results.
  const core = freshCore();
  const pool = new PoolAllocator({ capacityBytes: 2 ** 40, core });
  const batch = KeyBatch.of(Array.from({ length: 50_000 }, (_, i) => `page ${i}`));
  const { offsets } = pool.publishBatch(batch, 10);
  t.true(offsets.every((offset, i) => offset === 10 * i));
  t.deepEqual(pool.lookupBatch(batch).offsets, offsets);
  pool.verify();
});
