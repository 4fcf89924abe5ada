import { CALL_MAX_KEY_BYTES, CALL_MAX_KEYS, KEY_MAX_BYTES, KEY_PREFIX_BYTES } from '../../base/core-limits.js';
import { ArgumentError } from '../../base/errors.js';
import type { CoreExports } from './exports.js';

const FIRST_BYTES = 2 ** 16;
const AREA_MAX_BYTES = 2 ** 29;
/** Longest UTF-8 form of one UTF-16 code unit. */
const UTF8_BYTES_PER_UNIT = 3;
/** Room behind the text, so that the first character beyond ASCII makes the count of bytes differ from that of characters. */
const SPARE_BYTES = 4;
const CALL_KEY_MAX_BYTES = KEY_MAX_BYTES + KEY_PREFIX_BYTES;

interface BufferLike {
  write(text: string, offset: number, length: number, encoding: 'utf8'): number;
}

interface BufferSource {
  from(memory: ArrayBuffer): BufferLike;
}

/**
 * The piece of WASM memory through which keys go in and results come out. One call uses it at a time: everything in
 * it is overwritten by the next `write`. The views are of the whole memory and become stale when it grows, so take
 * them after a call, not before.
 *
 *     [results: resultBytes a key][lengths: u32 a key][keys, one after the other]
 */
export class KeyArea {
  /** Addresses of the three parts for the batch that was written last; `results` is a multiple of 16. */
  results = 0;
  lengths = 0;
  keys = 0;
  /** Keys of the batch, and, after {@link writeOne}, that key's bytes. */
  count = 0;
  keyBytes = 0;

  private address = 0;
  private capacityBytes = 0;
  private view8 = new Uint8Array(0);
  private view32 = new Uint32Array(0);
  private view64 = new Float64Array(0);
  private buffer: BufferLike | undefined;
  private readonly encoder = new TextEncoder();

  constructor(private readonly exports: CoreExports) {}

  get u8(): Uint8Array<ArrayBuffer> {
    if (this.view8.length === 0) this.renewViews();
    return this.view8;
  }

  get u32(): Uint32Array<ArrayBuffer> {
    if (this.view8.length === 0) this.renewViews();
    return this.view32;
  }

  get f64(): Float64Array<ArrayBuffer> {
    if (this.view8.length === 0) this.renewViews();
    return this.view64;
  }

  /**
   * Writes all keys at once, with room for `resultBytes` (a multiple of 4) for each. Throws `ArgumentError` before
   * anything is written when a key is no well-formed string or too long, or when there are too many.
   */
  write(keys: readonly string[], resultBytes: number): void {
    if (!Array.isArray(keys)) throw new ArgumentError(`the keys must be an array of strings, got ${typeof keys}`);
    const count = keys.length;
    if (count > CALL_MAX_KEYS) throw new ArgumentError(`${count} keys in one call, ${CALL_MAX_KEYS} are allowed`);
    let text = '';
    let units = 0;
    for (let i = 0; i < count; i++) {
      const key = keys[i] as string;
      if (typeof key !== 'string') throw new ArgumentError(`key ${i} must be a string, got ${typeof key}`);
      units += checkLength(key.length);
      if (units > CALL_MAX_KEY_BYTES)
        throw new ArgumentError(`keys of more than ${CALL_MAX_KEY_BYTES} bytes in one call`);
      text += key;
    }
    this.layOut(count, resultBytes, units);
    const written = this.writeText(text, this.keys, units + SPARE_BYTES);
    if (written === units) this.writeLengths(keys);
    else this.writeEach(keys, resultBytes);
  }

  /** Writes one key at `keys`; the bytes are `keyBytes`. Same errors as {@link write}. */
  writeOne(key: string): void {
    if (typeof key !== 'string') throw new ArgumentError(`key must be a string, got ${typeof key}`);
    const units = checkLength(key.length);
    this.layOut(1, 0, units);
    this.keyBytes = this.writeText(key, this.keys, units + SPARE_BYTES);
    if (this.keyBytes !== units) {
      checkWellFormed(key);
      this.layOut(1, 0, units * UTF8_BYTES_PER_UNIT);
      this.keyBytes = checkLength(this.writeText(key, this.keys, units * UTF8_BYTES_PER_UNIT));
    }
  }

  /** Lays the area out for `keyBytes` bytes that the caller writes itself. */
  layOut(count: number, resultBytes: number, keyBytes: number): void {
    const headBytes = Math.ceil((count * resultBytes) / 8) * 8;
    const lengthsBytes = Math.ceil(count / 2) * 8;
    this.reserve(headBytes + lengthsBytes + keyBytes + SPARE_BYTES);
    this.count = count;
    this.results = this.address;
    this.lengths = this.address + headBytes;
    this.keys = this.lengths + lengthsBytes;
  }

  /** UTF-8 bytes written: as many whole characters as fit in `maxBytes`. */
  writeText(text: string, address: number, maxBytes: number): number {
    const bytes = this.u8;
    if (this.buffer !== undefined) return this.buffer.write(text, address, maxBytes, 'utf8');
    return this.encoder.encodeInto(text, bytes.subarray(address, address + maxBytes)).written;
  }

  private writeLengths(keys: readonly string[]): void {
    const lengths = this.u32;
    const start = this.lengths >>> 2;
    for (let i = 0; i < keys.length; i++) lengths[start + i] = (keys[i] as string).length;
  }

  /** For batches with characters beyond ASCII: lengths in bytes differ from those in characters. */
  private writeEach(keys: readonly string[], resultBytes: number): void {
    let units = 0;
    for (const key of keys) {
      checkWellFormed(key);
      units += key.length;
    }
    this.layOut(keys.length, resultBytes, units * UTF8_BYTES_PER_UNIT);
    let address = this.keys;
    for (const [i, key] of keys.entries()) {
      const bytes = checkLength(this.writeText(key, address, key.length * UTF8_BYTES_PER_UNIT));
      this.u32[(this.lengths >>> 2) + i] = bytes;
      address += bytes;
    }
  }

  private reserve(bytes: number): void {
    if (bytes <= this.capacityBytes) return;
    if (bytes > AREA_MAX_BYTES) throw new ArgumentError(`a call needs ${bytes} bytes, ${AREA_MAX_BYTES} are allowed`);
    if (this.capacityBytes > 0) this.exports.release(this.address);
    this.capacityBytes = Math.max(FIRST_BYTES, 2 ** Math.ceil(Math.log2(bytes)));
    this.address = this.exports.allocate(this.capacityBytes) >>> 0;
  }

  private renewViews(): void {
    const memory = this.exports.memory.buffer;
    this.view8 = new Uint8Array(memory);
    this.view32 = new Uint32Array(memory);
    this.view64 = new Float64Array(memory);
    this.buffer = (globalThis as { Buffer?: BufferSource }).Buffer?.from(memory);
  }
}

function checkLength(bytes: number): number {
  if (bytes <= CALL_KEY_MAX_BYTES) return bytes;
  throw new ArgumentError(
    `a key of ${bytes} bytes, ${KEY_MAX_BYTES} and a namespace of ${KEY_PREFIX_BYTES} are allowed`,
  );
}

/** Lone surrogates have no UTF-8 form: encoders replace them, and different keys would become one. */
function checkWellFormed(key: string): void {
  if (!key.isWellFormed()) throw new ArgumentError(`key is not well-formed Unicode: ${JSON.stringify(key)}`);
}
