import { availableParallelism } from 'node:os';
import type { Clock } from '../base/environment/clock.js';
import { systemClock } from '../system/system-clock.js';
import { loadNative } from './addon/loader.js';

/** Longest time that tasks of the event loop wait for a look for input, in microseconds. */
const LOOK_MAX_US = 5;

/**
 * The clock of the real machine, whose thread does not sleep for `spinUs` microseconds after each `expectInput`, but looks
 * for input: a processor that sleeps takes tens of microseconds to wake up. With 0, without the addon, and on a machine
 * with a single processor, it sleeps at once.
 */
export function spinningClock(spinUs: number): Clock {
  const { addon } = loadNative();
  if (addon === null || spinUs === 0 || availableParallelism() === 1) return systemClock;
  const spinMs = spinUs / 1000;
  let untilMs = 0;
  let isSpinning = false;
  // Immediates run once in each turn of the loop, after input, and keep it from sleeping.
  const look = () => {
    isSpinning = performance.now() < untilMs;
    if (!isSpinning) return;
    addon.waitForInput(LOOK_MAX_US);
    setImmediate(look);
  };
  return {
    ...systemClock,
    expectInput() {
      untilMs = performance.now() + spinMs;
      if (isSpinning) return;
      isSpinning = true;
      setImmediate(look);
    },
  };
}
