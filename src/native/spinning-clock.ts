import { availableParallelism } from 'node:os';
import type { Clock } from '../base/environment/clock.js';
import { systemClock } from '../system/system-clock.js';
import { loadNative } from './addon/loader.js';

/** Longest time that tasks of the event loop wait for a look for input, in microseconds. */
const LOOK_MAX_US = 5;
/** A look that takes this long was interrupted: other processes need the processor. */
const INTERRUPTED_MS = 1;
/** Time without spinning after that: long enough for the system to move one of two threads that share a processor. */
const INTERRUPTED_REST_MS = 10;
/** Time without spinning after it was in vain; it doubles each time, and halves when input has come. */
const REST_MIN_MS = 1;
const REST_MAX_MS = 100;

/**
 * The clock of the real machine, whose thread does not sleep for `spinUs` microseconds after each `expectInput`, but looks
 * for input: a processor that sleeps takes tens of microseconds to wake up. With 0, without the addon, and on a machine with
 * a single processor, it sleeps at once.
 *
 * After no input has come in that time, or another process has taken the processor, it sleeps at once for a while: then the
 * input comes from afar, or its sender waits for this processor.
 */
export function spinningClock(spinUs: number): Clock {
  const { addon } = loadNative();
  if (addon === null || spinUs === 0 || availableParallelism() === 1) return systemClock;
  const spinMs = spinUs / 1000;
  let untilMs = 0;
  let isSpinning = false;
  let hasCome = false;
  let restMs = REST_MIN_MS;
  let restUntilMs = 0;
  const rest = (ms: number, nowMs: number) => {
    isSpinning = false;
    restUntilMs = nowMs + ms;
    restMs = Math.min(2 * ms, REST_MAX_MS);
  };
  // Immediates run once in each turn of the loop, after input, and keep it from sleeping.
  const look = () => {
    const beganMs = performance.now();
    if (beganMs >= untilMs) {
      isSpinning = false;
      if (!hasCome) rest(restMs, beganMs);
      return;
    }
    if (addon.waitForInput(LOOK_MAX_US)) {
      hasCome = true;
      restMs = Math.max(restMs / 2, REST_MIN_MS);
    }
    const endedMs = performance.now();
    if (endedMs - beganMs > INTERRUPTED_MS) rest(INTERRUPTED_REST_MS, endedMs);
    else setImmediate(look);
  };
  return {
    ...systemClock,
    expectInput() {
      const nowMs = performance.now();
      if (nowMs < restUntilMs) return;
      untilMs = nowMs + spinMs;
      hasCome = false;
      if (isSpinning) return;
      isSpinning = true;
      setImmediate(look);
    },
  };
}
