import { createXXHash128 } from 'hash-wasm';
import { KEY_MAX_BYTES } from '../../../src/base/limits.js';
import { ArgumentError, KeyEncoder } from '../../../src/core/index.js';
import { freshCore } from '../../_support/core/binaries.js';
import { check, type Fuzzer, unlessRefused } from '../fuzzer.js';
import { inputValue, valueInput } from '../values.js';

type Hash = Awaited<ReturnType<typeof createXXHash128>>;

let parts: { readonly encoder: KeyEncoder; readonly hash: Hash } | undefined;

/**
 * A list of keys, each of anything, encoded at once; in the debug build of the core, which traps where memory is
 * misused.
 */
export const keyEncoding: Fuzzer = {
  name: 'key-encoding',
  what: 'keys of a program, through the WebAssembly core',
  form: 'value',
  seeds: () => [
    valueInput(['a', 'page-2', '']),
    valueInput(['grün', '🙂', 'x', { $repeat: ['k', 300] }]),
    valueInput([{ $repeat: ['k', 65_536] }, { $repeat: ['é', 32_768] }]),
    valueInput([{ $repeat: ['k', 65_537] }]),
  ],
  async run(input) {
    const found = inputValue(input, { odd: true });
    if (found === undefined || !Array.isArray(found.value)) return;
    parts ??= { encoder: newEncoder(), hash: await createXXHash128(0, 0) };
    const { encoder, hash } = parts;
    const keys = found.value as string[];
    const encoded = unlessRefused([ArgumentError], () => encoder.encode(keys))?.value;
    const areFine = keys.every(
      (key) => typeof key === 'string' && key.isWellFormed() && Buffer.byteLength(key) <= KEY_MAX_BYTES,
    );
    check((encoded !== undefined) === areFine, areFine ? 'refused good keys' : 'took a key that is none');
    if (encoded === undefined) return;
    const digests = Buffer.from(encoded.digests);
    check(digests.length === keys.length * 16, 'another number of digests than of keys');
    for (const [i, objectKey] of encoded.objectKeys.entries()) {
      check(objectKey.slice(33) === keys[i], 'another key');
      const expected = hash.init().update(objectKey).digest();
      check(digests.toString('hex', i * 16, i * 16 + 16) === expected, () => `digest of ${JSON.stringify(keys[i])}`);
    }
  },
};

function newEncoder(): KeyEncoder {
  const namespace = { modelName: 'm', tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };
  return new KeyEncoder(namespace, { core: freshCore('meshcache.debug.wasm') });
}
