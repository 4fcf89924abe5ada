/**
 * Storage of locations without an object for each: columns in chunks of fixed size, so that growing copies nothing.
 * A slot is an index over all chunks; slots of one key form a list through `next`. 45 bytes a location.
 */
const CHUNK_BITS = 14;
const CHUNK_SLOTS = 1 << CHUNK_BITS;
const CHUNK_MASK = CHUNK_SLOTS - 1;

/** End of a list. */
export const NO_SLOT = 0xffffffff;

export class LocationChunk {
  readonly addrWords = new Uint32Array(CHUNK_SLOTS * 2);
  readonly length = new Float64Array(CHUNK_SLOTS);
  readonly generation = new Float64Array(CHUNK_SLOTS);
  readonly rkey = new Uint32Array(CHUNK_SLOTS);
  readonly checksum = new Uint32Array(CHUNK_SLOTS);
  readonly node = new Uint32Array(CHUNK_SLOTS);
  readonly next = new Uint32Array(CHUNK_SLOTS);
  readonly tier = new Uint8Array(CHUNK_SLOTS);
}

export class LocationSlab {
  #chunks: LocationChunk[] = [];
  #free = NO_SLOT;
  /** Slots that have ever been used. */
  #used = 0;

  chunkOf(slot: number): LocationChunk {
    return this.#chunks[slot >>> CHUNK_BITS] as LocationChunk;
  }

  /** Index of `slot` within its chunk. */
  indexOf(slot: number): number {
    return slot & CHUNK_MASK;
  }

  nextOf(slot: number): number {
    return this.chunkOf(slot).next[slot & CHUNK_MASK] as number;
  }

  setNext(slot: number, next: number): void {
    this.chunkOf(slot).next[slot & CHUNK_MASK] = next;
  }

  nodeOf(slot: number): number {
    return this.chunkOf(slot).node[slot & CHUNK_MASK] as number;
  }

  generationOf(slot: number): number {
    return this.chunkOf(slot).generation[slot & CHUNK_MASK] as number;
  }

  /** A slot whose `next` is {@link NO_SLOT}; the other columns hold anything. */
  allocate(): number {
    if (this.#free !== NO_SLOT) {
      const slot = this.#free;
      this.#free = this.nextOf(slot);
      this.setNext(slot, NO_SLOT);
      return slot;
    }
    const slot = this.#used++;
    if (slot >>> CHUNK_BITS === this.#chunks.length) this.#chunks.push(new LocationChunk());
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
}
