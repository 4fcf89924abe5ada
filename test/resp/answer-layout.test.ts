import test from 'ava';
import { HostRegion } from '../../src/memory/host-region.js';
import { AnswerLayout } from '../../src/resp/values/answer-layout.js';
import { EMPTY_VALUE } from '../../src/resp/values/resp-keys.js';
import { content } from '../_support/support.js';

const NIL = Buffer.from('$-1\r\n');
const ARRAY = Buffer.from('*2\r\n');

/** The answers to reads that found values of these lengths, after the values were read. */
function answers(found: readonly (number | null)[], read: readonly (Uint8Array | 'longer' | null)[]) {
  const layout = new AnswerLayout(NIL);
  for (const [i, length] of found.entries()) layout.add(length, i === 0 ? ARRAY : undefined);
  const memory = Buffer.alloc(layout.bytes, 'x');
  layout.write(memory);
  const region = HostRegion.wrap(memory);
  const { indices, pages } = layout.values(region);
  const lengths = new Map<number, number | null>();
  for (const [j, i] of indices.entries()) {
    const value = read[i] ?? null;
    if (value instanceof Uint8Array) pages[j]?.views[0]?.set(value);
    lengths.set(i, value === 'longer' ? (found[i] as number) + 1 : (value?.length ?? null));
  }
  region.free();
  const { pieces, hits } = layout.pieces(memory, lengths);
  return { layout, pieces, hits, text: Buffer.concat(pieces).toString('latin1') };
}

/** What Redis would answer. */
function expected(values: readonly (Uint8Array | null)[]): string {
  const bulk = (value: Uint8Array | null) =>
    value === null ? '$-1\r\n' : `$${value.length}\r\n${Buffer.from(value).toString('latin1')}\r\n`;
  return `*2\r\n${values.map(bulk).join('')}`;
}

test('answer layout: values that are as they were found make one piece', (t) => {
  const values = [content(1, 100), null, content(2, 1), content(3, 99_999)];
  const { layout, pieces, hits, text } = answers([100, null, 1, 99_999], values);
  t.is(text, expected(values));
  t.is(pieces.length, 1);
  t.deepEqual(hits, [true, false, true, true]);
  t.is(layout.bytes, text.length);
  t.is(layout.valueBytes, 100_100);
});

test('answer layout: values that are gone, shorter or empty have their own answer', (t) => {
  const values = [null, content(1, 5), content(2, 7), EMPTY_VALUE, content(3, 16), null];
  const { hits, text } = answers([10, 5, 1000, 16, 16, 3], values);
  t.is(text, expected(values.with(3, new Uint8Array())));
  t.deepEqual(hits, [false, true, true, true, true, false]);
});

test('answer layout: a value that is longer now is left out with all after it', (t) => {
  const values = [content(1, 10), 'longer', content(2, 10)] as const;
  const { hits, text } = answers([10, 10, 10], values);
  t.is(text, expected([values[0]]));
  t.deepEqual(hits, [true]);
  t.deepEqual(answers([10], ['longer']).hits, []);
});
