import { ArgumentError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import type { PlacementRequest } from './placement.js';

/** Position that stands for a use that never comes. */
const NEVER = 0x7fffffff;

/**
 * Upper bounds on the hits of a cache of one size on a trace, with which eviction policies are compared.
 *
 * Positions number the pages of all requests, one request after the other.
 */
export class PlacementBounds {
  readonly requests: number;
  readonly pagesAsked: number;
  /** Number of different pages in the trace. */
  readonly uniquePages: number;
  /** The number of the page at each position. */
  readonly #pages: Int32Array;
  /** For each position, the position of the next use of the same page; NEVER if there is none. */
  readonly #nextUses: Int32Array;
  /** The position of each request's first page, and the end of the trace. */
  readonly #starts: Int32Array;

  constructor(requests: readonly Pick<PlacementRequest, 'hashIds'>[]) {
    this.requests = requests.length;
    this.#starts = new Int32Array(requests.length + 1);
    requests.forEach(({ hashIds }, i) => {
      this.#starts[i + 1] = (this.#starts[i] as number) + hashIds.length;
    });
    this.pagesAsked = this.#starts[requests.length] as number;
    this.#pages = new Int32Array(this.pagesAsked);
    const numbers = new Map<number, number>();
    let position = 0;
    for (const { hashIds } of requests) {
      for (const id of hashIds) {
        const number = numbers.get(id) ?? numbers.size;
        if (number === numbers.size) numbers.set(id, number);
        this.#pages[position++] = number;
      }
    }
    this.uniquePages = numbers.size;
    this.#nextUses = nextUses(this.#pages, this.uniquePages);
  }

  /** Pages before the first miss of their request if nothing is ever evicted. */
  unboundedHits(): number {
    const isHere = new Uint8Array(this.uniquePages);
    let hits = 0;
    this.#eachRequest((start, end) => {
      hits += this.#prefix(start, end, isHere);
      for (let at = start; at < end; at++) isHere[this.#pages[at] as number] = 1;
    });
    return hits;
  }

  /**
   * Pages before the first miss of their request in a clairvoyant cache of `capacity` pages: for a new page, it evicts
   * the page whose next use is farthest away, which may be the new one itself (MIN with bypass). Of the pages of one
   * request, the last ones are evicted first. Throws `ArgumentError` unless the capacity is a whole number of at least
   * 0.
   */
  clairvoyantHits(capacityPages: number): number {
    if (!Number.isSafeInteger(capacityPages) || capacityPages < 0) {
      throw new ArgumentError(`capacityPages must be a whole number from 0 on, got ${shown(capacityPages)}`);
    }
    const isHere = new Uint8Array(this.uniquePages);
    const uses = new FarthestFirst(this.pagesAsked);
    let count = 0;
    let hits = 0;
    this.#eachRequest((start, end) => {
      hits += this.#prefix(start, end, isHere);
      for (let at = start; at < end; at++) {
        const page = this.#pages[at] as number;
        const next = this.#nextUses[at] as number;
        if (isHere[page] === 1) {
          isHere[page] = 0;
          count--;
        }
        if (next === NEVER) continue;
        if (count === capacityPages) {
          // Entries before this position belong to pages that have been used since.
          if (uses.farthest <= next) continue;
          isHere[this.#pages[uses.takeFarthest()] as number] = 0;
          count--;
        }
        isHere[page] = 1;
        count++;
        uses.add(next);
      }
    });
    return hits;
  }

  #eachRequest(use: (start: number, end: number) => void): void {
    for (let i = 0; i < this.requests; i++) use(this.#starts[i] as number, this.#starts[i + 1] as number);
  }

  #prefix(start: number, end: number, isHere: Uint8Array): number {
    let at = start;
    while (at < end && isHere[this.#pages[at] as number] === 1) at++;
    return at - start;
  }
}

function nextUses(pages: Int32Array, uniquePages: number): Int32Array {
  const next = new Int32Array(pages.length);
  const seen = new Int32Array(uniquePages).fill(NEVER);
  for (let at = pages.length - 1; at >= 0; at--) {
    const page = pages[at] as number;
    next[at] = seen[page] as number;
    seen[page] = at;
  }
  return next;
}

/** Positions with the highest first: a binary heap with room for `capacity`. */
class FarthestFirst {
  readonly #heap: Int32Array;
  #count = 0;

  constructor(capacity: number) {
    this.#heap = new Int32Array(capacity);
  }

  /** The highest position, or -1 when the heap is empty. */
  get farthest(): number {
    return this.#count === 0 ? -1 : (this.#heap[0] as number);
  }

  add(position: number): void {
    const heap = this.#heap;
    let at = this.#count++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if ((heap[parent] as number) >= position) break;
      heap[at] = heap[parent] as number;
      at = parent;
    }
    heap[at] = position;
  }

  takeFarthest(): number {
    const heap = this.#heap;
    const farthest = heap[0] as number;
    const last = heap[--this.#count] as number;
    let at = 0;
    for (let child = 1; child < this.#count; child = 2 * at + 1) {
      if (child + 1 < this.#count && (heap[child + 1] as number) > (heap[child] as number)) child++;
      if ((heap[child] as number) <= last) break;
      heap[at] = heap[child] as number;
      at = child;
    }
    heap[at] = last;
    return farthest;
  }
}
