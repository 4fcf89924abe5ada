import { NONE } from '../../records';
import { AgedLists, STAGES } from './aged-lists';

/**
 * Classes that differ only in the lowest bits, the caller's hint, form a group: the other classes of a group are the
 * evidence for a rare hint.
 */
const HINTS: u32 = 4;
/** The number one in fixed point with 16 fraction bits; for probabilities. */
const ONE: u64 = 1 << 16;
/** Minimum weight, in pages at risk, of the prior against which a list's own figures are weighed. */
const MIN_PRIOR_PAGES: u64 = 20;
const PRIOR_REQUESTS: u64 = 8;

/**
 * The expected yield of keeping a page, learned per class and stage: how many of the pages at risk in a stage (those
 * that left it, and half of those in it, evicted ones included) were hit there. The value of a list is the best ratio
 * of hits to page ticks over all times for which its pages could be kept. Uses only integers, so that all machines
 * decide alike.
 *
 *     by list:   [hits: u64][survived: u64][value: u64][rank: u32][unused: u32]
 */
@unmanaged
export class PageValues {
  private classes: u32;
  private lists: usize;
  /** Numbers of all lists, the lowest value first. */
  private order: usize;
  /** One bit per list that has pages, at its rank. */
  private rankBits: usize;
  /** By group of classes and by stage: [hits: u64][risk: u64] */
  private sums: usize;
  /** For the group being processed, by stage: [chance of a hit: u64] */
  private prior: usize;
  /** Runs of stages to whose end pages are best kept, the latest first: [gain: u64][cost: u64][alive: u64] */
  private spans: usize;

  constructor(classes: u32) {
    const lists = <usize>(classes * STAGES);
    this.classes = classes;
    this.lists = heap.alloc(lists << 5);
    memory.fill(this.lists, 0, lists << 5);
    this.order = heap.alloc(lists << 2);
    for (let i: u32 = 0; i < <u32>lists; i++) store<u32>(this.order + (<usize>i << 2), i);
    this.rankBits = heap.alloc(lists >> 3);
    memory.fill(this.rankBits, 0, lists >> 3);
    this.sums = heap.alloc(<usize>((classes / HINTS + 1) * STAGES) << 4);
    this.prior = heap.alloc(STAGES * 8);
    this.spans = heap.alloc(STAGES * 24);
  }

  @inline
  countHit(list: u32): void {
    const at = this.at(list);
    store<u64>(at, load<u64>(at) + 1);
  }

  /** Counts pages, or ghosts of pages, that left the list without a hit. */
  @inline
  countSurvived(list: u32, pages: u32): void {
    const at = this.at(list);
    store<u64>(at, load<u64>(at, 8) + pages, 8);
  }

  @inline
  value(list: u32): u64 {
    return load<u64>(this.at(list), 16);
  }

  @inline
  rank(list: u32): u32 {
    return load<u32>(this.at(list), 24);
  }

  /** The list at this rank; rank 0 has the lowest value. */
  @inline
  atRank(rank: u32): u32 {
    return load<u32>(this.order + (<usize>rank << 2));
  }

  /** Marks a list as having pages. */
  @inline
  mark(list: u32): void {
    const rank = this.rank(list);
    const at = this.rankBits + ((<usize>rank >> 6) << 3);
    store<u64>(at, load<u64>(at) | (<u64>1 << (rank & 63)));
  }

  @inline
  unmark(list: u32): void {
    const rank = this.rank(list);
    const at = this.rankBits + ((<usize>rank >> 6) << 3);
    store<u64>(at, load<u64>(at) & ~(<u64>1 << (rank & 63)));
  }

  /** The list with pages that has the lowest value, or NONE. */
  @inline
  least(): u32 {
    return this.from(0);
  }

  /** The list with pages that follows this one by value, or NONE. */
  @inline
  next(list: u32): u32 {
    return this.from(this.rank(list) + 1);
  }

  /** Halves the weight of old evidence. */
  halve(): void {
    for (let list: u32 = 0; list < this.classes * STAGES; list++) {
      const at = this.at(list);
      store<u64>(at, load<u64>(at) >> 1);
      store<u64>(at, load<u64>(at, 8) >> 1, 8);
    }
  }

