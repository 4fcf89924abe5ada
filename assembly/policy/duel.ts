import { TICKS_PER_TURNOVER } from './yield-pace';

const TURNOVER: u32 = <u32>TICKS_PER_TURNOVER;
/** Shortest and longest time, in ticks, for which the pool is evicted like LRU before it is judged again. */
const LRU_TICKS_MIN: u32 = 32 * TURNOVER;
const LRU_TICKS_MAX: u32 = 512 * TURNOVER;
/** Ticks before a trial is judged, and before its hits count: at first the pool has what LRU left. */
const TRIAL_TICKS: u32 = 6 * TURNOVER;
const WARMING_TICKS: u32 = 2 * TURNOVER;

/** Standard deviations by which LRU must lead. */
const DEVIATIONS: i64 = 2;

/**
 * Judges whether a pool does better by its own values or like LRU. While values decide, each request's hits are
 * counted beside those that LRU would have had; where these are more, and not by chance, LRU decides for a while, and
 * then values are on trial again. Only hits in a row from a request's first page count.
 */
@unmanaged
export class Duel {
  isLru: bool;
  /** Tick at which the present phase began, and for how long LRU decides the next time. */
  private sinceTick: u32;
  private lruTicks: u32;
  /** What requests would have hit more with LRU, in units. */
  private lead: i64;
  /** Number of requests that would have hit more with LRU, and of those that would have hit less. */
  private better: i64;
  private worse: i64;
  /** The lead of the running request, and whether all its pages so far were hits, and would have been. */
  private leadOfRequest: i64;
  private isOwnWhole: bool;
  private isLruWhole: bool;

  constructor(tick: u32) {
    this.isLru = false;
    this.sinceTick = tick;
    this.lruTicks = LRU_TICKS_MIN;
    this.lead = 0;
    this.better = 0;
    this.worse = 0;
    this.leadOfRequest = 0;
    this.isOwnWhole = true;
    this.isLruWhole = true;
  }

  beginRequest(): void {
    this.lead += this.leadOfRequest;
    if (this.leadOfRequest > 0) this.better++;
    else if (this.leadOfRequest < 0) this.worse++;
    this.leadOfRequest = 0;
    this.isOwnWhole = true;
    this.isLruWhole = true;
  }

  /** Counts the request's next page: whether it is here, and whether LRU would have it. */
  @inline
  count(units: u64, isHere: bool, isInLru: bool): void {
    this.isOwnWhole = this.isOwnWhole && isHere;
    this.isLruWhole = this.isLruWhole && isInLru;
    if (this.isOwnWhole != this.isLruWhole) this.leadOfRequest += this.isLruWhole ? <i64>units : -<i64>units;
  }

  /** Judges; returns whether another side decides now. */
  judge(tick: u32): bool {
    const ticks = tick - this.sinceTick;
    if (this.isLru) {
      if (ticks < this.lruTicks) return false;
      this.decide(false, tick);
      return true;
    }
    if (ticks < WARMING_TICKS) this.forget();
    if (ticks < TRIAL_TICKS) return false;
    if (this.isBehind()) {
      this.decide(true, tick);
      this.lruTicks = min(LRU_TICKS_MAX, this.lruTicks * 2);
      return true;
    }
    if (ticks < TRIAL_TICKS * 8) return false;
    // Values have won.
    this.lruTicks = LRU_TICKS_MIN;
    this.lead /= 2;
    this.better >>= 1;
    this.worse >>= 1;
    this.sinceTick = tick - TRIAL_TICKS * 4;
    return false;
  }

  dispose(): void {
    heap.free(changetype<usize>(this));
  }

  private decide(isLru: bool, tick: u32): void {
    this.isLru = isLru;
    this.sinceTick = tick;
    this.forget();
  }

  private forget(): void {
    this.lead = 0;
    this.better = 0;
    this.worse = 0;
  }

  /** Whether LRU would have had more hits, in more requests than could be by chance (a sign test). */
  private isBehind(): bool {
    const by = this.better - this.worse;
    return this.lead > 0 && by > 0 && by * by > DEVIATIONS * DEVIATIONS * (this.better + this.worse);
  }
}
