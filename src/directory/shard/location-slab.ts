/**
 * Storage of locations without an object for each. Records of one cache line lie in chunks of fixed size, so that
 * growing copies nothing. Only the first chunk starts small and doubles, because most shards of a large cluster never
 * fill it. A slot is an index over all chunks; the slots of one key form a list through `next`.
 *
 *       record, 64 bytes   word 0..1 addr (low, high)   2..3 length f64   4..5 generation f64   6..7 version f64
 *                               8..9 stamp f64   10..11 tail f64   12 rkey   13 checksum   14 node << 2 | flags   15 next
 *
 * Expiries, and the origins of copies, lie beside the records, chunk by chunk, where a location has one: most have
 * none.
 */
import { assert, assertEqual } from '../../base/assert.js';
import { type LocationColumns, ON_DISK } from '../messages/location-columns.js';

const CHUNK_BITS = 14;
const CHUNK_SLOTS = 1 << CHUNK_BITS;
const CHUNK_MASK = CHUNK_SLOTS - 1;
/** Slots of the first chunk when it is created. */
const FIRST_SLOTS = 128;
const RECORD_WORDS = 16;
const RECORD_DOUBLES = RECORD_WORDS / 2;
const BYTES_PER_WORD = 4;
const NODE_SHIFT = 2;
const FLAGS_MASK = (1 << NODE_SHIFT) - 1;

/** Slot number that ends a list. */
export const NO_SLOT = 0xffffffff;

interface Chunk {
  readonly words: Uint32Array;
  /** The memory of `words` as 64-bit floats. */
  readonly doubles: Float64Array;
  /** The expiry of each slot; undefined: no slot has one. */
  expires: Float64Array | undefined;
  /** The origin of each slot's copy; undefined: no slot has a copy. */
  setBy: Uint32Array | undefined;
}

export class LocationSlab {
  #chunks: Chunk[] = [];
  #free = NO_SLOT;
  /** Number of slots that have ever been used. */
  #used = 0;

  nextOf(slot: number): number {
    return this.#word(slot, 15);
  }

  setNext(slot: number, next: number): void {
    const { words } = this.#chunks[slot >>> CHUNK_BITS] as Chunk;
    words[(slot & CHUNK_MASK) * RECORD_WORDS + 15] = next;
  }

  nodeOf(slot: number): number {
    return this.#word(slot, 14) >>> NODE_SHIFT;
  }

  /** Flags of a slot; the bits are those of {@link LocationColumns}. */
  flagsOf(slot: number): number {
    return this.#word(slot, 14) & FLAGS_MASK;
  }

  /** Tier of a slot; 0: memory, 1: disk. */
  tierOf(slot: number): number {
    return this.flagsOf(slot) & ON_DISK;
  }

  checksumOf(slot: number): number {
    return this.#word(slot, 13);
  }

  lengthOf(slot: number): number {
    return this.#double(slot, 1);
  }

  generationOf(slot: number): number {
    return this.#double(slot, 2);
  }

  versionOf(slot: number): number {
    return this.#double(slot, 3);
  }

