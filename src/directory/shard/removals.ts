import { assert, assertAtMost, assertEqual } from '../../base/assert.js';
import { partitionsOf } from '../../core/ring/partitions.js';
import type { NoteColumns } from '../messages/note-columns.js';

/** Slots of a table at first; it doubles when half of them are taken. */
const FIRST_SLOTS_COUNT = 1024;
/** Number of slots that are visited before yielding to other work. */
const VISITED_SLOTS_COUNT = 65_536;
/** Default number of generations of {@link Removals}. */
const GENERATIONS_COUNT = 2;

/** Called with the digest of a key, the version below which its contents are void, and its partition. */
export type NoteVisitor = (digest: number, version: number, partition: number) => void;

/** Options of {@link Removals}. */
export interface RemovalsOptions {
  /** Keeps the partitions of keys, for {@link Removals.eachNote}. */
  readonly keepsPartitions?: boolean;
  /** Generations that are kept, 2 or more; default 2. */
  readonly generations?: number;
  /** Monotonic clock for {@link Removals.forgottenAfter}; default: time stands still. */
  readonly nowMs?: () => number;
}

/**
 * Versions below which keys are void. They are remembered after nothing is left under those keys, so that an older
 * content does not come back when a node that was away announces it late.
 *
 * The memory is bounded: a few generations of at most `maxKeys` keys. The oldest one is forgotten when the youngest is
 * full. A generation takes 32 to 72 bytes for each of its keys; the garbage collector does not scan it.
 *
 * Keys are told apart by {@link digestOf}. Two keys with the same digest share the later version. A page that is
 * wrongly taken for void is only a miss, and this happens to one in 10^10 lookups.
 */
export class Removals {
  /** Generations, the youngest first. */
  readonly #generations: Generation[];
  readonly #nowMs: () => number;
  #newest = 0;
  /** No forgotten version is above this one. */
  #newestForgotten = 0;
  /** Nothing that was noted later than this is forgotten. */
  #forgottenUpToMs = Number.NEGATIVE_INFINITY;

  constructor(maxKeys: number, options: RemovalsOptions = {}) {
    const { keepsPartitions = false, generations: length = GENERATIONS_COUNT, nowMs = () => 0 } = options;
    this.#generations = Array.from({ length }, () => new Generation(maxKeys, keepsPartitions));
    this.#nowMs = nowMs;
  }

  /** Notes that contents older than this version, which must be above 0, are void. */
  note(key: string, version: number): void {
    this.#put(digestOf(key), version, () => partitionsOf([key])[0] as number);
  }

