import test from 'ava';
import { createXXHash64, createXXHash128 } from 'hash-wasm';
import { seededRandom } from '../../src/base/environment/random.js';
import { BINARIES, freshCore, hashesOf } from '../_support/core/binaries.js';

/** From the xxHash repository's own documentation and sanity checks. */
const PUBLISHED = [
  { text: '', xxh64: 'ef46db3751d8e999', xxh3: '99aa06d3014798d86001c324468d497f' },
  { text: 'a', xxh64: 'd24ec4f1a98c6e5b', xxh3: 'a96faf705af16834e6c632b61e964e1f' },
  { text: 'abc', xxh64: '44bc2cf5ad770999', xxh3: '06b05ab6733a618578af5f94892f3950' },
];

for (const name of BINARIES) {
  test(`hash: published vectors (${name})`, (t) => {
    const core = freshCore(name);
    for (const { text, xxh64, xxh3 } of PUBLISHED) {
      t.deepEqual(hashesOf(core, new TextEncoder().encode(text)), { xxh64, xxh3 });
    }
  });

  test(`hash: every length up to 1,100 bytes agrees with hash-wasm (${name})`, async (t) => {
    const core = freshCore(name);
    const xxh3 = await createXXHash128(0, 0);
    const xxh64 = await createXXHash64(0, 0);
    const xxh64Seeded = await createXXHash64(0x89abcdef, 0x1234567);
    const bytes = seededRandom(1).bytes(4096);
    const lengths = [...Array(1101).keys(), 2047, 2048, 2049, 4096];
    for (const length of lengths) {
      const input = bytes.subarray(0, length);
      const ours = hashesOf(core, input);
      if (ours.xxh3 !== xxh3.init().update(input).digest()) t.fail(`xxh3 of ${length} bytes`);
      if (ours.xxh64 !== xxh64.init().update(input).digest()) t.fail(`xxh64 of ${length} bytes`);
      const seeded = hashesOf(core, input, 0x123456789abcdefn).xxh64;
      if (seeded !== xxh64Seeded.init().update(input).digest()) t.fail(`xxh64 of ${length} bytes with a seed`);
    }
    t.pass();
  });
}
