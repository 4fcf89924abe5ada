import type { Clock } from '../base/environment/clock.js';

/** The host's monotonic clock when this thread's own time began. */
const THREAD_BEGAN_MS = Number(process.hrtime.bigint() / 1000n) / 1000 - performance.now();

/** The host's monotonic clock, which on Linux begins with the host. */
const hostMs = (): number => THREAD_BEGAN_MS + performance.now();

/** The time of the real machine. */
export const systemClock: Clock = {
  nowMs: hostMs,
  workedMs() {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  },
  wallMs() {
    // No machine can be set to a date before 1970 and its own uptime; a process that is told one gets the earliest date
    // of its machine, which goes forward.
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
