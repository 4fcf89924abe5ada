import type { Clock } from './clock.js';
import type { ClusterSecrets } from './cluster-secrets.js';
import type { Files } from './files.js';
import type { Host } from './host.js';
import type { Logger } from './log.js';
import type { MetricsSink } from './metrics-sink.js';
import type { Network } from './network.js';
import type { RandomSource } from './random.js';
import type { Threads } from './threads.js';
import type { TlsIdentity } from './tls-identity.js';

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
