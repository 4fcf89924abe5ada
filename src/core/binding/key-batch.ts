import { ArgumentError } from '../../base/errors.js';
import { encodeKeys, type KeyText } from './key-text.js';

/** Number of 32-bit words of a key's digest and of its position. */
export const DIGEST_WORDS = 4;
export const POSITION_WORDS = 2;

/** The keys of a call. For several calls in a row, use a batch: its keys are encoded and hashed only once. */
export type Keys = readonly string[] | KeyBatch;

/** The batch from which keys were picked, and their indices in it. */
interface Source {
  readonly batch: KeyBatch;
  readonly indices: readonly number[];
}

/**
 * The object keys of one call. Their UTF-8 text and the core's hashes of it are computed on demand and cached, so that
 * a batch that passes through pool, ring, directory and disk has them computed once. Immutable, and valid for every
 * core.
 *
 *       text       UTF-8 of all keys, one behind the other
 *       lengths    u32 a key: bytes of its text
 *       digests    2 x u64 a key: XXH3-128, low word and high word
 *       positions  u64 a key: its place on every hash ring
 */
export class KeyBatch {
  readonly keys: readonly string[];
  readonly #source: Source | undefined;
  #encoded: KeyText | undefined;
  #digests: Uint32Array | undefined;
  #positions: Uint32Array | undefined;

  private constructor(keys: readonly string[], source?: Source) {
    this.keys = keys;
    this.#source = source;
  }

  /**
   * Creates a batch from a copy of the list. Keys are checked when their text or a hash is first needed; this then
   * throws `ArgumentError` for keys that are not well-formed text, too long, or too many for one call into the core.
   */
  static of(keys: readonly string[]): KeyBatch {
    if (!Array.isArray(keys)) throw new ArgumentError(`the keys must be an array of strings, got ${typeof keys}`);
    return new KeyBatch(keys.slice());
  }

  /** Joins the keys of all batches, in order. Copies texts and hashes that every batch has already computed. */
  static concat(batches: readonly KeyBatch[]): KeyBatch {
    if (batches.length === 1) return batches[0] as KeyBatch;
    const joined = new KeyBatch(batches.flatMap(({ keys }) => keys));
    const encoded = ofAll(batches.map((batch) => batch.#encodedSoFar()));
    if (encoded !== undefined) {
      joined.#encoded = {
        text: concatBytes(encoded.map(({ text }) => text)),
        lengths: concatWords(encoded.map(({ lengths }) => lengths)),
      };
    }
    const digests = ofAll(batches.map((batch) => batch.digests));
    if (digests !== undefined) joined.#digests = concatWords(digests);
    const positions = ofAll(batches.map((batch) => batch.positions));
    if (positions !== undefined) joined.#positions = concatWords(positions);
    return joined;
  }

  get count(): number {
    return this.keys.length;
  }

  /** UTF-8 of all keys. Must not be written to. */
  get text(): Uint8Array {
    return this.#encode().text;
  }

  /** Bytes of each key in {@link text}. Must not be written to. */
  get lengths(): Uint32Array {
    return this.#encode().lengths;
  }

  /**
   * The keys at these indices, in the given order; all indices in order return the batch itself. Texts and hashes that
   * this batch has computed are copied when the new batch needs them. Throws `ArgumentError` for an index outside this
   * batch.
   */
  pick(indices: readonly number[]): KeyBatch {
    if (areAll(indices, this.count)) return this;
    const keys = new Array<string>(indices.length);
    for (let i = 0; i < indices.length; i++) {
      const key = this.keys[indices[i] as number];
      if (key === undefined)
        throw new ArgumentError(`index ${String(indices[i])} is not in a batch of ${this.count} keys`);
      keys[i] = key;
    }
    return new KeyBatch(keys, { batch: this, indices: indices.slice() });
  }

  /** @internal Undefined until a core has computed them, see {@link keepDigests}. Must not be written to. */
  get digests(): Uint32Array | undefined {
    if (this.#digests === undefined && this.#source !== undefined) {
      const { batch, indices } = this.#source;
      this.#digests = pickRows(batch.digests, DIGEST_WORDS, indices);
    }
    return this.#digests;
  }

  /** @internal Undefined until a core has computed them, see {@link keepPositions}. Must not be written to. */
  get positions(): Uint32Array | undefined {
    if (this.#positions === undefined && this.#source !== undefined) {
      const { batch, indices } = this.#source;
      this.#positions = pickRows(batch.positions, POSITION_WORDS, indices);
    }
    return this.#positions;
  }

  /** @internal Stores the digests; the batch then owns the array. */
  keepDigests(digests: Uint32Array): void {
    this.#digests = digests;
  }

  /** @internal Stores the positions; the batch then owns the array. */
  keepPositions(positions: Uint32Array): void {
    this.#positions = positions;
  }

  #encode(): KeyText {
    this.#encoded ??= this.#encodedSoFar() ?? encodeKeys(this.keys);
    return this.#encoded;
  }

