import { type Clock, systemClock } from './clock.js';
import { defaultLogger, type Logger } from './log.js';
import { type MetricsSink, noMetrics } from './metrics-sink.js';
import { type Network, systemNetwork } from './network.js';
import { type RandomSource, systemRandom } from './random.js';

/** Everything a component takes from outside of itself. */
export interface Environment {
  readonly clock: Clock;
  readonly random: RandomSource;
  readonly network: Network;
  readonly log: Logger;
  readonly metrics: MetricsSink;
}

/** The real machine, with what `overrides` replaces. */
export function systemEnvironment(overrides: Partial<Environment> = {}): Environment {
  return {
    clock: systemClock,
    random: systemRandom,
    network: systemNetwork,
    log: defaultLogger(),
    metrics: noMetrics,
    ...overrides,
  };
}
