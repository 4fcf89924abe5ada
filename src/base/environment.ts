import { type Clock, systemClock } from './clock.js';
import type { Files } from './files.js';
import type { Host } from './host.js';
import { defaultLogger, type Logger } from './log.js';
import { type MetricsSink, noMetrics } from './metrics-sink.js';
import type { Network } from './network.js';
import { type RandomSource, systemRandom } from './random.js';
import type { ClusterSecrets } from './secrets.js';
import { systemFiles } from './system-files.js';
import { systemHost } from './system-host.js';
import { systemNetwork } from './system-network.js';
import { systemThreads } from './system-threads.js';
import type { Threads } from './threads.js';
import type { TlsIdentity } from './tls.js';

/** Everything a component takes from outside of itself. */
export interface Environment {
  readonly clock: Clock;
  readonly random: RandomSource;
  readonly network: Network;
  readonly files: Files;
  readonly threads: Threads;
  readonly host: Host;
  readonly log: Logger;
  readonly metrics: MetricsSink;
  /** With them every connection between nodes begins with mutual proof, and nobody else is talked to; see `securedEnvironment`. */
  readonly secrets?: ClusterSecrets | undefined;
  /** What `network` shows of this node when it speaks TLS; other threads make a network of their own of it. */
  readonly tls?: TlsIdentity | undefined;
}

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
