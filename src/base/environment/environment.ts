import type { AuditSink } from './audit.js';
import type { Clock } from './clock.js';
import type { ClusterSecrets, TlsIdentity } from './credentials.js';
import type { Files } from './files.js';
import type { Host } from './host.js';
import type { HttpClient } from './http-client.js';
import type { Logger } from './log.js';
import type { MetricsSink } from './metrics-sink.js';
import type { NameService } from './name-service.js';
import type { Network } from './network.js';
import type { RandomSource } from './random.js';
import type { Threads } from './threads.js';

/** Everything that a component takes from outside of the program. */
export interface Environment {
  readonly clock: Clock;
  readonly random: RandomSource;
  readonly network: Network;
  readonly files: Files;
  readonly threads: Threads;
  readonly host: Host;
  readonly names: NameService;
  readonly http: HttpClient;
  readonly log: Logger;
  readonly metrics: MetricsSink;
  /** Takes what the audit log has; undefined: there is none. */
  readonly audit?: AuditSink | undefined;
  /** @internal Limits that a simulation lowers, so that it reaches them. */
  readonly limits?: { readonly removalsMaxKeys?: number; readonly droppedMaxKeys?: number } | undefined;
  /**
   * With secrets, every connection between nodes begins with a mutual proof, and other peers are refused. See
   * `securedEnvironment`.
   */
  readonly secrets?: ClusterSecrets | undefined;
  /** The certificate that `network` presents when it speaks TLS. Other threads build their own network from it. */
  readonly tls?: TlsIdentity | undefined;
}
