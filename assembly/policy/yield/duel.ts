import { TICKS_PER_TURNOVER } from './yield-pace';

const TURNOVER: u32 = <u32>TICKS_PER_TURNOVER;
/** What decides which page is evicted: what callers expect and learned values, those values alone, or the last use. */
export const EXPECTATIONS: u32 = 0;
export const VALUES: u32 = 1;
export const LAST_USE: u32 = 2;

/**
 * Ticks for which something else decides before expectations are on trial again: each loss doubles them first, up to
 * the maximum, and a trial that is stood makes them the minimum again.
 */
const REST_TICKS_MIN: u32 = 32 * TURNOVER;
const REST_TICKS_MAX: u32 = 512 * TURNOVER;
/** Length of a trial, and ticks before its hits count: at first the pool has what the last use has left. */
const TRIAL_TICKS: u32 = 6 * TURNOVER;
const WARMING_TICKS: u32 = 2 * TURNOVER;

/**
 * Standard deviations by which LRU must lead at the end of a trial, and before: what costs much is over soon. A trial
 * is as long as six turnovers of the pool, which may be hours.
 */
const DEVIATIONS: i64 = 2;
const DEVIATIONS_EARLY: i64 = 4;

/**
 * Says what decides which page is evicted, by the hits of each request beside those that LRU would have had
 * (`lru-shadow.ts`). Only hits in a row from a request's first page count. If LRU has more, and not by chance,
 * something else decides for a while: learned values if callers have expected anything meanwhile, else the last use. If
 * LRU has more than learned values alone, too, the last use decides. Then expectations and values are on trial again.
 */
@unmanaged
export class Duel {
  /** What decides now. */
  decides: u32;
  /** Whether callers have expected anything since the last change of what decides. */
  hasExpectations: bool;
  /** Tick of that change. A trial that was stood moves it forward, as if the trial were still going on. */
  private sinceTick: u32;
  /** For how long what has lost rests. */
  private restTicks: u32;
  /** Units by which requests would have hit more with LRU. */
  private lead: i64;
  /** Number of requests that would have hit more with LRU, and of those that would have hit less. */
  private better: i64;
  private worse: i64;
  /** The lead of the running request, and whether all its pages so far were hits, and would have been. */
  private leadOfRequest: i64;
  private isOwnWhole: bool;
  private isLruWhole: bool;

  constructor(tick: u32) {
    this.decides = EXPECTATIONS;
    this.hasExpectations = false;
    this.sinceTick = tick;
    this.restTicks = REST_TICKS_MIN;
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

  /** Judges; returns whether something else decides from now on. */
  judge(tick: u32): bool {
    const ticks = tick - this.sinceTick;
    if (this.decides != EXPECTATIONS && ticks >= this.restTicks) return this.decide(EXPECTATIONS, tick);
    if (this.decides == LAST_USE) return false;
    if (ticks < WARMING_TICKS) this.forget();
    if (this.isBehind(ticks < TRIAL_TICKS ? DEVIATIONS_EARLY : DEVIATIONS)) {
      this.restTicks = min(REST_TICKS_MAX, this.restTicks * 2);
      return this.decide(this.decides == EXPECTATIONS && this.hasExpectations ? VALUES : LAST_USE, tick);
    }
    if (this.decides == VALUES || ticks < TRIAL_TICKS * 8) return false;
    // The trial is stood. The next judgement counts half of it.
    this.restTicks = REST_TICKS_MIN;
    this.lead /= 2;
    this.better >>= 1;
    this.worse >>= 1;
    this.sinceTick = tick - TRIAL_TICKS * 4;
    return false;
  }

  dispose(): void {
    heap.free(changetype<usize>(this));
  }

  private decide(what: u32, tick: u32): bool {
    this.decides = what;
    this.hasExpectations = false;
    this.sinceTick = tick;
    this.forget();
    return true;
  }

  private forget(): void {
    this.lead = 0;
    this.better = 0;
    this.worse = 0;
  }

  /** Whether LRU would have had more hits, in more requests than is likely by chance (a sign test). */
  private isBehind(deviations: i64): bool {
    const by = this.better - this.worse;
    return this.lead > 0 && by > 0 && by * by > deviations * deviations * (this.better + this.worse);
  }
}
