/**
 * Values as inputs: JSON text with additions, so that a corpus can be read:
 *
 *     {"$bytes":"00ff"}  {"$bigint":"12"}  {"$number":"NaN"}  {"$text":"\ud800"}   what messages carry beside JSON, and lone surrogates
 *     {"$repeat":["x",9]}                                                          long text
 *     {"$odd":"symbol"|"function"|"bare"|"throwing"|"undefined"}                   what only a caller in the process can give
 */
import type { RandomSource } from '../../src/base/environment/random.js';
import { MessageCodec } from '../../src/rpc/message.js';
import { below, oneOf } from './mutations.js';

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

const LEAVES: readonly Json[] = [
  null,
  true,
  false,
  0,
  -1,
  1,
  0.5,
  255,
  256,
  1023,
  1024,
  1025,
  65535,
  65536,
  2 ** 31,
  2 ** 32 - 1,
  2 ** 32,
  Number.MAX_SAFE_INTEGER,
  2 ** 53,
  1e300,
  -0,
  '',
  ' ',
  'constructor',
  '__proto__',
  'toString',
  'true',
  '1e3',
  '0x10',
  '4gb',
  '-1',
  '18446744073709551615',
  '18446744073709551616',
  '[::1]:9',
  'a:1,b:2',
  '\ufeffx',
  '🙂',
  [],
  {},
  { toString: 1, valueOf: 1 },
  { length: 2 ** 32 },
  { $bytes: '' },
  { $bytes: '00' },
  { $bytes: 'ffffffffffffffff' },
  { $bigint: '0' },
  { $bigint: '-1' },
  { $bigint: '9007199254740993' },
  { $bigint: '18446744073709551615' },
  { $number: 'NaN' },
  { $number: 'Infinity' },
  { $number: '-Infinity' },
  { $text: '\\ud800' },
  { $repeat: ['x', 257] },
  { $repeat: ['é', 40_000] },
  { $odd: 'symbol' },
  { $odd: 'function' },
  { $odd: 'bare' },
  { $odd: 'throwing' },
  { $odd: 'undefined' },
];
const KEYS = ['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'length', 'x'];
const REPEAT_MAX_COUNT = 100_000;

const codec = new MessageCodec();

export function valueInput(value: Json): Buffer {
  return Buffer.from(JSON.stringify(value));
}

/** Fields of a message with their bytes as inputs have them. */
export function hexFields(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [
      name,
      value instanceof Uint8Array
        ? { $bytes: Buffer.from(value.buffer, value.byteOffset, value.length).toString('hex') }
        : value,
    ]),
  );
}

/** The value that an input stands for; undefined for text that is no JSON. `odd`: with what messages cannot carry. */
export function inputValue(
  input: Buffer,
  options: { readonly odd?: boolean } = {},
): { readonly value: unknown } | undefined {
  let parsed: Json;
  try {
    parsed = JSON.parse(input.toString()) as Json;
  } catch {
    return undefined;
  }
  return { value: revive(parsed, options.odd ?? false) };
}

/** The value as a peer's message brings it; undefined for what no message can carry. */
export function receivedValue(input: Buffer): { readonly value: unknown } | undefined {
  const found = inputValue(input);
  if (found === undefined) return undefined;
  try {
    return { value: codec.decode(codec.encode(found.value)) };
  } catch {
    return undefined;
  }
}

function revive(json: Json, odd: boolean): unknown {
  if (typeof json !== 'object' || json === null) return json;
  if (Array.isArray(json)) return json.map((item) => revive(item, odd));
  const keys = Object.keys(json);
  if (keys.length === 1 && (keys[0] as string).startsWith('$')) {
    const special = specialOf(keys[0] as string, Object.values(json)[0] as Json, odd);
    if (special !== undefined) return special.value;
  }
  const map = {};
  for (const [key, item] of Object.entries(json)) {
    // Assigning to `__proto__` would not make it a key.
    Object.defineProperty(map, key, { value: revive(item, odd), enumerable: true, writable: true, configurable: true });
  }
  return map;
}

function specialOf(name: string, json: Json, odd: boolean): { readonly value: unknown } | undefined {
  if (name === '$bytes' && typeof json === 'string') return { value: new Uint8Array(Buffer.from(json, 'hex')) };
  if (name === '$bigint' && typeof json === 'string' && /^-?\d{1,40}$/.test(json)) return { value: BigInt(json) };
  if (name === '$number' && typeof json === 'string') return { value: Number(json) };
  if (name === '$text' && typeof json === 'string') return { value: unescaped(json) };
  if (name === '$repeat' && Array.isArray(json)) return { value: repeated(json) };
  if (name === '$odd' && odd) return { value: oddOf(json) };
  return undefined;
}

