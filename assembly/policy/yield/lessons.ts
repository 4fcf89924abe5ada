import { HALVE_PAGES, HALVE_TICKS, LEARN_PAGES, LEARN_TICKS } from './yield-pace';

/** When to learn from what was counted, and when to halve the weight of what is old; and how long requests are. */
@unmanaged
export class Lessons {
  /** Number of recent requests. */
  private requests: u64;
  /** Pages requested so far; those up to `pagesBefore` are not recent. */
  private requested: u64;
  private pagesBefore: u64;
  /** Pages requested, and the tick, when learning, and halving, was last due. */
  private learnPages: u64;
  private learnTick: u32;
  private halvePages: u64;
  private halveTick: u32;

  constructor(tick: u32) {
    this.requests = 0;
    this.requested = 0;
    this.pagesBefore = 0;
    this.learnPages = 0;
    this.learnTick = tick;
    this.halvePages = 0;
    this.halveTick = tick;
  }

  @inline
  countRequest(): void {
    this.requests++;
  }

  @inline
  countPage(): void {
    this.requested++;
  }

  /** Mean number of pages of recent requests. */
  get pagesOfRequest(): u64 {
    return (this.requested - this.pagesBefore) / max<u64>(1, this.requests);
  }

  /** Whether counts are to be halved now, its own included. */
  isHalvingDue(tick: u32): bool {
    if (this.requested - this.halvePages < HALVE_PAGES || tick - this.halveTick < HALVE_TICKS) return false;
    this.halvePages = this.requested;
    this.halveTick = tick;
    this.requests >>= 1;
    this.pagesBefore = this.requested - ((this.requested - this.pagesBefore) >> 1);
    return true;
  }

  /** Whether it is time to learn now. */
  isDue(tick: u32): bool {
    if (this.requested - this.learnPages < LEARN_PAGES || tick - this.learnTick < LEARN_TICKS) return false;
    this.learnPages = this.requested;
    this.learnTick = tick;
    return true;
  }

  dispose(): void {
    heap.free(changetype<usize>(this));
  }
}