  #encodedSoFar(): KeyText | undefined {
    if (this.#encoded === undefined && this.#source !== undefined) {
      const { batch, indices } = this.#source;
      const theirs = batch.#encodedSoFar();
      if (theirs !== undefined) this.#encoded = pickText(theirs, indices);
    }
    return this.#encoded;
  }
}

/** The keys of a list or a batch as strings. */
export function stringsOf(keys: Keys): readonly string[] {
  return keys instanceof KeyBatch ? keys.keys : keys;
}

/** The keys of a list or a batch at these indices, as in {@link KeyBatch.pick}. */
export function pickKeys(keys: Keys, indices: readonly number[]): Keys {
  return keys instanceof KeyBatch ? keys.pick(indices) : indices.map((i) => keys[i] as string);
}

/** The keys of a list or a batch from `start` to before `end`; a slice of all keys returns the list or batch itself. */
export function sliceKeys(keys: Keys, start: number, end: number): Keys {
  if (start === 0 && end >= stringsOf(keys).length) return keys;
  if (!(keys instanceof KeyBatch)) return keys.slice(start, end);
  return keys.pick(Array.from({ length: Math.min(end, keys.count) - start }, (_, i) => start + i));
}

/** Whether the indices are exactly 0 to before `count`, in order. */
export function areAll(indices: readonly number[], count: number): boolean {
  if (indices.length !== count) return false;
  for (let i = 0; i < count; i++) if (indices[i] !== i) return false;
  return true;
}

function pickRows(rows: Uint32Array | undefined, words: number, indices: readonly number[]): Uint32Array | undefined {
  if (rows === undefined) return undefined;
  const picked = new Uint32Array(indices.length * words);
  for (let i = 0; i < indices.length; i++) {
    const from = (indices[i] as number) * words;
    for (let word = 0; word < words; word++) picked[i * words + word] = rows[from + word] as number;
  }
  return picked;
}

/**
 * Copies the text of some keys. Adjacent keys are copied together, because one copy costs the same for one key as for
 * several.
 */
function pickText({ text, lengths }: KeyText, indices: readonly number[]): KeyText {
  const starts = new Float64Array(lengths.length + 1);
  for (let i = 0; i < lengths.length; i++) starts[i + 1] = (starts[i] as number) + (lengths[i] as number);
  const picked = { lengths: new Uint32Array(indices.length), bytes: 0 };
  for (let i = 0; i < indices.length; i++) {
    picked.lengths[i] = lengths[indices[i] as number] as number;
    picked.bytes += picked.lengths[i] as number;
  }
  const out = new Uint8Array(picked.bytes);
  let at = 0;
  for (let i = 0; i < indices.length; ) {
    const first = indices[i++] as number;
    let end = first + 1;
    while (i < indices.length && indices[i] === end) {
      end++;
      i++;
    }
    const run = text.subarray(starts[first], starts[end]);
    out.set(run, at);
    at += run.length;
  }
  return { text: out, lengths: picked.lengths };
}

/** The items if all are defined, else undefined. */
function ofAll<T>(items: readonly (T | undefined)[]): readonly T[] | undefined {
  return items.includes(undefined) ? undefined : (items as readonly T[]);
}

function concatBytes(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** The words of all arrays, one after the other, in a new array. */
export function concatWords(parts: readonly Uint32Array[]): Uint32Array {
  const whole = new Uint32Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