function unescaped(text: string): string {
  return text.replace(/\\u([0-9a-f]{4})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
}

function repeated([text, count]: readonly Json[]): string {
  const times = typeof count === 'number' && count >= 0 ? Math.min(count, REPEAT_MAX_COUNT) : 0;
  return (typeof text === 'string' ? text.slice(0, 8) : 'x').repeat(times);
}

function oddOf(kind: Json): unknown {
  if (kind === 'symbol') return Symbol('odd');
  if (kind === 'function') return () => 'odd';
  if (kind === 'bare') return Object.create(null);
  if (kind === 'throwing') {
    return {
      toString() {
        throw new RangeError('toString of a value was called');
      },
    };
  }
  return undefined;
}

/** A changed copy of a value input; undefined for text that is no JSON. */
export function mutateValue(input: Uint8Array, random: RandomSource, pool: readonly Uint8Array[]): Buffer | undefined {
  const root = parse(input);
  if (root === undefined) return undefined;
  const box: Json[] = [root];
  const changes = 1 << below(random, 3);
  for (let i = 0; i < changes; i++) changeTree(box, random, pool);
  return Buffer.from(JSON.stringify(box[0] ?? null));
}

function parse(input: Uint8Array): Json | undefined {
  try {
    return JSON.parse(Buffer.from(input).toString()) as Json;
  } catch {
    return undefined;
  }
}

interface Place {
  readonly holder: Json[] | { [key: string]: Json };
  readonly key: string;
}

function changeTree(box: Json[], random: RandomSource, pool: readonly Uint8Array[]): void {
  if (box.length === 0) box.push(null);
  const places: Place[] = [];
  collect(box, places);
  const { holder, key } = oneOf(random, places);
  const value = (holder as Record<string, Json>)[key] as Json;
  switch (below(random, 10)) {
    case 0:
    case 8:
      put(holder, key, anyLeaf(random));
      return;
    case 1:
    case 9:
      put(holder, key, changedLeaf(value, random));
      return;
    case 2:
      if (Array.isArray(holder)) holder.splice(Number(key), 1);
      else delete holder[key];
      return;
    case 3: // the same once more, or under another name
      if (Array.isArray(holder))
        for (let i = below(random, 4); i >= 0; i--) holder.splice(Number(key), 0, structuredClone(value));
      else put(holder, oneOf(random, [...KEYS, ...Object.keys(holder)]), structuredClone(value));
      return;
    case 4:
      {
        const copy = structuredClone(value);
        put(holder, key, random.u32() & 1 ? [copy] : { [oneOf(random, KEYS)]: copy });
      }
      return;
    case 5: // a part of another input
      put(holder, key, partOf(oneOf(random, pool), random));
      return;
    case 6:
      if (typeof value === 'object' && value !== null && !Array.isArray(value))
        put(value, oneOf(random, KEYS), anyLeaf(random));
      else put(holder, key, changedLeaf(value, random));
      return;
    default: {
      const other = oneOf(random, places);
      const swapped = (other.holder as Record<string, Json>)[other.key] as Json;
      put(holder, key, structuredClone(swapped ?? null));
    }
  }
}

function collect(holder: Json[] | { [key: string]: Json }, places: Place[]): void {
  for (const key of Object.keys(holder)) {
    places.push({ holder, key });
    const value = (holder as Record<string, Json>)[key];
    if (typeof value === 'object' && value !== null) collect(value, places);
  }
}

function put(holder: Json[] | { [key: string]: Json }, key: string, value: Json): void {
  Object.defineProperty(holder, key, { value, enumerable: true, writable: true, configurable: true });
}

function partOf(input: Uint8Array, random: RandomSource): Json {
  const root = parse(input);
  if (root === undefined) return null;
  const places: Place[] = [];
  collect([root], places);
  const { holder, key } = oneOf(random, places);
  return structuredClone((holder as Record<string, Json>)[key] as Json);
}

/** A copy: what is put into a tree is changed later. */
function anyLeaf(random: RandomSource): Json {
  return structuredClone(oneOf(random, LEAVES));
}

function changedLeaf(value: Json, random: RandomSource): Json {
  if (typeof value === 'number') {
    return oneOf(random, [value + 1, value - 1, -value, value / 2, value * 256, String(value), value + 0.5]);
  }
  if (typeof value !== 'string') return anyLeaf(random);
  const at = below(random, value.length + 1);
  const piece = oneOf(random, [
    '0',
    'f',
    ' ',
    ',',
    ':',
    '.',
    '-',
    'X',
    '\u0000',
    '\n',
    'é',
    '[',
    ']',
    '9'.repeat(20),
    'ff'.repeat(8),
  ]);
  return oneOf(random, [
    value.slice(0, at) + piece + value.slice(at),
    value.slice(0, at) + value.slice(at + 1),
    value.slice(0, at) + piece + value.slice(at + piece.length),
    value.toUpperCase(),
    oneOf(random, KEYS),
    value + value,
    ` ${value}\t`,
    /^\d+$/.test(value) && value.length < 16 ? Number(value) : value.slice(at),
  ]);
}
