/**
 * Classes of the public API that programs construct without an environment: here, and nowhere below, the real machine is what they
 * take where they are not given anything else.
 */
import { systemClock } from './base/clock.js';
import { type Environment, systemEnvironment } from './base/environment.js';
import { type RandomSource, systemRandom } from './base/random.js';
import { systemHost } from './base/system-host.js';
import type { MeshCacheConfig } from './config.js';
import { Metrics as AnyMetrics, type MetricsOptions as AnyMetricsOptions } from './metrics/metrics.js';
import {
  MetricsServer as AnyMetricsServer,
  type MetricsServerOptions as AnyMetricsServerOptions,
  type MetricsSource,
} from './metrics/metrics-server.js';
import {
  NodeRuntime as AnyNodeRuntime,
  type NodeRuntimeOptions as AnyNodeRuntimeOptions,
} from './node/node-runtime.js';
import { nativeCopyThreads } from './pool/copy-threads.js';
import { PublishedPool as AnyPool, type PublishedPoolOptions as AnyPoolOptions } from './pool/published-pool.js';

/** `T` with an environment only where it is not the real machine. */
type OnMachine<T extends { readonly env: Environment }> = Omit<T, 'env'> & Partial<Pick<T, 'env'>>;

/** What {@link NodeRuntime} takes beside its configuration. */
export type NodeRuntimeOptions = OnMachine<AnyNodeRuntimeOptions>;

/** One node without its pool: transport, control plane, directory shard and membership, wired together. */
export class NodeRuntime extends AnyNodeRuntime {
  /** An id that no other node has: `node-` and 64 random bits. */
  static override generateNodeId(random: RandomSource = systemRandom): string {
    return AnyNodeRuntime.generateNodeId(random);
  }

  constructor(config: MeshCacheConfig, options: NodeRuntimeOptions = {}) {
    super(config, { env: systemEnvironment(), ...options });
  }
}

/** What {@link PublishedPool} takes beside its memory. */
export type PublishedPoolOptions = Omit<AnyPoolOptions, 'clock' | 'copyThreads'> &
  Partial<Pick<AnyPoolOptions, 'clock' | 'copyThreads'>>;

/** The pages of one node in a range of host memory that peers may read. */
export class PublishedPool extends AnyPool {
  /** `capacity` bytes from `baseAddr` on must lie in one live `HostRegion`; `rkey` is what peers show to read them. */
  constructor(baseAddr: bigint, capacity: number, rkey: number, options: PublishedPoolOptions = {}) {
    super(baseAddr, capacity, rkey, { clock: systemClock, copyThreads: nativeCopyThreads, ...options });
  }
}

/** What {@link Metrics} takes beside the name of its node. */
export type MetricsOptions = Pick<AnyMetricsOptions, 'version'> & Partial<Pick<AnyMetricsOptions, 'clock'>>;

/**
 * One node's metrics: a registry of its own, every sample labelled with the node's id. It observes the event loop until it is
 * closed; that does not keep the process alive.
 */
export class Metrics extends AnyMetrics {
  constructor(nodeId: string, options: MetricsOptions = {}) {
    super(nodeId, { clock: systemClock, ...options, host: systemHost });
    this.observe();
  }
}

/** What a {@link MetricsServer} shows, and to whom. */
export type MetricsServerOptions = OnMachine<AnyMetricsServerOptions>;

/** HTTP server of one node for its operator: metrics, health, reports and the dashboard. It only reads. */
export class MetricsServer extends AnyMetricsServer {
  /** `port` 0 takes any free one. Throws `ArgumentError` for a host or port that none can be. */
  constructor(metrics: MetricsSource, host: string, port: number, options: MetricsServerOptions = {}) {
    super(metrics, host, port, { env: systemEnvironment(), ...options });
  }
}