  /** Recomputes all values and ranks; `pages` and `ghosts` have one list for every list here. */
  learn(pages: AgedLists, ghosts: AgedLists, pagesOfRequest: u64): void {
    const weight = max(MIN_PRIOR_PAGES, PRIOR_REQUESTS * pagesOfRequest);
    this.sum(pages, ghosts);
    for (let first: u32 = 0; first < this.classes; first += HINTS) {
      this.setPrior(first / HINTS, weight);
      let unseen: u32 = NONE;
      for (let one = first; one < first + HINTS; one++) {
        const isSeen = this.isSeen(one, pages, ghosts);
        if (isSeen || unseen == NONE) this.setValues(one, weight, pages, ghosts);
        else this.copyValues(unseen, one);
        if (!isSeen) unseen = one;
      }
    }

    this.raisePrefixes();
    this.sort();
    memory.fill(this.rankBits, 0, (<usize>(this.classes * STAGES)) >> 3);
    for (let list: u32 = 0; list < this.classes * STAGES; list++) if (pages.at(list).count > 0) this.mark(list);
  }

  /** Whether ranks, order and marks agree. */
  isConsistent(pages: AgedLists): bool {
    let before: u64 = 0;
    for (let rank: u32 = 0; rank < this.classes * STAGES; rank++) {
      const list = this.atRank(rank);
      if (this.rank(list) != rank || this.value(list) < before) return false;
      before = this.value(list);
      const bits = load<u64>(this.rankBits + ((<usize>rank >> 6) << 3));
      if (((bits >> (rank & 63)) & 1) != 0 != pages.at(list).count > 0) return false;
    }
    return true;
  }

  dispose(): void {
    heap.free(this.lists);
    heap.free(this.order);
    heap.free(this.rankBits);
    heap.free(this.sums);
    heap.free(this.prior);
    heap.free(this.spans);
    heap.free(changetype<usize>(this));
  }

  /** The list with pages at the lowest rank from this one on, or NONE. */
  private from(rank: u32): u32 {
    const words = (this.classes * STAGES) >> 6;
    let mask = ~<u64>0 << (rank & 63);
    for (let word = rank >> 6; word < words; word++) {
      const bits = load<u64>(this.rankBits + (<usize>word << 3)) & mask;
      if (bits != 0) return this.atRank((word << 6) + <u32>ctz(bits));
      mask = ~<u64>0;
    }
    return NONE;
  }

  @inline
  private at(list: u32): usize {
    return this.lists + (<usize>list << 5);
  }

  @inline
  private hits(list: u32): u64 {
    return load<u64>(this.at(list));
  }

  /** Twice the pages at risk. */
  @inline
  private risk(list: u32, pages: AgedLists, ghosts: AgedLists): u64 {
    return 2 * (this.hits(list) + load<u64>(this.at(list), 8)) + pages.at(list).count + ghosts.at(list).count;
  }

  /** Sums hits and risk by stage: for each group of classes, then for all groups together. */
  private sum(pages: AgedLists, ghosts: AgedLists): void {
    const groups = this.classes / HINTS;
    memory.fill(this.sums, 0, <usize>((groups + 1) * STAGES) << 4);
    for (let list: u32 = 0; list < this.classes * STAGES; list++) {
      const risk = this.risk(list, pages, ghosts);
      if (risk == 0) continue;
      const stage = list % STAGES;
      this.addSum((list / STAGES / HINTS) * STAGES + stage, this.hits(list), risk);
      this.addSum(groups * STAGES + stage, this.hits(list), risk);
    }
  }

  private addSum(index: u32, hits: u64, risk: u64): void {
    const at = this.sums + (<usize>index << 4);
    store<u64>(at, load<u64>(at) + hits);
    store<u64>(at, load<u64>(at, 8) + risk, 8);
  }

  /** Sets the chance of a hit by stage for a class of the group about which nothing is known. */
  private setPrior(group: u32, weight: u64): void {
    const all = this.sums + (<usize>((this.classes / HINTS) * STAGES) << 4);
    for (let stage: u32 = 0; stage < STAGES; stage++) {
      const at = all + (<usize>stage << 4);
      const ofAll = ((load<u64>(at) + 2) * 2 * ONE) / (load<u64>(at, 8) + 40);
      const groupAt = this.sums + (<usize>(group * STAGES + stage) << 4);
      const chance = (load<u64>(groupAt) * 2 * ONE + 2 * weight * ofAll) / (load<u64>(groupAt, 8) + 2 * weight);
      store<u64>(this.prior + (<usize>stage << 3), chance);
    }
  }

