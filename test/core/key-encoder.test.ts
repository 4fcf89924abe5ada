import test from 'ava';
import { createXXHash128 } from 'hash-wasm';
import { ArgumentError, KeyEncoder, type KeyNamespace } from '../../src/core/index.js';
import { freshCore } from '../_support/core/binaries.js';

const NAMESPACE: KeyNamespace = {
  modelName: 'llama',
  dtype: 'bf16',
  layout: 'layer_first',
  tag: 'prod',
  tpRank: 1,
  tpSize: 8,
  ppRank: 0,
  ppSize: 2,
  isMlaModel: false,
};

function prefixOf(namespace: KeyNamespace, pool?: string): string {
  const [key] = new KeyEncoder(namespace, { core: freshCore() }).encodeKeys(['k'], pool);
  return (key as string).slice(0, 33);
}

test('keys: an object key is 32 hexadecimal characters, a slash and the key', (t) => {
  const encoder = new KeyEncoder(NAMESPACE, { core: freshCore() });
  const keys = ['', 'a', 'x/y', 'grün', '🙂'];
  const objectKeys = encoder.encodeKeys(keys);
  const prefix = objectKeys[0] as string;
  t.regex(prefix, /^[0-9a-f]{32}\/$/);
  t.deepEqual(
    objectKeys,
    keys.map((key) => prefix + key),
  );
});

test('keys: digests are XXH3-128 of the object keys', async (t) => {
  const encoder = new KeyEncoder(NAMESPACE, { core: freshCore() });
  const { objectKeys, digests } = encoder.encode(['', 'a', 'grün', 'x'.repeat(10_000)], 'mamba');
  const hash = await createXXHash128(0, 0);
  const expected = objectKeys.map((key) => hash.init().update(key).digest()).join('');
  t.is(Buffer.from(digests).toString('hex'), expected);
});

test('keys: every field of the namespace, and the pool, keeps apart', (t) => {
  const others: KeyNamespace[] = [
    { ...NAMESPACE, modelName: 'llama2' },
    { ...NAMESPACE, modelName: undefined },
    { ...NAMESPACE, modelName: '' },
    { ...NAMESPACE, dtype: 'fp8' },
    { ...NAMESPACE, layout: 'page_first' },
    { ...NAMESPACE, tag: undefined },
    { ...NAMESPACE, tpRank: 2 },
    { ...NAMESPACE, tpSize: 4 },
    { ...NAMESPACE, ppRank: 1 },
    { ...NAMESPACE, ppSize: 1 },
    { ...NAMESPACE, isMlaModel: true },
    { ...NAMESPACE, fingerprint: '5eed' },
    { ...NAMESPACE, fingerprint: '5eee' },
    // The same text, cut differently.
    { ...NAMESPACE, modelName: 'llamabf16', dtype: '' },
    { ...NAMESPACE, modelName: 'llam', dtype: 'abf16' },
    { ...NAMESPACE, modelName: undefined, dtype: 'llama', layout: 'bf16', tag: 'layer_first' },
  ];
  const prefixes = [prefixOf(NAMESPACE), prefixOf(NAMESPACE, 'mamba'), ...others.map((other) => prefixOf(other))];
  t.is(new Set(prefixes).size, prefixes.length);
});

test('keys: an empty fingerprint is none', (t) => {
  t.is(prefixOf({ ...NAMESPACE, fingerprint: '' }), prefixOf(NAMESPACE));
});

test('keys: the ranks of an MLA model share', (t) => {
  const mla = { ...NAMESPACE, isMlaModel: true };
  t.is(prefixOf(mla), prefixOf({ ...mla, tpRank: 5 }));
  t.not(prefixOf(mla), prefixOf({ ...mla, ppRank: 1 }));
});

test('keys: what has no UTF-8 form, is no text or is too long is refused', (t) => {
  const encoder = new KeyEncoder(NAMESPACE, { core: freshCore() });
  for (const key of ['\ud800', 'x'.repeat(65_537), 'é'.repeat(32_769), 5 as unknown as string]) {
    t.throws(() => encoder.encodeKeys([key]), { instanceOf: ArgumentError });
    t.throws(() => encoder.encode([key]), { instanceOf: ArgumentError });
  }
  t.notThrows(() => encoder.encode(['x'.repeat(65_536), 'é'.repeat(32_768)]));
  t.throws(() => encoder.encodeKeys(['k'], '\udc00'), { instanceOf: ArgumentError });
  const namespaces = [{ tag: '\ud800' }, { tpRank: -1 }, { ppSize: 1.5 }, { tpSize: 2 ** 32 }];
  for (const wrong of namespaces) {
    t.throws(() => new KeyEncoder({ ...NAMESPACE, ...wrong }, { core: freshCore() }), { instanceOf: ArgumentError });
  }
});

test('keys: a list that is text, and a boolean that is text, are refused', (t) => {
  // Cause: text was taken for the list of its characters, and "false" for true.
  const encoder = new KeyEncoder(NAMESPACE, { core: freshCore() });
  for (const keys of ['abc', undefined, null, 5]) {
    t.throws(() => encoder.encodeKeys(keys as never), { instanceOf: ArgumentError });
    t.throws(() => encoder.encode(keys as never), { instanceOf: ArgumentError });
  }
  t.throws(() => encoder.encodeKeys(['k'], null as never), { instanceOf: ArgumentError });
  for (const isMlaModel of ['false', 0, undefined, null]) {
    const wrong = { ...NAMESPACE, isMlaModel: isMlaModel as never };
    t.throws(() => new KeyEncoder(wrong, { core: freshCore() }), { instanceOf: ArgumentError });
  }
  t.throws(() => new KeyEncoder(null as never, { core: freshCore() }), { instanceOf: ArgumentError });
});
