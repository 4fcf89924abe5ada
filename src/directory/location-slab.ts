/**
 * Storage of locations without an object for each: records in chunks of fixed size, so that growing copies nothing, and each
 * within one or two cache lines. A slot is an index over all chunks; slots of one key form a list through `next`.
 *
 *     record, 40 bytes   word 0..1 addr (low, high)   2..3 length f64   4..5 generation f64
 *                             6 rkey   7 checksum   8 node << 1 | tier   9 next
 */
import type { LocationColumns } from './location-columns.js';

const CHUNK_BITS = 14;
const CHUNK_SLOTS = 1 << CHUNK_BITS;
const CHUNK_MASK = CHUNK_SLOTS - 1;
const RECORD_WORDS = 10;
const RECORD_DOUBLES = RECORD_WORDS / 2;
const BYTES_PER_WORD = 4;

/** End of a list. */
export const NO_SLOT = 0xffffffff;

interface Chunk {
  readonly words: Uint32Array;
  /** The same memory. */
  readonly doubles: Float64Array;
}

export class LocationSlab {
  #chunks: Chunk[] = [];
  #free = NO_SLOT;
  /** Slots that have ever been used. */
  #used = 0;

  nextOf(slot: number): number {
    return this.#words(slot)[(slot & CHUNK_MASK) * RECORD_WORDS + 9] as number;
  }

  setNext(slot: number, next: number): void {
    this.#words(slot)[(slot & CHUNK_MASK) * RECORD_WORDS + 9] = next;
  }

  nodeOf(slot: number): number {
    return (this.#words(slot)[(slot & CHUNK_MASK) * RECORD_WORDS + 8] as number) >>> 1;
  }

  /** 0: memory, 1: disk. */
  tierOf(slot: number): number {
    return (this.#words(slot)[(slot & CHUNK_MASK) * RECORD_WORDS + 8] as number) & 1;
  }

  generationOf(slot: number): number {
    const { doubles } = this.#chunks[slot >>> CHUNK_BITS] as Chunk;
    return doubles[(slot & CHUNK_MASK) * RECORD_DOUBLES + 2] as number;
  }

  /** Position `i` of `locations` into the record, as one of `node` (an index below 2^31). `next` stays as it is. */
  write(slot: number, locations: LocationColumns, i: number, node: number): void {
    const { words, doubles } = this.#chunks[slot >>> CHUNK_BITS] as Chunk;
    const word = (slot & CHUNK_MASK) * RECORD_WORDS;
    const double = (slot & CHUNK_MASK) * RECORD_DOUBLES;
    words[word] = locations.addrWords[i * 2] as number;
    words[word + 1] = locations.addrWords[i * 2 + 1] as number;
    doubles[double + 1] = locations.length[i] as number;
    doubles[double + 2] = locations.generation[i] as number;
    words[word + 6] = locations.rkey[i] as number;
    words[word + 7] = locations.checksum[i] as number;
    words[word + 8] = (node << 1) | (locations.tier[i] as number);
  }

  /** The record, but for its node, into position `i` of `locations`. */
  read(slot: number, locations: LocationColumns, i: number): void {
    const { words, doubles } = this.#chunks[slot >>> CHUNK_BITS] as Chunk;
    const word = (slot & CHUNK_MASK) * RECORD_WORDS;
    const double = (slot & CHUNK_MASK) * RECORD_DOUBLES;
    locations.addrWords[i * 2] = words[word] as number;
    locations.addrWords[i * 2 + 1] = words[word + 1] as number;
    locations.length[i] = doubles[double + 1] as number;
    locations.generation[i] = doubles[double + 2] as number;
    locations.rkey[i] = words[word + 6] as number;
    locations.checksum[i] = words[word + 7] as number;
    locations.tier[i] = (words[word + 8] as number) & 1;
  }

  /** A slot whose `next` is {@link NO_SLOT}; the rest of its record holds anything. */
  allocate(): number {
    if (this.#free !== NO_SLOT) {
      const slot = this.#free;
      this.#free = this.nextOf(slot);
      this.setNext(slot, NO_SLOT);
      return slot;
    }
    const slot = this.#used++;
    if (slot >>> CHUNK_BITS === this.#chunks.length) {
      const memory = new ArrayBuffer(CHUNK_SLOTS * RECORD_WORDS * BYTES_PER_WORD);
      this.#chunks.push({ words: new Uint32Array(memory), doubles: new Float64Array(memory) });
    }
    this.setNext(slot, NO_SLOT);
    return slot;
  }

  free(slot: number): void {
    this.setNext(slot, this.#free);
    this.#free = slot;
  }

  clear(): void {
    this.#chunks = [];
    this.#free = NO_SLOT;
    this.#used = 0;
  }

  #words(slot: number): Uint32Array {
    return (this.#chunks[slot >>> CHUNK_BITS] as Chunk).words;
  }
}
