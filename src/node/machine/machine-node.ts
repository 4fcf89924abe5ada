/** Parts of a node that programs can create on their own. Without an environment they use the real machine. */
import type { Clock } from '../../base/environment/clock.js';
import type { Environment } from '../../base/environment/environment.js';
import type { RandomSource } from '../../base/environment/random.js';
import type { MeshCacheConfig } from '../../config.js';
import { Metrics as MetricsOf, type MetricsOptions as MetricsOptionsOf } from '../../metrics/metrics.js';
import {
  MetricsServer as MetricsServerOf,
  type MetricsServerOptions as MetricsServerOptionsOf,
  type MetricsSource,
} from '../../metrics/metrics-server.js';
import { type CopyThreads, nativeCopyThreads } from '../../pool/copy-threads.js';
import {
  PublishedPool as PublishedPoolOf,
  type PublishedPoolOptions as PublishedPoolOptionsOf,
} from '../../pool/published-pool.js';
import { systemClock } from '../../system/system-clock.js';
import { systemEnvironment } from '../../system/system-environment.js';
import { systemHost } from '../../system/system-host.js';
import { systemRandom } from '../../system/system-random.js';
import {
  NodeRuntime as NodeRuntimeOf,
  type NodeRuntimeOptions as NodeRuntimeOptionsOf,
} from '../runtime/node-runtime.js';

/** The options of a {@link NodeRuntime}, apart from its configuration. */
export interface NodeRuntimeOptions extends Omit<NodeRuntimeOptionsOf, 'env'> {
  /** Default: the real machine. */
  readonly env?: Environment;
}

/** One node without its pool: its transport, control plane, directory shard and membership. */
export class NodeRuntime extends NodeRuntimeOf {
  /** Generates a unique node id: `node-` and 64 random bits. */
  static override generateNodeId(random: RandomSource = systemRandom): string {
    return NodeRuntimeOf.generateNodeId(random);
  }

  constructor(config: MeshCacheConfig, options: NodeRuntimeOptions = {}) {
    super(config, { ...options, env: options.env ?? systemEnvironment() });
  }
}

/** The options of a {@link PublishedPool}, apart from its memory. */
export interface PublishedPoolOptions extends Omit<PublishedPoolOptionsOf, 'clock' | 'copyThreads'> {
  /** Default: the real clock. */
  readonly clock?: Clock;
  /** @internal Threads that copy large pages. Default: those of the native addon. */
  readonly copyThreads?: CopyThreads;
}

/** The pages of one node, in a range of host memory that peers may read. */
export class PublishedPool extends PublishedPoolOf {
  /** The `capacity` bytes from `baseAddr` must lie in one live `HostRegion`; peers need `rkey` to read them. */
  constructor(baseAddr: bigint, capacity: number, rkey: number, options: PublishedPoolOptions = {}) {
    const { clock = systemClock, copyThreads = nativeCopyThreads } = options;
    super(baseAddr, capacity, rkey, { ...options, clock, copyThreads });
  }
}

/** The options of `Metrics`, apart from the id of its node. */
export interface MetricsOptions extends Omit<MetricsOptionsOf, 'clock' | 'host'> {
  /** Default: the real clock. */
  readonly clock?: Clock;
}

/**
 * One node's metrics: a registry of its own, whose samples are labelled with the node's id. Until it is closed, it
 * observes the event loop, without keeping the process alive.
 */
export class Metrics extends MetricsOf {
  constructor(nodeId: string, options: MetricsOptions = {}) {
    super(nodeId, { ...options, clock: options.clock ?? systemClock, host: systemHost });
    this.observe();
  }
}

/** The options of a {@link MetricsServer}: what it shows, and to whom. */
export interface MetricsServerOptions extends Omit<MetricsServerOptionsOf, 'env'> {
  /** Default: the real machine. */
  readonly env?: Environment;
}

/** A read-only HTTP server for the operator of one node: metrics, health, reports and the dashboard. */
export class MetricsServer extends MetricsServerOf {
  /** `port` 0 takes any free one. Throws `ArgumentError` for an invalid host or port. */
  constructor(metrics: MetricsSource, host: string, port: number, options: MetricsServerOptions = {}) {
    super(metrics, host, port, { ...options, env: options.env ?? systemEnvironment() });
  }
}