  private isSeen(one: u32, pages: AgedLists, ghosts: AgedLists): bool {
    for (let list = one * STAGES; list < (one + 1) * STAGES; list++) {
      if (this.risk(list, pages, ghosts) > 0) return true;
    }
    return false;
  }

  private copyValues(from: u32, to: u32): void {
    for (let stage: u32 = 0; stage < STAGES; stage++) {
      store<u64>(this.at(to * STAGES + stage), this.value(from * STAGES + stage), 16);
    }
  }

  /**
   * Computes, from the oldest stage down, the best ratio of hits to page ticks from each stage on: the stage's own
   * ratio, merged with that of the following stages while those are worth more.
   */
  private setValues(one: u32, weight: u64, pages: AgedLists, ghosts: AgedLists): void {
    let span = this.spans;
    for (let stage: u32 = STAGES; stage-- > 0; ) {
      const list = one * STAGES + stage;
      const prior = load<u64>(this.prior + (<usize>stage << 3));
      const risk = this.risk(list, pages, ghosts) + 2 * weight;
      // On average, pages that are hit leave in the middle of the stage.
      let gain = (this.hits(list) * 2 * ONE + 2 * weight * prior) / risk;
      let cost = stageQuarterTicks(stage) * (ONE - (gain >> 1));
      let alive = ONE - gain;
      while (span > this.spans) {
        const nextGain = load<u64>(span - 24);
        const nextCost = load<u64>(span - 16);
        if (nextGain * cost <= gain * nextCost) break;
        gain += (alive * nextGain) >> 16;
        cost += (alive * nextCost) >> 16;
        alive = (alive * load<u64>(span - 8)) >> 16;
        span -= 24;
      }
      store<u64>(span, gain);
      store<u64>(span, cost, 8);
      store<u64>(span, alive, 16);
      span += 24;
      store<u64>(this.at(list), (gain << 32) / cost, 16);
    }
  }

  /**
   * Raises the values of pages that were hit more often, because they come before the other pages of their request,
   * which are useless without them. They become worth at least as much, for the same hint and stage. Learned values
   * alone are often the other way round, because many long conversations have come to their end.
   */
  private raisePrefixes(): void {
    // Distance to the class with one more hit; only classes of pages that were not the last ones are raised.
    const step: u32 = 2 * HINTS;
    for (let one: u32 = step; one < this.classes; one++) {
      if ((one & HINTS) != 0) continue;
      for (let stage: u32 = 0; stage < STAGES; stage++) {
        const at = this.at(one * STAGES + stage);
        store<u64>(at, max(load<u64>(at, 16), this.value((one - step) * STAGES + stage)), 16);
      }
    }
  }

  /**
   * Sorts by value, older stages first among equals. Insertion sort, because the order changes little between calls.
   */
  private sort(): void {
    for (let i: u32 = 1; i < this.classes * STAGES; i++) {
      const list = this.atRank(i);
      let rank = i;
      for (; rank > 0 && this.isBefore(list, this.atRank(rank - 1)); rank--) {
        store<u32>(this.order + (<usize>rank << 2), this.atRank(rank - 1));
      }
      store<u32>(this.order + (<usize>rank << 2), list);
    }
    for (let i: u32 = 0; i < this.classes * STAGES; i++) store<u32>(this.at(this.atRank(i)), i, 24);
  }

  @inline
  private isBefore(a: u32, b: u32): bool {
    const valueA = this.value(a);
    const valueB = this.value(b);
    if (valueA != valueB) return valueA < valueB;
    const stageA = a % STAGES;
    const stageB = b % STAGES;
    return stageA != stageB ? stageA > stageB : a < b;
  }
}

/** Average length of a stage for the pages in it. The first stage may be entered at any time within its tick. */
// @ts-ignore: decorator
@inline
function stageQuarterTicks(stage: u32): u64 {
  return stage == 0 ? 2 : 3 << (<u64>stage);
}
