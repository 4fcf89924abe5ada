/** Ticks over which the pace is measured. */
const TICKS: u32 = 16;

/** How fast a clock of ticks goes, by the time. */
@unmanaged
export class Pace {
  nowMs: f64;
  /** The tick, and the time, from which the pace is measured; 0: no time was told yet. */
  private sinceTick: u32;
  private sinceMs: f64;
  /** Milliseconds of a tick; 0: unknown. */
  private msPerTick: f64;

  constructor(tick: u32) {
    this.nowMs = 0;
    this.sinceTick = tick;
    this.sinceMs = 0;
    this.msPerTick = 0;
  }

  /** Tells the time at that tick. */
  tell(nowMs: f64, tick: u32): void {
    this.nowMs = nowMs;
    const ticks = tick - this.sinceTick;
    if (ticks < TICKS || nowMs <= this.sinceMs) return;
    const latest = (nowMs - this.sinceMs) / <f64>ticks;
    if (this.sinceMs > 0) this.msPerTick = this.msPerTick == 0 ? latest : (this.msPerTick + latest) / 2;
    this.sinceTick = tick;
    this.sinceMs = nowMs;
  }

  /** The ticks of so many milliseconds; 0: unknown. */
  ticksOf(ms: f64): f64 {
    return this.msPerTick == 0 ? 0 : ms / this.msPerTick;
  }

  dispose(): void {
    heap.free(changetype<usize>(this));
  }
}
