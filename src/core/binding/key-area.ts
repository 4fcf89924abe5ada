import { ArgumentError } from '../../base/errors.js';
import type { CoreExports } from './exports.js';
import { DIGEST_WORDS, KeyBatch, type Keys, POSITION_WORDS } from './key-batch.js';
import { checkLength, checkWellFormed, joinKeys, UTF8_BYTES_PER_UNIT, writeLengths } from './key-text.js';

const FIRST_BYTES = 2 ** 16;
const AREA_MAX_BYTES = 2 ** 29;
/**
 * Spare bytes after the text. They make sure that the byte count differs from the character count as soon as a
 * character beyond ASCII is written.
 */
const SPARE_BYTES = 4;

/**
 * The part of WASM memory through which keys go in and results come out. One call uses it at a time: the next `write`
 * overwrites everything in it. Its views cover the whole memory and become stale when that grows, so take them after a
 * call, not before.
 *
 *       [results: resultBytes a key][hashes: 0, 8 or 16 bytes a key][lengths: u32 a key][text of the keys, one after the other]
 */
export class KeyArea {
  /** Addresses of the four parts for the batch that was written last; `results` is a multiple of 16, `hashes` of 8. */
  results = 0;
  hashes = 0;
  lengths = 0;
  keys = 0;
  /** Number of keys in the batch. After {@link writeOne}, `keyBytes` is the length of that key. */
  count = 0;
  keyBytes = 0;

  private address = 0;
  private capacityBytes = 0;
  private view8 = new Uint8Array(0);
  private view32 = new Uint32Array(0);
  private viewSigned = new Int32Array(0);
  private view64 = new Float64Array(0);
  private viewOne = new Uint8Array(0);
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

  get i32(): Int32Array<ArrayBuffer> {
    if (this.view8.length === 0) this.renewViews();
    return this.viewSigned;
  }

  get f64(): Float64Array<ArrayBuffer> {
    if (this.view8.length === 0) this.renewViews();
    return this.view64;
  }

  /**
   * Writes the digests of all keys, with room for `resultBytes` (a multiple of 4) for each. Throws `ArgumentError` if a
   * key is not a well-formed string or is too long, or if there are too many; the area is then unusable.
   */
  writeDigests(keys: Keys, resultBytes: number): void {
    const known = keys instanceof KeyBatch ? keys.digests : undefined;
    if (known === undefined) {
      this.write(keys, resultBytes, DIGEST_WORDS);
      this.exports.digestKeys(this.keys, this.lengths, this.count, this.hashes);
      if (keys instanceof KeyBatch) keys.keepDigests(this.copyHashes(DIGEST_WORDS));
    } else {
      this.writeHashes(known, DIGEST_WORDS, resultBytes);
    }
  }

  /** Like {@link writeDigests}, but writes the keys' positions on rings. */
  writePositions(keys: Keys, resultBytes: number): void {
    const known = keys instanceof KeyBatch ? keys.positions : undefined;
    if (known === undefined) {
      this.write(keys, resultBytes, POSITION_WORDS);
      this.exports.placeKeys(this.keys, this.lengths, this.count, this.hashes);
      if (keys instanceof KeyBatch) keys.keepPositions(this.copyHashes(POSITION_WORDS));
    } else {
      this.writeHashes(known, POSITION_WORDS, resultBytes);
    }
  }

  /**
   * Like {@link writePositions}, but places each key at the beginning of its partition, which the upper 16 bits of its
   * position name.
   */
  writePartitionStarts(keys: Keys, resultBytes: number): void {
    this.writePositions(keys, resultBytes);
    const { u32, count } = this;
    const first = this.hashes >>> 2;
    for (let at = first; at < first + count * POSITION_WORDS; at += POSITION_WORDS) {
      u32[at] = 0;
      u32[at + 1] = (u32[at + 1] as number) & 0xffff_0000;
    }
  }

  /** Writes positions that are known, two words each, with room for `resultBytes` for each. */
  writeWords(positions: Uint32Array, resultBytes: number): void {
    this.writeHashes(positions, POSITION_WORDS, resultBytes);
  }

  /** Writes the beginning of each of `count` partitions. */
  writeEveryPartition(count: number, resultBytes: number): void {
    const words = new Uint32Array(count * POSITION_WORDS);
    for (let i = 0; i < count; i++) words[i * POSITION_WORDS + 1] = i * (2 ** 32 / count);
    this.writeHashes(words, POSITION_WORDS, resultBytes);
  }

