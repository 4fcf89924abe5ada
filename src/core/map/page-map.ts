import { PAGE_MAP_MAX_NODES } from '../../base/core-limits.js';
import { ArgumentError, ClosedError, InvariantError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import { type Core, type CoreOptions, defaultCore } from '../binding/core.js';
import type { Keys } from '../binding/key-batch.js';

/** Parts of a map, each of which is gone through by itself. */
const PARTS_COUNT = 256;
/** Entries that are gone through without a pause when a node is forgotten: some tenths of a millisecond. */
const FORGET_STEP_ENTRIES = 65_536;
const RANK_MAX = 255;
const RESULT_BYTES = 2;
/** 32-bit words of a mark. */
export const MARK_WORDS = 2;

/** Stands for no node in the results of a map. */
export const NOWHERE = PAGE_MAP_MAX_NODES;
/** Added in the results of a map to the number of a node that is sure of the page. */
export const NODE_SURE = 2 ** 15;

/** What a mark says of a page on a node: it is not there, it is there, or it is there and the node is sure of it. */
export type PageMark = typeof MARK_ABSENT | typeof MARK_THERE | typeof MARK_SURE;
export const MARK_ABSENT = 0;
export const MARK_THERE = 1;
export const MARK_SURE = 3;
const MARK_MASK = 3;

/**
 * What {@link PageMap.note} takes, two words for each key: its position on the ring, of which the lowest two bits are its
 * mark. The caller owns the array.
 */
export function pageMarks(
  keys: Keys,
  markOf: (index: number) => PageMark,
  { core = defaultCore() }: CoreOptions = {},
): Uint32Array {
  const { area } = core;
  area.writePositions(keys, 0);
  const marks = area.u32.slice(area.hashes >>> 2, (area.hashes >>> 2) + MARK_WORDS * area.count);
  for (let i = 0, at = 0; at < marks.length; i++, at += MARK_WORDS) {
    marks[at] = ((marks[at] as number) & ~MARK_MASK) | markOf(i);
  }
  return marks;
}

/** The marks without those that say that a page is there. */
export function absencesOf(marks: Uint32Array): Uint32Array {
  const kept: number[] = [];
  for (let at = 0; at < marks.length; at += MARK_WORDS) {
    if (((marks[at] as number) & MARK_MASK) === MARK_ABSENT) kept.push(marks[at] as number, marks[at + 1] as number);
  }
  return Uint32Array.from(kept);
}

export interface PageMapStats {
  /** Entries: a page counts once for each node that has it. */
  readonly entries: number;
  /** Bytes that they take. */
  readonly bytes: number;
}

/**
 * Which nodes of a cluster probably have a page, in some seven bytes a page: `assembly/page-map.ts`. It knows pages by
 * 36 bits of their positions on the ring, so that with 10 million entries one key in 7,000 that nobody has seems to be
 * there. Nodes have numbers from 0 to below PAGE_MAP_MAX_NODES.
 */
export class PageMap {
  readonly #core: Core;
  #map: number;

  constructor(options: CoreOptions = {}) {
    this.#core = options.core ?? defaultCore();
    const { exports } = this.#core;
    const map = exports.mapNew();
    this.#map = map;
    this.#core.freeWhenCollected(this, () => exports.mapFree(map));
  }

  /**
   * Sets how willingly a node is chosen among several that have a page: 0 first, 254 last, 255 not at all, which is
   * what every node has at first.
   */
  rank(node: number, rank: number): void {
    if (!Number.isInteger(rank) || rank < 0 || rank > RANK_MAX) {
      throw new ArgumentError(`a rank is a whole number from 0 to ${RANK_MAX}, got ${shown(rank)}`);
    }
    this.#exports.mapSetRank(this.#open, checkNode(node), rank);
  }

  /** Notes which pages a node has, and which it does not have ({@link pageMarks}); returns how many marks were news. */
  note(node: number, marks: Uint32Array): number {
    this.#core.area.writeWords(marks, 0);
    const { area, exports } = this.#core;
    return exports.mapNoteBatch(this.#open, area.hashes, area.count, checkNode(node)) >>> 0;
  }

  /** Forgets all pages of a node. Yields after every {@link FORGET_STEP_ENTRIES} entries, so that the caller can pause. */
  *forget(node: number): Generator<void, void> {
    checkNode(node);
    let entries = 0;
    for (let part = 0; part < PARTS_COUNT; part++) {
      if (entries >= FORGET_STEP_ENTRIES) {
        yield;
        entries = 0;
      }
      entries += this.stats().entries / PARTS_COUNT;
      this.#exports.mapRemoveNode(this.#open, node, part);
    }
  }

  /**
   * For each key the number of a node that probably has it, plus {@link NODE_SURE} if that is sure of it, else {@link
   * NOWHERE}. Of several nodes, it is one of the lowest rank, and of these one that is sure. The caller owns the array.
   */
  nodesOf(keys: Keys): Uint16Array {
    const { area, exports } = this.#core;
    area.writePositions(keys, RESULT_BYTES);
    exports.mapNodesBatch(this.#open, area.hashes, area.count, area.results);
    const start = area.results;
    return new Uint16Array(area.u8.slice(start, start + RESULT_BYTES * area.count).buffer);
  }

  stats(): PageMapStats {
    return { entries: this.#exports.mapEntries(this.#open) >>> 0, bytes: this.#exports.mapBytes(this.#open) };
  }

  /** Frees the memory of the map. Idempotent. Without it, the memory is freed when the object is collected. */
  free(): void {
    if (this.#map === 0) return;
    this.#core.forget(this);
    this.#exports.mapFree(this.#map);
    this.#map = 0;
  }

  /** Throws `InvariantError` unless the counts agree with the entries. */
  verify(): void {
    if (this.#exports.mapIsConsistent(this.#open) === 0) throw new InvariantError('page map: an entry cannot be found');
  }

  get #exports() {
    return this.#core.exports;
  }

  get #open(): number {
    if (this.#map === 0) throw new ClosedError('the map of pages');
    return this.#map;
  }
}

function checkNode(node: number): number {
  if (Number.isInteger(node) && node >= 0 && node < PAGE_MAP_MAX_NODES) return node;
  throw new ArgumentError(
    `a node's number is a whole number from 0 to below ${PAGE_MAP_MAX_NODES}, got ${shown(node)}`,
  );
}
