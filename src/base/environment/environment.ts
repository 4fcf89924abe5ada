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

/** @internal What a simulation has otherwise than a machine, so that it meets what is rare there. */
export interface Simulated {
  /** Limits that are lower, so that they are reached. */
  readonly removalsMaxKeys?: number | undefined;
  readonly droppedMaxKeys?: number | undefined;
  /** Brings parts that must not depend on their order into another one. Default: as they are given. */
  readonly shuffled?: <T>(parts: readonly T[]) => readonly T[];
}

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
  /** @internal What a simulation has otherwise. */
  readonly simulated?: Simulated | undefined;
  /**
   * With secrets, every connection between nodes begins with a mutual proof, and other peers are refused. See
   * `securedEnvironment`.
   */
  readonly secrets?: ClusterSecrets | undefined;
  /** The certificate that `network` presents when it speaks TLS. Other threads build their own network from it. */
  readonly tls?: TlsIdentity | undefined;
}
