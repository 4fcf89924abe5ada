import test from 'ava';
import { crc32, crc32Views } from '../../src/memory/checksum.js';
import { content } from '../_support/support.js';

test('checksum: the published check value of CRC-32 (IEEE)', (t) => {
  t.is(crc32(new TextEncoder().encode('123456789')), 0xcbf43926);
  t.is(crc32(new Uint8Array(0)), 0);
});

test('checksum: pieces give the sum of the whole, in private and in shared memory', (t) => {
  const whole = content(1, 100_003);
  const shared = new Uint8Array(new SharedArrayBuffer(whole.length));
  shared.set(whole);
  for (const cut of [0, 1, 7, 50_000, 100_003]) {
    t.is(crc32(whole.subarray(cut), crc32(whole.subarray(0, cut))), crc32(whole));
    t.is(crc32Views([shared.subarray(0, cut), shared.subarray(cut)]), crc32(whole));
  }
  t.is(crc32Views([]), 0);
});
