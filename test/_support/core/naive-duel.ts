const TURNOVER = 64;
const REST_TICKS_MIN = 32 * TURNOVER;
const REST_TICKS_MAX = 512 * TURNOVER;
const TRIAL_TICKS = 6 * TURNOVER;
const WARMING_TICKS = 2 * TURNOVER;

/** What decides which page goes, in the order in which it is on trial. */
export type Decides = 'expectations' | 'values' | 'last use';

/** Compares the hits of requests with those that LRU would have, and says what is to decide. */
export class NaiveDuel {
  decides: Decides = 'expectations';
  hasExpectations = false;
  /** All that has come to decide, in order, each once. */
  readonly rivals = new Set<Decides>();
  private since = 1;
  private restTicks = REST_TICKS_MIN;
  private sum = { lead: 0, better: 0, worse: 0 };
  private lead = 0;
  private isOwnWhole = true;
  private isLruWhole = true;

  beginRequest(): void {
    this.sum.lead += this.lead;
    if (this.lead > 0) this.sum.better++;
    else if (this.lead < 0) this.sum.worse++;
    this.lead = 0;
    this.isOwnWhole = true;
    this.isLruWhole = true;
  }

  count(units: number, isHere: boolean, isInLru: boolean): void {
    this.isOwnWhole &&= isHere;
    this.isLruWhole &&= isInLru;
    if (this.isOwnWhole !== this.isLruWhole) this.lead += this.isLruWhole ? units : -units;
  }

  /** Returns whether something else decides from now on. */
  judge(tick: number): boolean {
    const ticks = tick - this.since;
    if (this.decides !== 'expectations' && ticks >= this.restTicks) return this.decide('expectations', tick);
    if (this.decides === 'last use') return false;
    if (ticks < WARMING_TICKS) this.sum = { lead: 0, better: 0, worse: 0 };
    return this.judgeTrial(tick, ticks < TRIAL_TICKS ? 4 : 2);
  }

  /** `deviations`: standard deviations by which LRU must lead. */
  private judgeTrial(tick: number, deviations: number): boolean {
    const { lead, better, worse } = this.sum;
    if (lead > 0 && better > worse && (better - worse) ** 2 > deviations ** 2 * (better + worse)) {
      this.restTicks = Math.min(REST_TICKS_MAX, 2 * this.restTicks);
      return this.decide(this.decides === 'expectations' && this.hasExpectations ? 'values' : 'last use', tick);
    }
    if (this.decides === 'expectations' && tick - this.since >= 8 * TRIAL_TICKS) {
      this.restTicks = REST_TICKS_MIN;
      this.sum = { lead: Math.trunc(lead / 2), better: Math.floor(better / 2), worse: Math.floor(worse / 2) };
      this.since = tick - 4 * TRIAL_TICKS;
    }
    return false;
  }

  private decide(what: Decides, tick: number): boolean {
    this.decides = what;
    this.rivals.add(what);
    this.hasExpectations = false;
    this.since = tick;
    this.sum = { lead: 0, better: 0, worse: 0 };
    return true;
  }
}
