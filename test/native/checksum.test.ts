import { readFileSync } from 'node:fs';
import { crc32 as zlibCrc32 } from 'node:zlib';
import test from 'ava';
import fc from 'fast-check';
import { addon, suffix, withAddon } from '../_support/native/addon.js';
import { content } from '../_support/support.js';

const MAX_LENGTH = 80_000;
const SPARE = 256;

const source = new Uint8Array(new SharedArrayBuffer(MAX_LENGTH + SPARE));
source.set(content(1, source.length));

/** Around the widths of vectors and blocks and the length from which stores go past the caches; and anything. */
const lengths = fc.oneof(
  fc.integer({ min: 0, max: 600 }),
  fc.integer({ min: 16 * 1024 - 300, max: 16 * 1024 + 600 }),
  fc.integer({ min: 0, max: MAX_LENGTH }),
);
const offsets = fc.integer({ min: 0, max: SPARE / 2 });
const seeds = fc.integer({ min: 0, max: 0xffff_ffff });

/** Ways, and the words of the kernel for what a processor needs to have for them. */
const NEEDED: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  x64: {
    'vpclmulqdq-avx512': ['pclmulqdq', 'sse4_1', 'vpclmulqdq', 'avx512f'],
    'vpclmulqdq-avx2': ['pclmulqdq', 'sse4_1', 'vpclmulqdq', 'avx2'],
    pclmulqdq: ['pclmulqdq', 'sse4_1'],
  },
  arm64: { pmull: ['pmull'] },
};
/** Features of the processor, as the kernel names them. An emulator of arm64 shows the line of another processor. */
const { stated } = (process.arch === 'arm64' ? /^Features\s*: (?<stated>.*)$/m : /^flags\s*: (?<stated>.*)$/m).exec(
  readFileSync('/proc/cpuinfo', 'utf8'),
)?.groups ?? { stated: 'pmull' };

withAddon(`checksum: every way that this processor has is found, and no other${suffix}`, (t) => {
  const features = (stated as string).split(' ');
  const ways = Object.entries(NEEDED[process.arch] ?? {}).filter(([, needed]) =>
    needed.every((feature) => features.includes(feature)),
  );
  t.deepEqual(Object.keys(addon.checksumPaths), [...ways.map(([name]) => name), 'tables']);
});

withAddon(`checksum: every way of this processor gives what zlib gives${suffix}`, (t) => {
  t.true(Object.keys(addon.checksumPaths).includes(addon.checksumPath));
  for (const [name, sum] of Object.entries(addon.checksumPaths)) {
    fc.assert(
      fc.property(offsets, lengths, seeds, (offset, length, seed) => {
        const view = source.subarray(offset, offset + length);
        return sum(view, seed) === zlibCrc32(view, seed) && addon.crc32(view, seed) === zlibCrc32(view, seed);
      }),
      { numRuns: 2000 },
    );
    t.log(name);
  }
});

withAddon(`checksum: every way copies all bytes, no others, and sums what it copied${suffix}`, (t) => {
  const target = new Uint8Array(MAX_LENGTH + 2 * SPARE);
  t.true(Object.keys(addon.checksumPaths).length > 0);
  for (const [name, sum] of Object.entries(addon.checksumPaths)) {
    fc.assert(
      fc.property(offsets, offsets, lengths, seeds, (from, to, length, seed) => {
        const view = source.subarray(from, from + length);
        target.fill(0xa5, 0, to + length + SPARE);
        const isRight = sum(view, seed, target.subarray(to, to + length)) === zlibCrc32(view, seed);
        const outside = [...target.subarray(0, to), ...target.subarray(to + length, to + length + SPARE)];
        return (
          isRight && Buffer.compare(target.subarray(to, to + length), view) === 0 && outside.every((b) => b === 0xa5)
        );
      }),
      { numRuns: 500 },
    );
    t.log(name);
  }
});

withAddon(`checksum: taken in pieces it is the same as at once${suffix}`, (t) => {
  for (const sum of Object.values(addon.checksumPaths)) {
    fc.assert(
      fc.property(fc.array(lengths, { maxLength: 4 }), (parts) => {
        let at = 0;
        let seed = 0;
        for (const part of parts) {
          const end = Math.min(at + part, source.length);
          seed = sum(source.subarray(at, end), seed);
          at = end;
        }
        return seed === zlibCrc32(source.subarray(0, at));
      }),
    );
  }
  t.true(Object.keys(addon.checksumPaths).includes('tables'));
});

withAddon(`checksum: a wrong call throws${suffix}`, (t) => {
  const wrong = addon.crc32 as (view: unknown, seed: unknown) => number;
  for (const view of [undefined, null, 'text', 7, [], {}, new Uint16Array(4), new ArrayBuffer(4)]) {
    t.throws(() => wrong(view, 0), { instanceOf: TypeError, message: /Uint8Array/ });
  }
  for (const seed of [undefined, '0', -1, 0.5, Number.NaN, 2 ** 32, 1n]) {
    t.throws(() => wrong(new Uint8Array(1), seed), { instanceOf: TypeError, message: /seed/ });
  }
});

test('checksum: the check value of CRC-32 is that of the catalogue', (t) => {
  const digits = Buffer.from('123456789');
  t.is(zlibCrc32(digits), 0xcbf43926);
  for (const sum of Object.values(addon?.checksumPaths ?? {})) t.is(sum(digits, 0), 0xcbf43926);
});
