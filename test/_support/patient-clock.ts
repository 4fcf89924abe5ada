import type { Clock } from '../../src/base/environment/clock.js';
import { systemClock } from '../../src/system/system-clock.js';

const STEP_MS = 10;
/** Longest gap between two steps of a thread that can run; the rest of a longer gap does not count. */
const FAIR_GAP_MS = 40;

function createPatientClock(): Clock {
  let lastMs = systemClock.nowMs();
  let stolenMs = 0;
  const nowMs = (): number => {
    const machineMs = systemClock.nowMs();
    stolenMs += Math.max(0, machineMs - lastMs - FAIR_GAP_MS);
    lastMs = machineMs;
    return machineMs - stolenMs;
  };
  setInterval(nowMs, STEP_MS).unref();
  return {
    ...systemClock,
    nowMs,
    after(delayMs, fn, options) {
      const dueMs = nowMs() + delayMs;
      const fire = (): void => {
        const leftMs = dueMs - nowMs();
        // Timers of the machine may be early by their resolution.
        if (leftMs > 1) cancel = systemClock.after(leftMs, fire, options);
        else fn();
      };
      let cancel = systemClock.after(delayMs, fire, options);
      return () => cancel();
    },
  };
}

/**
 * The machine's clock without the time in which this process could not run. Tests use it if nodes of one process
 * promise each other something within a deadline, which none could keep on a machine that stalls.
 */
export const patientClock: Clock = createPatientClock();
