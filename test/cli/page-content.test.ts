import { createHash } from 'node:crypto';
import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { PageContent } from '../../src/cli/cluster/page-content.js';

const PAGE_BYTES = 200_000;

function keyOf(name: string): string {
  return createHash('sha256').update(name).digest('hex');
}

function pageOf(key: string, bytes = PAGE_BYTES): Uint8Array {
  const page = new Uint8Array(bytes);
  new PageContent().fill(page, key);
  return page;
}

test('page content: a page has no wrong byte, whole or in pieces', (t) => {
  const key = keyOf('a');
  const page = pageOf(key);
  const content = new PageContent();
  t.is(content.wrongBytes(page, key), 0);
  for (const cut of [4, 4096, 65_536, 100_000]) {
    t.is(content.wrongBytes(page.subarray(0, cut), key), 0);
    t.is(content.wrongBytes(page.subarray(cut), key, cut), 0);
  }
});

test('page content: every flipped bit is one wrong byte', (t) => {
  const key = keyOf('flip');
  const page = pageOf(key);
  const content = new PageContent();
  const seed = Date.now() >>> 0;
  const random = seededRandom(seed);
  for (let i = 0; i < 200; i++) {
    const at = random.u32() % PAGE_BYTES;
    const bit = 1 << (random.u32() % 8);
    page[at] = (page[at] as number) ^ bit;
    t.is(content.wrongBytes(page, key), 1, `seed ${seed}, byte ${at}`);
    page[at] = (page[at] as number) ^ bit;
  }
});

test('page content: another page, another place and a torn page are noticed', (t) => {
  const key = keyOf('one');
  const other = pageOf(keyOf('two'));
  const content = new PageContent();
  t.true(content.wrongBytes(other, key) > PAGE_BYTES * 0.98);

  const shifted = pageOf(key);
  shifted.copyWithin(0, 4096);
  const words = (PAGE_BYTES - 4096) / 4;
  t.true(content.wrongBytes(shifted.subarray(0, words * 4), key) >= words);

  const torn = pageOf(key);
  torn.set(other.subarray(150_000), 150_000);
  const wrong = content.wrongBytes(torn, key);
  t.true(wrong > 50_000 * 0.98 && wrong <= 50_000);

  t.true(content.wrongBytes(new Uint8Array(PAGE_BYTES), key) > PAGE_BYTES * 0.98);
});

test('page content: keys that share their first or their second eight digits have different pages', (t) => {
  const content = new PageContent();
  const page = pageOf(`0123456789abcdef${'0'.repeat(48)}`);
  for (const digits of ['0123456789abcdee', '1123456789abcdef']) {
    t.true(content.wrongBytes(page, `${digits}${'0'.repeat(48)}`) > PAGE_BYTES / 8);
  }
});

test('page content: no word of a page stands twice in it', (t) => {
  const page = pageOf(keyOf('words'), 400_000);
  t.is(new Set(new Uint32Array(page.buffer)).size, 100_000);
});

test('page content: keys that are no hexadecimal digits and pages that are no words are refused', (t) => {
  const content = new PageContent();
  t.throws(() => content.fill(new Uint8Array(64), 'hello world'), { code: 'ERR_ARGUMENT' });
  t.throws(() => content.fill(new Uint8Array(63), keyOf('x')), { code: 'ERR_ARGUMENT' });
});
