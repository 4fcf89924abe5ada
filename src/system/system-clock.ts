import type { Clock } from '../base/environment/clock.js';

/** The time of the real machine. */
export const systemClock: Clock = {
  nowMs: () => performance.now(),
  wallMs: () => Date.now(),
  after(delayMs, fn, options) {
    const timer = setTimeout(fn, delayMs);
    if (!options?.keepAlive) timer.unref();
    return () => clearTimeout(timer);
  },
  yield: () => new Promise((resolve) => setImmediate(resolve)),
  soon: (fn) => process.nextTick(fn),
};
