import { KEY_MAX_BYTES } from '../../base/core-limits.js';
import { ArgumentError } from '../../base/errors.js';
import { checkNames } from '../../base/settings/known-names.js';
import { shown } from '../../base/shown.js';
import { type Core, type CoreOptions, defaultCore } from './core.js';
import { KeyBatch } from './key-batch.js';
import { UTF8_BYTES_PER_UNIT } from './key-text.js';

/** Settings that must be equal for two stores to share pages. */
export interface KeyNamespace {
  readonly modelName?: string;
  readonly dtype?: string;
  readonly layout?: string;
  readonly tag?: string;
  /** Identity of the model's weights, such as a digest; undefined or empty: not stated. */
  readonly fingerprint?: string;
  readonly tpRank: number;
  readonly tpSize: number;
  readonly ppRank: number;
  readonly ppSize: number;
  /** Whether all tensor-parallel ranks hold the same pages, so that the rank is ignored. */
  readonly isMlaModel: boolean;
}

/** Keys as used in the directory and in pools, in the given order. */
export interface EncodedKeys {
  /** Object keys: 32 hexadecimal characters for the namespace, a slash, the key. */
  readonly objectKeys: string[];
  /** XXH3-128 of each object key's UTF-8, 16 bytes per key in canonical order. */
  readonly digests: Uint8Array;
}

/** The names of the parts of a {@link KeyNamespace}. */
export const NAMESPACE_PARTS: ReadonlySet<string> = new Set<keyof KeyNamespace>([
  ...(['modelName', 'dtype', 'layout', 'tag', 'fingerprint'] as const),
  ...(['tpRank', 'tpSize', 'ppRank', 'ppSize', 'isMlaModel'] as const),
]);

/** Options of a {@link KeyEncoder}. */
export interface KeyEncoderOptions extends CoreOptions {
  /**
   * Called with the object-key prefix of a pool whenever keys of the pool are encoded. If it throws, so does the
   * encoding.
   */
  readonly onPrefix?: (prefix: string) => void;
}

const OPTION_NAMES: ReadonlySet<string> = new Set(['core', 'onPrefix']);
/** Bytes of a digest. */
const DIGEST_BYTES = 16;
/** First field of every serialised namespace; a new value changes all keys. */
const FORMAT = 'meshcache/1';

/**
 * Turns a program's keys into the keys used in the cluster. The format is part of the wire contract. The prefix is the
 * XXH3-128 of
 *
 *       text FORMAT, modelName, dtype, layout, tag; integer tpSize, ppSize, ppRank, tpRank (absent: MLA); text pool;
 *       text fingerprint, if there is one
 *       text = 0x01, UTF-8 length as u32 little endian, UTF-8;  integer = 0x02, u32 little endian;  absent = 0x00
 *
 * @example
 * import { KeyEncoder } from 'meshcache/core';
 *
 * const model = { modelName: 'llama-3-8b', tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };
 * const encoder = new KeyEncoder(model);
 * const { objectKeys, digests } = encoder.encode(['page-1', 'page-2']);
 * console.log(objectKeys[0], digests.subarray(0, 16));
 */
export class KeyEncoder {
  /** The namespace of the keys; with MLA, `tpRank` is ignored. */
  readonly namespace: KeyNamespace;
  private readonly core: Core;
  private readonly fields: readonly (string | number | undefined)[];
  /** The fields after the pool. */
  private readonly lastFields: readonly string[];
  private readonly prefixes = new Map<string, string>();
  private readonly onPrefix: (prefix: string) => void;

  /** Throws `ArgumentError` if a field of the namespace is missing or has the wrong type. */
  constructor(namespace: KeyNamespace, options: KeyEncoderOptions = {}) {
    if (typeof namespace !== 'object' || namespace === null) {
      throw new ArgumentError(`the namespace must be an object, got ${shown(namespace)}`);
    }
    checkNames('namespace', namespace, NAMESPACE_PARTS, 'part');
    checkNames('KeyEncoder', options, OPTION_NAMES);
    const { modelName, dtype, layout, tag, fingerprint, tpSize, ppSize, ppRank, tpRank, isMlaModel } = namespace;
    if (typeof isMlaModel !== 'boolean') {
      throw new ArgumentError(`isMlaModel must be true or false, got ${shown(isMlaModel)}`);
    }
    for (const [name, value] of Object.entries({ modelName, dtype, layout, tag, fingerprint })) checkText(name, value);
    for (const [name, value] of Object.entries({ tpSize, ppSize, ppRank, tpRank })) checkU32(name, value);
    this.fields = [FORMAT, modelName, dtype, layout, tag, tpSize, ppSize, ppRank, isMlaModel ? undefined : tpRank];
    this.lastFields = fingerprint === undefined || fingerprint === '' ? [] : [fingerprint];
    this.namespace = { ...namespace };
    this.core = options.core ?? defaultCore();
    this.onPrefix = options.onPrefix ?? (() => {});
  }