  /**
   * Writes the text of all keys, with room for `resultBytes` and a hash of `hashWords` for each. Throws as {@link
   * writeDigests} does.
   */
  write(keys: Keys, resultBytes: number, hashWords = 0): void {
    if (keys instanceof KeyBatch) {
      const { text, lengths } = keys;
      this.layOut(keys.count, resultBytes, text.length, hashWords);
      this.u8.set(text, this.keys);
      this.u32.set(lengths, this.lengths >>> 2);
      return;
    }
    const text = joinKeys(keys);
    this.layOut(keys.length, resultBytes, text.length, hashWords);
    const isAscii = this.writeText(text, this.keys, text.length + SPARE_BYTES) === text.length;
    if (!isAscii) this.layOut(keys.length, resultBytes, text.length * UTF8_BYTES_PER_UNIT, hashWords);
    writeLengths(keys, isAscii, this.u32, this.lengths >>> 2);
    if (!isAscii) this.writeText(text, this.keys, text.length * UTF8_BYTES_PER_UNIT);
  }

  /** Writes one key at `keys` and sets `keyBytes` to its length. Throws as {@link writeDigests} does. */
  writeOne(key: string): void {
    if (typeof key !== 'string') throw new ArgumentError(`key must be a string, got ${typeof key}`);
    const units = checkLength(key.length);
    this.layOut(1, 0, units);
    this.keyBytes = this.encoder.encodeInto(key, this.oneKey).written;
    if (this.keyBytes !== units) {
      checkWellFormed(key);
      this.layOut(1, 0, units * UTF8_BYTES_PER_UNIT);
      this.keyBytes = checkLength(this.encoder.encodeInto(key, this.oneKey).written);
    }
  }

  /** Lays out the area for `keyBytes` bytes that the caller writes. */
  layOut(count: number, resultBytes: number, keyBytes: number, hashWords = 0): void {
    const headBytes = Math.ceil((count * resultBytes) / 8) * 8;
    const hashBytes = Math.ceil((count * hashWords) / 2) * 8;
    const lengthsBytes = Math.ceil(count / 2) * 8;
    this.reserve(headBytes + hashBytes + lengthsBytes + keyBytes + SPARE_BYTES);
    this.count = count;
    this.results = this.address;
    this.hashes = this.address + headBytes;
    this.lengths = this.hashes + hashBytes;
    this.keys = this.lengths + lengthsBytes;
  }

  /** Writes as many whole characters as fit in `maxBytes`; returns the number of UTF-8 bytes written. */
  writeText(text: string, address: number, maxBytes: number): number {
    return this.encoder.encodeInto(text, this.u8.subarray(address, address + maxBytes)).written;
  }

  /**
   * View of the room for one key's text, without results, up to the area's end. It is cached because creating a view
   * costs more than writing a key.
   */
  private get oneKey(): Uint8Array<ArrayBuffer> {
    if (this.viewOne.length === 0) this.viewOne = this.u8.subarray(this.keys, this.address + this.capacityBytes);
    return this.viewOne;
  }

  private writeHashes(hashes: Uint32Array, hashWords: number, resultBytes: number): void {
    this.layOut(hashes.length / hashWords, resultBytes, 0, hashWords);
    this.u32.set(hashes, this.hashes >>> 2);
  }

  private copyHashes(hashWords: number): Uint32Array {
    const start = this.hashes >>> 2;
    return this.u32.slice(start, start + this.count * hashWords);
  }

  private reserve(bytes: number): void {
    if (bytes <= this.capacityBytes) return;
    if (bytes > AREA_MAX_BYTES)
      throw new ArgumentError(`a call needs ${bytes} bytes, at most ${AREA_MAX_BYTES} are allowed`);
    if (this.capacityBytes > 0) this.exports.release(this.address);
    this.capacityBytes = Math.max(FIRST_BYTES, 2 ** Math.ceil(Math.log2(bytes)));
    this.address = this.exports.allocate(this.capacityBytes) >>> 0;
    this.viewOne = new Uint8Array(0);
  }

  private renewViews(): void {
    const memory = this.exports.memory.buffer;
    this.view8 = new Uint8Array(memory);
    this.view32 = new Uint32Array(memory);
    this.viewSigned = new Int32Array(memory);
    this.view64 = new Float64Array(memory);
  }
}
