import type { Clock } from '../base/environment/clock.js';

/** Reading of the host's monotonic clock when this thread's own time began. */
const THREAD_BEGAN_MS = Number(process.hrtime.bigint() / 1000n) / 1000 - performance.now();

/** Reads the host's monotonic clock. On Linux it starts when the host boots. */
const hostMs = (): number => THREAD_BEGAN_MS + performance.now();

/** The clock of the real machine. */
export const systemClock: Clock = {
  nowMs: hostMs,
  workedMs() {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  },
  wallMs() {
    // The date of a machine cannot lie before 1970 plus its own uptime. A process that is given an earlier date uses
    // the earliest possible one, which moves forward.
    const dateMs = Date.now();
    return dateMs >= 0 ? dateMs : Math.floor(hostMs());
  },
  after(delayMs, fn, options) {
    const timer = setTimeout(fn, delayMs);
    if (!options?.keepAlive) timer.unref();
    return () => clearTimeout(timer);
  },
  yield: () => new Promise((resolve) => setImmediate(resolve)),
  soon: (fn) => process.nextTick(fn),
};
