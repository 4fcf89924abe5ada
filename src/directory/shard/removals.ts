import { assert, assertAtMost, assertEqual } from '../../base/assert.js';

/** Bytes of key text for each kept key: with longer keys the text fills up sooner. */
const KEY_TEXT_BYTES = 128;
const KEY_TEXT_MIN_BYTES = 64 * 1024;
/** Largest UTF-8 length of one UTF-16 unit. */
const UNIT_MAX_BYTES = 3;

/** Slots of a table at first; it doubles when half of them are taken. */
const FIRST_SLOTS_COUNT = 1024;
/** Generations that {@link Removals} keeps unless it is told otherwise. */
const GENERATIONS_COUNT = 2;

/** Options of {@link Removals}. */
export interface RemovalsOptions {
  /** Keeps the text of keys for {@link Removals.entries}. */
  readonly keepsKeys?: boolean;
  /** Generations that are kept, 2 or more; default 2. */
  readonly generations?: number;
  /** Monotonic clock for {@link Removals.forgottenAfter}; default: time stands still. */
  readonly nowMs?: () => number;
}

/**
 * Versions below which keys are void, remembered after nothing is left under those keys, so that an older content does
 * not come back when a node that was away announces it late.
 *
 * The memory is bounded: a few generations of at most `maxKeys` keys. The oldest one is forgotten when the youngest is
 * full. A generation takes 32 to 64 bytes for each of its keys, and from its first key on 132 for each of `maxKeys` if
 * keys are kept; the garbage collector does not scan it.
 *
 * Keys are told apart by {@link digestOf}. Two keys of the same digest share the later version. A page that is wrongly
 * taken for void is only a miss, and this happens to one in 10^10 lookups.
 */
export class Removals {
  /** The youngest first. */
  readonly #generations: Generation[];
  readonly #nowMs: () => number;
  /** No noted version is above this one. */
  #newest = 0;
  /** No forgotten version is above this one. */
  #newestForgotten = 0;
  /** Nothing that was noted later than this is forgotten. */
  #forgottenUpToMs = Number.NEGATIVE_INFINITY;

  constructor(maxKeys: number, options: RemovalsOptions = {}) {
    const { keepsKeys = false, generations: length = GENERATIONS_COUNT, nowMs = () => 0 } = options;
    this.#generations = Array.from({ length }, () => new Generation(maxKeys, keepsKeys));
    this.#nowMs = nowMs;
  }

