import type { Environment } from '../base/environment/environment.js';
import { noMetrics } from '../base/environment/metrics-sink.js';
import { systemClock } from './system-clock.js';
import { systemFiles } from './system-files.js';
import { systemHost } from './system-host.js';
import { defaultLogger } from './system-log.js';
import { systemNetwork } from './system-network.js';
import { systemRandom } from './system-random.js';
import { systemThreads } from './system-threads.js';

/** The real machine, with what `overrides` replaces. */
export function systemEnvironment(overrides: Partial<Environment> = {}): Environment {
  return {
    clock: systemClock,
    random: systemRandom,
    network: systemNetwork,
    files: systemFiles,
    threads: systemThreads,
    host: systemHost,
    // One that nobody writes to does not touch stderr.
    log: overrides.log ?? defaultLogger(),
    metrics: noMetrics,
    ...overrides,
  };
}
