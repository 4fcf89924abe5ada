import test from 'ava';
import fc from 'fast-check';
import { OBJECT_HEADER_BYTES, OBJECT_KEY_MAX_BYTES, OBJECT_RETRY_MAX_MS } from '../../src/base/limits.js';
import {
  decodeHeader,
  encodeHeader,
  isStorable,
  type ObjectHeader,
  ObjectNames,
  writerIdOf,
} from '../../src/objects/object-format.js';
import { CircuitBreaker } from '../../src/objects/object-store.js';
import { searchChain } from '../../src/store/objects/object-search.js';
import { systemClock } from '../../src/system/system-clock.js';

const header: fc.Arbitrary<ObjectHeader> = fc.record({
  kind: fc.constantFrom('page', 'deleted', 'cleared', 'test'),
  key: fc.string({ unit: 'grapheme', maxLength: 60 }).filter(isStorable),
  length: fc.nat(64 * 2 ** 20),
  checksum: fc.nat(2 ** 32 - 1),
  generation: fc.nat(2 ** 32 - 1),
  version: fc.maxSafeNat(),
  expires: fc.maxSafeNat(),
  writer: fc.string({ unit: 'grapheme', maxLength: 20 }).map(writerIdOf),
});

test('objects: a header is read as it was written, and one with any other bit is not read', (t) => {
  fc.assert(
    fc.property(header, fc.nat(8 * OBJECT_HEADER_BYTES - 1), (given, bit) => {
      const bytes = encodeHeader(given);
      t.is(bytes.length, OBJECT_HEADER_BYTES);
      t.deepEqual(decodeHeader(bytes), given);
      bytes[bit >> 3] = (bytes[bit >> 3] as number) ^ (1 << (bit & 7));
      t.is(decodeHeader(bytes), undefined);
    }),
    { numRuns: 200 },
  );
});

test('objects: no bytes, few bytes and any bytes are no header', (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 2 * OBJECT_HEADER_BYTES }), (bytes) => {
      t.is(decodeHeader(bytes), undefined);
    }),
  );
});

test('objects: keys that are too long, or would come back as others, are not stored', (t) => {
  t.true(isStorable('k'.repeat(OBJECT_KEY_MAX_BYTES)));
  t.false(isStorable('k'.repeat(OBJECT_KEY_MAX_BYTES + 1)));
  t.false(isStorable('\ud800'));
  t.is(writerIdOf('node-1'), 'node-1');
  t.regex(writerIdOf('n'.repeat(300)), /^sha256:[0-9a-f]{64}$/);
});

test('objects: names are spread by leading digits, below the prefix and the version of the format', (t) => {
  const name = new ObjectNames('a/').ofPage('key');
  t.regex(name, /^a\/v1\/pages\/([0-9a-f]{2})\/([0-9a-f]{2})\/\1\2[0-9a-f]{60}$/);
  t.not(new ObjectNames('').ofPage('key2'), new ObjectNames('').ofPage('key'));
});

test('objects: a store that fails is tried again after pauses that grow, by one request', (t) => {
  let nowMs = 0;
  const breaker = new CircuitBreaker({ ...systemClock, nowMs: () => nowMs });
  t.true(breaker.take());
  t.true(breaker.take());
  breaker.ended(false);
  breaker.ended(false);
  t.false(breaker.take());
  nowMs += 1_000;
  t.true(breaker.take());
  t.false(breaker.take());
  breaker.ended(false);
  nowMs += 1_999;
  t.false(breaker.take());
  nowMs += 1;
  t.true(breaker.take());
  breaker.ended(true);
  t.true(breaker.take());
  t.true(breaker.take());
  for (let i = 0; i < 20; i++) {
    nowMs += OBJECT_RETRY_MAX_MS;
    t.true(breaker.take());
    breaker.ended(false);
  }
});

test('objects: a chain is followed as far as it goes, from either end, and one that is not there costs two looks', async (t) => {
  const looked = async (there: readonly boolean[]): Promise<{ found: number[]; looks: number }> => {
    const found: number[] = [];
    let looks = 0;
    const look = async (indices: readonly number[]): Promise<boolean[]> => {
      looks += indices.length;
      for (const i of indices) if (there[i]) found.push(i);
      return indices.map((i) => there[i] === true);
    };
    await searchChain(there.length, look, () => 8);
    return { found: found.sort((a, b) => a - b), looks };
  };
  const flags = (text: string): boolean[] => [...text].map((each) => each === '1');
  t.deepEqual(await looked([]), { found: [], looks: 0 });
  t.deepEqual(await looked(flags('0'.repeat(500))), { found: [], looks: 2 });
  t.deepEqual((await looked(flags('1'.repeat(100)))).found.length, 100);
  const prefix = await looked(flags('1'.repeat(50) + '0'.repeat(50)));
  t.is(prefix.found.length, 50);
  t.true(prefix.looks <= 58);
  t.deepEqual((await looked(flags(`${'0'.repeat(90)}1111`))).found, [90, 91, 92, 93]);
  t.deepEqual((await looked(flags('1'))).found, [0]);
});
