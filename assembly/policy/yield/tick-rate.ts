/** Ticks over which the rate is measured. */
const TICKS: u32 = 16;

/** How many milliseconds a clock of ticks takes for one, lately. */
@unmanaged
export class TickRate {
  /** The tick, and the time, from which it is measured; time 0: none was told yet. */
  private sinceTick: u32;
  private sinceMs: f64;
  /** Milliseconds of a tick; 0: unknown. */
  private msPerTick: f64;

  constructor(tick: u32) {
    this.sinceTick = tick;
    this.sinceMs = 0;
    this.msPerTick = 0;
  }

  /** Takes the tick at a time that is later than the last one. */
  measure(nowMs: f64, tick: u32): void {
    const ticks = tick - this.sinceTick;
    if (ticks < TICKS) return;
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