  /**
   * Calls {@link note} for everything that another node has noted. Returns how many notes were not known. If these
   * notes are forgotten again, {@link hasForgotten} does not count them: a node that hears of so much so late is as
   * good as one that has not heard of it.
   */
  take({ count, digests, versions, partitions }: NoteColumns): number {
    let unknown = 0;
    for (let i = 0; i < count; i++)
      if (this.#put(digests[i] as number, versions[i] as number, () => partitions[i] as number, true)) unknown++;
    return unknown;
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
   * Returns {@link versionOf} if it is later than `version`, else 0. Costs nothing if `version` is newer than
   * everything noted, as it is for most pages that are set.
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
   * Returns a version at least as late as all that were noted after this time of the clock and are forgotten; 0: none
   * is forgotten. For a page older than the result it is unknown whether it is void.
   */
  forgottenAfter(ms: number): number {
    return this.#forgottenUpToMs > ms ? this.#newestForgotten : 0;
  }

  /**
   * Visits all notes step by step, so that other work can run in between. The partitions must be kept. A key may come
   * more than once, its newest version being one of them. Keys that are noted meanwhile may be left out.
   */
  *eachNote(visit: NoteVisitor): Generator<void, void> {
    for (const generation of this.#generations) yield* generation.each(visit);
  }

  /** The newest version ever noted, even if it has been forgotten since; 0: nothing was noted. */
  get newest(): number {
    return this.#newest;
  }

  /** Begins a new generation, and forgets the oldest one. */
  turn(): void {
    const forgotten = this.#generations.pop() as Generation;
    if (forgotten.newest > 0) {
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
    this.#newest = 0;
    this.#newestForgotten = 0;
    this.#forgottenUpToMs = Number.NEGATIVE_INFINITY;
  }

  #put(digest: number, version: number, partitionOf: () => number, isTaken = false): boolean {
    const known = this.#versionOf(digest);
    const isNew = version > known;
    const [before] = this.#generations as [Generation];
    if (isNew && before.isFull && before.versionOf(digest) === 0) this.turn();
    const young = this.#generations[0] as Generation;
    if (version > this.#newest) this.#newest = version;
    if (isNew) young.put(digest, version, partitionOf);
    if (!isTaken && version >= known && version > young.newest) young.newest = version;
    return isNew;
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

/** Table digest -> version, and perhaps partition: a hash table with linear probing, at most half full. */
class Generation {
  size = 0;
  /** The newest version in this generation that this node has noted itself. */
  newest = 0;
  /** When the next generation began. */
  endedMs = 0;
  readonly #maxKeys: number;
  readonly #keepsPartitions: boolean;
  /** Digest and version of each slot; version 0 marks an empty slot. */
  #cells = new Float64Array(0);
  /** The partition of each slot, if partitions are kept. */
  #partitions = new Uint16Array(0);

  constructor(maxKeys: number, keepsPartitions: boolean) {
    this.#maxKeys = maxKeys;
    this.#keepsPartitions = keepsPartitions;
  }

  get isFull(): boolean {
    return this.size >= this.#maxKeys;
  }

  versionOf(digest: number): number {
    return this.size === 0 ? 0 : this.#versionAt(this.#slotOf(digest));
  }

  /** Stores a version. `partitionOf` is called for a digest that is new, if partitions are kept. */
  put(digest: number, version: number, partitionOf: () => number): void {
    if (this.#cells.length === 0) this.#allocate(FIRST_SLOTS_COUNT);
    const slot = this.#slotOf(digest);
    const isNew = this.#versionAt(slot) === 0;
    this.#cells[2 * slot] = digest;
    this.#cells[2 * slot + 1] = version;
    if (!isNew) return;
    if (this.#keepsPartitions) this.#partitions[slot] = partitionOf();
    this.size++;
    if (4 * this.size > this.#cells.length) this.#grow();
  }

  *each(visit: NoteVisitor): Generator<void, void> {
    // Growing allocates new arrays and leaves these as they are.
    const [cells, partitions] = [this.#cells, this.#partitions];
    for (let slot = 0; slot < partitions.length; slot++) {
      const version = cells[2 * slot + 1] as number;
      if (version > 0) visit(cells[2 * slot] as number, version, partitions[slot] as number);
      if ((slot + 1) % VISITED_SLOTS_COUNT === 0) yield;
    }
  }

  clear(): void {
    if (this.size > 0) this.#cells.fill(0);
    this.size = 0;
    this.newest = 0;
  }

  #digestAt(slot: number): number {
    return this.#cells[2 * slot] as number;
  }

  #versionAt(slot: number): number {
    return this.#cells[2 * slot + 1] as number;
  }

  /** The slot of the digest, or the empty slot where it belongs. */
  #slotOf(digest: number): number {
    const cells = this.#cells;
    const mask = cells.length / 2 - 1;
    let slot = (digest >>> 0) & mask;
    while (cells[2 * slot + 1] !== 0 && cells[2 * slot] !== digest) slot = (slot + 1) & mask;
    return slot;
  }

  #allocate(slots: number): void {
    this.#cells = new Float64Array(2 * slots);
    if (this.#keepsPartitions) this.#partitions = new Uint16Array(slots);
  }

  #grow(): void {
    const [cells, partitions] = [this.#cells, this.#partitions];
    this.#allocate(cells.length);
    for (let before = 0; 2 * before < cells.length; before++) {
      const version = cells[2 * before + 1] as number;
      if (version === 0) continue;
      const digest = cells[2 * before] as number;
      const slot = this.#slotOf(digest);
      this.#cells[2 * slot] = digest;
      this.#cells[2 * slot + 1] = version;
      if (this.#keepsPartitions) this.#partitions[slot] = partitions[before] as number;
    }
  }

  verify(newest: number): void {
    const slots = this.#cells.length / 2;
    let size = 0;
    for (let slot = 0; slot < slots; slot++) {
      const version = this.#versionAt(slot);
      if (version === 0) continue;
      size++;
      const digest = this.#digestAt(slot);
      assert(this.#slotOf(digest) === slot, () => `removals: the digest ${digest} in slot ${slot} is not found there`);
      assertAtMost('removals: a version beside the newest', version, newest);
    }
    assertEqual('removals: keys', this.size, size);
    assertAtMost('removals: keys', size, this.#maxKeys);
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

/**
 * The digest by which a copy names the node that has set its content: 32 bits, never 0. Two nodes with the same digest
 * clear each other's copies, which then become misses.
 */
export function originOf(nodeId: string): number {
  return digestOf(nodeId) >>> 0 || 1;
}

function finalized(lane: number): number {
  let mixed = Math.imul(lane ^ (lane >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return mixed ^ (mixed >>> 16);
}