  /** Notes that contents older than this version, which must be above 0, are void. */
  note(key: string, version: number): void {
    let young = this.#generations[0] as Generation;
    young.allocate();
    const digest = digestOf(key);
    let slot = young.slotOf(digest);
    const known = young.versionAt(slot);
    if (version <= (known || this.#versionOf(digest))) return;
    if (known === 0 && !young.hasRoomFor(key)) {
      this.turn();
      young = this.#generations[0] as Generation;
      young.allocate();
      slot = young.slotOf(digest);
    }
    if (version > this.#newest) this.#newest = version;
    young.put(slot, digest, key, version);
  }

  /** The noted version of a key; 0: nothing is known of it. */
  versionOf(key: string): number {
    return this.#generations.every(({ size }) => size === 0) ? 0 : this.#versionOf(digestOf(key));
  }

  /** Whether a page of this version is void. */
  isVoid(key: string, version: number): boolean {
    return this.laterThan(key, version) > 0;
  }

  /**
   * {@link versionOf} if it is later than this version, else 0. A version newer than everything noted, as of most pages
   * that are set, costs nothing.
   */
  laterThan(key: string, version: number): number {
    if (version >= this.#newest) return 0;
    const known = this.versionOf(key);
    return known > version ? known : 0;
  }

  /** Whether anything is forgotten. */
  get hasForgotten(): boolean {
    return this.#newestForgotten > 0;
  }

  /**
   * A version that is at least as late as all that were noted after this time of the clock and are forgotten; 0: none
   * is forgotten. Of an older page it is not known whether it is void.
   */
  forgottenAfter(ms: number): number {
    return this.#forgottenUpToMs > ms ? this.#newestForgotten : 0;
  }

  /** Every kept key with its version; what was noted in the oldest generation comes first. */
  *entries(): Generator<readonly [key: string, version: number], void> {
    const [young, ...older] = this.#generations as [Generation, ...Generation[]];
    for (let i = older.length - 1; i >= 0; i--) {
      const younger = [young, ...older.slice(0, i)];
      for (const key of (older[i] as Generation).keys()) {
        const digest = digestOf(key);
        if (younger.every((each) => each.versionOf(digest) === 0)) yield [key, this.#versionOf(digest)];
      }
    }
    for (const key of young.keys()) yield [key, this.versionOf(key)];
  }

  /** Begins a new generation, and forgets the oldest one. */
  turn(): void {
    const forgotten = this.#generations.pop() as Generation;
    if (forgotten.size > 0) {
      this.#newestForgotten = Math.max(this.#newestForgotten, forgotten.newest);
      this.#forgottenUpToMs = forgotten.endedMs;
    }
    const [ended] = this.#generations;
    if (ended !== undefined) ended.endedMs = this.#nowMs();
    forgotten.clear();
    this.#generations.unshift(forgotten);
  }

  /** Forgets everything, as if nothing had been noted. */
  clear(): void {
    for (const generation of this.#generations) generation.clear();
    this.#newestForgotten = 0;
    this.#forgottenUpToMs = Number.NEGATIVE_INFINITY;
  }

  #versionOf(digest: number): number {
    for (const generation of this.#generations) {
      const version = generation.versionOf(digest);
      if (version > 0) return version;
    }
    return 0;
  }

  /** Throws `InvariantError` unless the tables match their counts and hold no version above the newest one noted. */
  verify(): void {
    for (const generation of this.#generations) generation.verify(this.#newest);
  }
}

/**
 * Table digest -> version: a hash table with linear probing, at most half full, and the text of its keys in order of
 * insertion.
 */
class Generation {
  size = 0;
  /** The latest of its versions. */
  newest = 0;
  /** When the next generation began. */
  endedMs = 0;
  readonly #maxKeys: number;
  readonly #keepsKeys: boolean;
  /** Digest and version of each slot; version 0 marks an empty slot. */
  #cells = new Float64Array(0);
  #text = Buffer.alloc(0);
  /** End of each key in the text. */
  #ends = new Uint32Array(0);

  constructor(maxKeys: number, keepsKeys: boolean) {
    this.#maxKeys = maxKeys;
    this.#keepsKeys = keepsKeys;
  }

  allocate(): void {
    if (this.#cells.length > 0) return;
    this.#cells = new Float64Array(2 * FIRST_SLOTS_COUNT);
    if (!this.#keepsKeys) return;
    this.#text = Buffer.from(new ArrayBuffer(Math.max(KEY_TEXT_MIN_BYTES, KEY_TEXT_BYTES * this.#maxKeys)));
    this.#ends = new Uint32Array(this.#maxKeys);
  }

  hasRoomFor(key: string): boolean {
    if (this.size >= this.#maxKeys) return false;
    return !this.#keepsKeys || this.#textEnd + UNIT_MAX_BYTES * key.length <= this.#text.length;
  }

  versionOf(digest: number): number {
    return this.size === 0 ? 0 : this.versionAt(this.slotOf(digest));
  }

  versionAt(slot: number): number {
    return this.#cells[2 * slot + 1] as number;
  }

  /** The slot of the digest, or the empty slot where it belongs. */
  slotOf(digest: number): number {
    const cells = this.#cells;
    const mask = cells.length / 2 - 1;
    let slot = (digest >>> 0) & mask;
    while (cells[2 * slot + 1] !== 0 && cells[2 * slot] !== digest) slot = (slot + 1) & mask;
    return slot;
  }

  /** Stores a version; `slot` must be the digest's slot. */
  put(slot: number, digest: number, key: string, version: number): void {
    const isNew = this.versionAt(slot) === 0;
    this.#cells[2 * slot] = digest;
    this.#cells[2 * slot + 1] = version;
    if (version > this.newest) this.newest = version;
    if (!isNew) return;
    if (this.#keepsKeys) this.#ends[this.size] = this.#textEnd + this.#text.write(key, this.#textEnd);
    this.size++;
    if (4 * this.size > this.#cells.length) this.#grow();
  }

  *keys(): Generator<string, void> {
    for (let i = 0; this.#keepsKeys && i < this.size; i++) {
      const start = i === 0 ? 0 : (this.#ends[i - 1] as number);
      yield this.#text.toString('utf8', start, this.#ends[i]);
    }
  }

  clear(): void {
    if (this.size > 0) this.#cells.fill(0);
    this.size = 0;
    this.newest = 0;
  }

  #grow(): void {
    const before = this.#cells;
    this.#cells = new Float64Array(2 * before.length);
    for (let at = 0; at < before.length; at += 2) {
      const [digest, version] = [before[at] as number, before[at + 1] as number];
      if (version === 0) continue;
      const slot = this.slotOf(digest);
      this.#cells[2 * slot] = digest;
      this.#cells[2 * slot + 1] = version;
    }
  }

  get #textEnd(): number {
    return this.size === 0 ? 0 : (this.#ends[this.size - 1] as number);
  }

  verify(newest: number): void {
    const cells = this.#cells;
    const slots = cells.length / 2;
    let size = 0;
    for (let slot = 0; slot < slots; slot++) {
      const version = cells[2 * slot + 1] as number;
      if (version === 0) continue;
      size++;
      const digest = cells[2 * slot] as number;
      assert(this.slotOf(digest) === slot, () => `removals: the digest ${digest} in slot ${slot} is not found there`);
      assertAtMost('removals: a version beside the newest', version, newest);
    }
    assertEqual('removals: keys', this.size, size);
    assertAtMost('removals: keys', size, this.#maxKeys);
    if (this.#keepsKeys) assertAtMost('removals: bytes of text', this.#textEnd, this.#text.length);
    for (const key of this.keys()) {
      assert(this.versionOf(digestOf(key)) > 0, () => `removals: no version of ${JSON.stringify(key)}, which is kept`);
    }
  }
}

/**
 * A 53-bit digest of a text: two lanes that rotate, take two UTF-16 units by xor and multiply, each mixed at the end by
 * the finalizer of MurmurHash3 (Appleby). It is fast rather than safe against deliberate collisions; an attacker would
 * only gain misses.
 */
export function digestOf(key: string): number {
  const { length } = key;
  let high = 0x9747b28c ^ length;
  let low = 0x3c6ef372;
  for (let i = 0; i < length; i += 2) {
    const units = key.charCodeAt(i) | (i + 1 < length ? key.charCodeAt(i + 1) << 16 : 0);
    high = Math.imul(((high << 15) | (high >>> 17)) ^ units, 0x9e3779b1);
    low = Math.imul(((low << 13) | (low >>> 19)) ^ units, 0x5f356495);
  }
  const mixed = finalized(high);
  return (mixed >>> 11) * 2 ** 32 + (finalized(low ^ mixed) >>> 0);
}

function finalized(lane: number): number {
  let mixed = Math.imul(lane ^ (lane >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return mixed ^ (mixed >>> 16);
}
