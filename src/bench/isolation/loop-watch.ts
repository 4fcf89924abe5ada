import { readFileSync } from 'node:fs';

const LOOK_MS = 5;

/** What the main loop of a process did since it was asked last. */
export interface LoopFigures {
  /** The longest time in which it took no other event. */
  readonly worstMs: number;
  /** The longest such time, as far as it computed: on a crowded machine the rest is waiting for a processor. */
  readonly worstBusyMs: number;
}

/**
 * Watches how long the main loop of this process is held up. A timer is late by what the loop does meanwhile and by what the thread waits for
 * a processor; the processor time of the thread tells the two apart. Without /proc both figures are the whole.
 */
export class LoopWatch {
  #lastMs = performance.now();
  #lastBusyMs = busyMs();
  #worstMs = 0;
  #worstBusyMs = 0;

  constructor() {
    setInterval(() => this.#look(), LOOK_MS).unref();
  }

  take(): LoopFigures {
    this.#look();
    const figures = { worstMs: this.#worstMs, worstBusyMs: this.#worstBusyMs };
    this.#worstMs = this.#worstBusyMs = 0;
    return figures;
  }

  #look(): void {
    const [nowMs, nowBusyMs] = [performance.now(), busyMs()];
    const lateMs = Math.max(0, nowMs - this.#lastMs - LOOK_MS);
    const busy = Math.min(lateMs, nowBusyMs === undefined ? lateMs : nowBusyMs - (this.#lastBusyMs ?? 0));
    this.#worstMs = Math.max(this.#worstMs, lateMs);
    this.#worstBusyMs = Math.max(this.#worstBusyMs, busy);
    this.#lastMs = nowMs;
    this.#lastBusyMs = nowBusyMs;
  }
}

/** Processor time of the main thread in milliseconds, where Linux tells it. */
function busyMs(): number | undefined {
  try {
    return Number(readFileSync('/proc/self/schedstat', 'latin1').split(' ')[0]) / 1e6;
  } catch {
    return undefined;
  }
}
