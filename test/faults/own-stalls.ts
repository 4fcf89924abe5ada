const STEP_MS = 100;
/** Gaps between two steps that are longer than this are not those of a thread that can run. */
const FAIR_GAP_MS = 500;

/** When this process could not run: then the machine's other processes could not either, or not for long. */
class OwnStalls {
  readonly #stalls: [from: number, to: number][] = [];
  #lastMs = performance.now();

  constructor() {
    setInterval(() => this.#step(), STEP_MS).unref();
  }

  /** Of the time between two readings of `performance.now()`. */
  msWithin(startMs: number, endMs: number): number {
    this.#step();
    return this.#stalls.reduce(
      (sum, [from, to]) => sum + Math.max(0, Math.min(to, endMs) - Math.max(from, startMs)),
      0,
    );
  }

  #step(): void {
    const nowMs = performance.now();
    if (nowMs - this.#lastMs > FAIR_GAP_MS) this.#stalls.push([this.#lastMs, nowMs]);
    this.#lastMs = nowMs;
  }
}

/** Of the process that runs the suite. */
export const ownStalls = new OwnStalls();
