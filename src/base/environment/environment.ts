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

/** @internal Settings by which a simulation differs from a machine, so that rare cases occur. */
export interface Simulated {
  /** Lower limits, so that they are reached. */
  readonly removalsMaxKeys?: number | undefined;
  readonly droppedMaxKeys?: number | undefined;
  /** Reorders parts that must not depend on their order. Default: the order given. */
  readonly shuffled?: <T>(parts: readonly T[]) => readonly T[];
}

/** Everything that a component uses from outside the program. */
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
  /** Receives audit events; undefined: there is no audit log. */
  readonly audit?: AuditSink | undefined;
  /** @internal Settings by which a simulation differs from a machine. */
  readonly simulated?: Simulated | undefined;
  /**
   * With secrets, every connection between nodes begins with a mutual proof, and other peers are refused. See
   * `securedEnvironment`.
   */
  readonly secrets?: ClusterSecrets | undefined;
  /** The certificate that `network` presents when it speaks TLS. Other threads build their own network from it. */
  readonly tls?: TlsIdentity | undefined;
}
