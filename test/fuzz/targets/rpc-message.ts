import { isDeepStrictEqual } from 'node:util';
import { ProtocolError } from '../../../src/base/errors.js';
import { RPC_MESSAGE_MAX_DEPTH } from '../../../src/base/limits.js';
import { MessageCodec } from '../../../src/rpc/message.js';
import { check, type Fuzzer, unlessRefused } from '../fuzzer.js';

/** Of a map, in a message. */
const KEY_MAX_BYTES = 255;
const codec = new MessageCodec();

/** One of each kind that msgpack has, also those that are refused. */
const TOKENS = [
  '80',
  '81a161',
  '8f',
  '90',
  '91',
  '9f',
  'a0',
  'a161',
  'bf',
  'c0',
  'c1',
  'c2',
  'c3',
  'c400',
  'c50000',
  'c600000000',
  'c70000',
  'ca7fc00000',
  'cb7ff8000000000000',
  'cc80',
  'cdffff',
  'ceffffffff',
  'cfffffffffffffffff',
  'd080',
  'd18000',
  'd280000000',
  'd38000000000000000',
  'd47240',
  'd6ff00000000',
  'd90161',
  'da000161',
  'db0000000161',
  'dc0001',
  'dd00000001',
  'de0001a161',
  'df00000001a161',
  'ffffffff',
  'a95f5f70726f746f5f5f',
  'd9095f5f70726f746f5f5f',
  'ab636f6e7374727563746f72',
  'efbbbf',
  'eda080',
].map((hex) => Buffer.from(hex, 'hex'));

export const rpcMessage: Fuzzer = {
  name: 'rpc-message',
  what: 'messages of the control plane: decoding, and the same value out of what is encoded of it',
  form: 'bytes',
  tokens: TOKENS,
  seeds: () =>
    [
      null,
      ['directory.get', { keys: ['a', 'b'], asker: 'node' }],
      {
        whole: [0, 127, 128, 65_536, 2 ** 32, 2 ** 53 - 1, -1, -33, -129, -40_000, -(2 ** 40)],
        parts: [0.5, 1e300, Number.NaN],
      },
      { big: [2n ** 63n, -(2n ** 62n)], yes: true, no: false, text: 'ünïcödé 🙂', long: 'x'.repeat(300) },
      { bytes: new Uint8Array(40), more: new Uint8Array(300), list: Array.from({ length: 20 }, () => ({})) },
    ].map((value) => codec.encode(value)),
  // Each element takes at least one byte of the message; a map's or list's frame is some words an element.
  allocationMaxBytes: (inputBytes) => 64 * inputBytes + 16_384,
  run(input) {
    const decoded = unlessRefused([ProtocolError], () => codec.decode(input));
    if (decoded === undefined) return;
    checkValue(decoded.value, 0);
    const encoded = codec.encode(decoded.value);
    const again = unlessRefused([ProtocolError], () => codec.decode(encoded));
    if (again === undefined) {
      check(hasKeyGrown(decoded.value), 'what is encoded of a message is refused');
      return;
    }
    check(
      isDeepStrictEqual(again.value, withoutMinusZero(decoded.value)),
      'what is encoded of a message decodes to another value',
    );
  },
};

/**
 * Whether a key was no well-formed text: what stands for each of its wrong bytes takes three, and makes it longer than
 * a key may be.
 */
function hasKeyGrown(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return false;
  const isGrown = (key: string) => key.includes('\ufffd') && Buffer.byteLength(key) > KEY_MAX_BYTES;
  return Object.entries(value).some(([key, inner]) => isGrown(key) || hasKeyGrown(inner));
}

function checkValue(value: unknown, depth: number): void {
  check(depth <= RPC_MESSAGE_MAX_DEPTH, 'nested deeper than allowed');
  if (typeof value !== 'object' || value === null) {
    check(
      ['string', 'number', 'bigint', 'boolean'].includes(typeof value) || value === null,
      `decoded a ${typeof value}`,
    );
    return;
  }
  if (value instanceof Uint8Array) return;
  const prototype: unknown = Object.getPrototypeOf(value);
  check(prototype === Object.prototype || Array.isArray(value), 'decoded an object that is no plain one');
  for (const item of Object.values(value)) checkValue(item, depth + 1);
}

/** It is encoded as zero; nothing depends on its sign. */
function withoutMinusZero(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return Object.is(value, -0) ? 0 : value;
  if (value instanceof Uint8Array) return value;
  if (Array.isArray(value)) return value.map(withoutMinusZero);
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, withoutMinusZero(item)]));
}