  /** Encodes keys; returns their object keys and digests in the same order. The caller owns both. */
  encode(keys: readonly string[], pool = 'kv'): EncodedKeys {
    const objectKeys = this.encodeKeys(keys, pool);
    const area = this.core.area;
    area.write(objectKeys, DIGEST_BYTES);
    this.core.exports.digestBatch(area.keys, area.lengths, objectKeys.length, area.results);
    const digests = area.u8.slice(area.results, area.results + objectKeys.length * DIGEST_BYTES);
    return { objectKeys, digests };
  }

  /** Encodes keys without digests. Throws `ArgumentError` for keys that are not well-formed strings or too long. */
  encodeKeys(keys: readonly string[], pool = 'kv'): string[] {
    if (!Array.isArray(keys)) throw new ArgumentError(`the keys must be an array of strings, got ${shown(keys)}`);
    const prefix = this.prefixes.get(pool) ?? this.addPrefix(pool);
    this.onPrefix(prefix);
    const objectKeys = new Array<string>(keys.length);
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i] as string;
      checkKey(key, KEY_MAX_BYTES, i);
      objectKeys[i] = prefix + key;
    }
    return objectKeys;
  }

  /** Like {@link encodeKeys}, but returns a batch. */
  encodeBatch(keys: readonly string[], pool = 'kv'): KeyBatch {
    return KeyBatch.of(this.encodeKeys(keys, pool));
  }

  /** Number of pools for which keys have been encoded. */
  get poolCount(): number {
    return this.prefixes.size;
  }

  /** Whether keys have been encoded for the pool. */
  hasPool(pool: string): boolean {
    return this.prefixes.has(pool);
  }

  /** Object-key prefixes of all pools for which keys have been encoded, and of the given pools. */
  prefixesOf(pools: readonly string[] = []): string[] {
    for (const pool of pools) if (!this.prefixes.has(pool)) this.addPrefix(pool);
    return [...this.prefixes.values()];
  }

  /** The pool whose object keys begin with `prefix`; undefined if no keys have been encoded for such a pool. */
  poolOf(prefix: string): string | undefined {
    for (const [pool, known] of this.prefixes) if (known === prefix) return pool;
    return undefined;
  }

  private addPrefix(pool: string): string {
    // An undefined pool name must throw, because undefined stands for absent parts of the namespace.
    checkText('pool', pool ?? null);
    const bytes = serialise([...this.fields, pool, ...this.lastFields]);
    const area = this.core.area;
    area.layOut(1, DIGEST_BYTES, bytes.length);
    area.u8.set(bytes, area.keys);
    area.u32[area.lengths >>> 2] = bytes.length;
    this.core.exports.digestBatch(area.keys, area.lengths, 1, area.results);
    const digest = area.u8.subarray(area.results, area.results + DIGEST_BYTES);
    const prefix = `${Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('')}/`;
    this.prefixes.set(pool, prefix);
    return prefix;
  }
}

function serialise(fields: readonly (string | number | undefined)[]): Uint8Array {
  const encoder = new TextEncoder();
  const parts = fields.map((field) => {
    if (field === undefined) return new Uint8Array([0]);
    if (typeof field === 'number') return tagged(2, field, new Uint8Array(0));
    const text = encoder.encode(field);
    return tagged(1, text.length, text);
  });
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

/** [tag: u8][value: u32 little endian][rest] */
function tagged(tag: number, value: number, rest: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(5 + rest.length);
  bytes[0] = tag;
  new DataView(bytes.buffer).setUint32(1, value, true);
  bytes.set(rest, 5);
  return bytes;
}

/**
 * @internal Throws `ArgumentError` for key `index` if it is not well-formed text of at most `maxBytes` bytes of UTF-8.
 */
export function checkKey(key: string, maxBytes: number, index: number): void {
  if (typeof key !== 'string' || !key.isWellFormed()) {
    throw new ArgumentError(`key ${index} must be well-formed text, got ${shown(key)}`);
  }
  // Most keys are so short that they need not be encoded to be measured.
  if (key.length * UTF8_BYTES_PER_UNIT <= maxBytes) return;
  const bytes = new TextEncoder().encode(key).length;
  if (bytes > maxBytes) throw new ArgumentError(`key ${index} has ${bytes} bytes, at most ${maxBytes} are allowed`);
}

function checkText(name: string, value: unknown): void {
  if (value === undefined || (typeof value === 'string' && value.isWellFormed())) return;
  throw new ArgumentError(`${name} must be well-formed text, got ${shown(value)}`);
}

function checkU32(name: string, value: unknown): void {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 0xffffffff) return;
  throw new ArgumentError(`${name} must be an integer of 0 to 4294967295, got ${shown(value)}`);
}
