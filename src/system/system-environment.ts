import type { Environment } from '../base/environment/environment.js';
import { noMetrics } from '../base/environment/metrics-sink.js';
import { systemFiles } from './files/system-files.js';
import { systemClock } from './system-clock.js';
import { systemHost } from './system-host.js';
import { systemHttp } from './system-http.js';
import { defaultLogger } from './system-log.js';
import { systemNames } from './system-names.js';
import { systemNetwork } from './system-network.js';
import { systemRandom } from './system-random.js';
import { systemThreads } from './system-threads.js';

/** Returns the environment of the real machine; `overrides` replaces parts of it. */
export function systemEnvironment(overrides: Partial<Environment> = {}): Environment {
  return {
    clock: systemClock,
    random: systemRandom,
    network: systemNetwork,
    files: systemFiles,
    threads: systemThreads,
    host: systemHost,
    names: systemNames,
    http: systemHttp,
    // The default logger is created only if it is used, because creating one touches stderr.
    log: overrides.log ?? defaultLogger(),
    metrics: noMetrics,
    ...overrides,
  };
}
