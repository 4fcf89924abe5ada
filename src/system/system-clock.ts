import type { Clock } from '../base/environment/clock.js';

/** The host's monotonic clock when this thread's own time began. */
const THREAD_BEGAN_MS = Number(process.hrtime.bigint() / 1000n) / 1000 - performance.now();

/** The time of the real machine. */
export const systemClock: Clock = {
  nowMs: () => THREAD_BEGAN_MS + performance.now(),
  workedMs() {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  },
  wallMs: () => Date.now(),
  after(delayMs, fn, options) {
    const timer = setTimeout(fn, delayMs);
    if (!options?.keepAlive) timer.unref();
    return () => clearTimeout(timer);
  },
  yield: () => new Promise((resolve) => setImmediate(resolve)),
  soon: (fn) => process.nextTick(fn),
};