  /** The version from which on the location is expired; 0: never. */
  expiresOf(slot: number): number {
    return (this.#chunks[slot >>> CHUNK_BITS] as Chunk).expires?.[slot & CHUNK_MASK] ?? 0;
  }

  /** The origin of the copy in a slot; 0: the page is not a copy. */
  setByOf(slot: number): number {
    return (this.#chunks[slot >>> CHUNK_BITS] as Chunk).setBy?.[slot & CHUNK_MASK] ?? 0;
  }

  /**
   * Writes position `i` of `locations` into the record, as a location of `node` (an index below 2^29). `next` stays as
   * it is.
   */
  write(slot: number, locations: LocationColumns, i: number, node: number): void {
    assert(slot < this.#used, () => `location slab: slot ${slot} of ${this.#used} is written`);
    const chunk = this.#chunks[slot >>> CHUNK_BITS] as Chunk;
    const { words, doubles } = chunk;
    const word = (slot & CHUNK_MASK) * RECORD_WORDS;
    const double = (slot & CHUNK_MASK) * RECORD_DOUBLES;
    const expires = locations.expires[i] as number;
    if (expires !== 0) chunk.expires ??= new Float64Array(words.length / RECORD_WORDS);
    if (chunk.expires !== undefined) chunk.expires[slot & CHUNK_MASK] = expires;
    const setBy = locations.setBy[i] as number;
    if (setBy !== 0) chunk.setBy ??= new Uint32Array(words.length / RECORD_WORDS);
    if (chunk.setBy !== undefined) chunk.setBy[slot & CHUNK_MASK] = setBy;
    words[word] = locations.addrWords[i * 2] as number;
    words[word + 1] = locations.addrWords[i * 2 + 1] as number;
    doubles[double + 1] = locations.length[i] as number;
    doubles[double + 2] = locations.generation[i] as number;
    doubles[double + 3] = locations.version[i] as number;
    doubles[double + 4] = locations.stamp[i] as number;
    doubles[double + 5] = locations.tail[i] as number;
    words[word + 12] = locations.rkey[i] as number;
    words[word + 13] = locations.checksum[i] as number;
    words[word + 14] = (node << NODE_SHIFT) | (locations.flags[i] as number);
  }

  /** Reads the record, without its node, into position `i` of `locations`. */
  read(slot: number, locations: LocationColumns, i: number): void {
    const { words, doubles } = this.#chunks[slot >>> CHUNK_BITS] as Chunk;
    const word = (slot & CHUNK_MASK) * RECORD_WORDS;
    const double = (slot & CHUNK_MASK) * RECORD_DOUBLES;
    locations.addrWords[i * 2] = words[word] as number;
    locations.addrWords[i * 2 + 1] = words[word + 1] as number;
    locations.length[i] = doubles[double + 1] as number;
    locations.generation[i] = doubles[double + 2] as number;
    locations.version[i] = doubles[double + 3] as number;
    locations.stamp[i] = doubles[double + 4] as number;
    locations.tail[i] = doubles[double + 5] as number;
    locations.rkey[i] = words[word + 12] as number;
    locations.checksum[i] = words[word + 13] as number;
    locations.flags[i] = (words[word + 14] as number) & FLAGS_MASK;
    locations.expires[i] = this.expiresOf(slot);
    locations.setBy[i] = this.setByOf(slot);
  }

  /** Takes a free slot and sets its `next` to {@link NO_SLOT}; the rest of its record is undefined. */
  allocate(): number {
    if (this.#free !== NO_SLOT) {
      const slot = this.#free;
      this.#free = this.nextOf(slot);
      this.setNext(slot, NO_SLOT);
      return slot;
    }
    const slot = this.#used++;
    if (slot >>> CHUNK_BITS === this.#chunks.length)
      this.#chunks.push(newChunk(slot === 0 ? FIRST_SLOTS : CHUNK_SLOTS));
    else if (slot < CHUNK_SLOTS) this.#growFirst(slot);
    this.setNext(slot, NO_SLOT);
    return slot;
  }

  /** Makes room for `slot`, the next one of the first chunk. */
  #growFirst(slot: number): void {
    const { words, expires, setBy } = this.#chunks[0] as Chunk;
    const slots = words.length / RECORD_WORDS;
    if (slot < slots) return;
    const larger = newChunk(2 * slots);
    larger.words.set(words);
    if (expires !== undefined) {
      larger.expires = new Float64Array(2 * slots);
      larger.expires.set(expires);
    }
    if (setBy !== undefined) {
      larger.setBy = new Uint32Array(2 * slots);
      larger.setBy.set(setBy);
    }
    this.#chunks[0] = larger;
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

  #word(slot: number, word: number): number {
    const { words } = this.#chunks[slot >>> CHUNK_BITS] as Chunk;
    return words[(slot & CHUNK_MASK) * RECORD_WORDS + word] as number;
  }

  #double(slot: number, double: number): number {
    const { doubles } = this.#chunks[slot >>> CHUNK_BITS] as Chunk;
    return doubles[(slot & CHUNK_MASK) * RECORD_DOUBLES + double] as number;
  }

  /**
   * Throws `InvariantError` unless each slot is either in `listed` or free, exactly once. Terminates even if lists
   * contain cycles.
   */
  verify(listed: Iterable<number>): void {
    const seen = new Uint8Array(this.#used);
    let count = 0;
    const see = (slot: number, what: string): void => {
      assert(slot < this.#used, () => `location slab: ${what} slot ${slot} of ${this.#used}`);
      assert(seen[slot] === 0, () => `location slab: ${what} slot ${slot} comes twice`);
      seen[slot] = 1;
      count++;
    };
    for (const slot of listed) see(slot, 'listed');
    for (let slot = this.#free; slot !== NO_SLOT; slot = this.nextOf(slot)) see(slot, 'free');
    assertEqual('location slab: slots', this.#used, count);
    assertEqual('location slab: chunks', this.#chunks.length, Math.ceil(this.#used / CHUNK_SLOTS));
  }
}

function newChunk(slots: number): Chunk {
  const memory = new ArrayBuffer(slots * RECORD_WORDS * BYTES_PER_WORD);
  return { words: new Uint32Array(memory), doubles: new Float64Array(memory), expires: undefined, setBy: undefined };
}
