/** The parts of a node that users make themselves, without an environment of their own: they take the real machine then. */
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

/** What a {@link NodeRuntime} takes beside its configuration. */
export interface NodeRuntimeOptions extends Omit<NodeRuntimeOptionsOf, 'env'> {
  /** Default: the real machine. */
  readonly env?: Environment;
}

/** One node without its pool: transport, control plane, directory shard and membership, wired together. */
export class NodeRuntime extends NodeRuntimeOf {
  /** An id that no other node has: `node-` and 64 random bits. */
  static override generateNodeId(random: RandomSource = systemRandom): string {
    return NodeRuntimeOf.generateNodeId(random);
  }

  constructor(config: MeshCacheConfig, options: NodeRuntimeOptions = {}) {
    super(config, { ...options, env: options.env ?? systemEnvironment() });
  }
}

/** What a {@link PublishedPool} takes beside its memory. */
export interface PublishedPoolOptions extends Omit<PublishedPoolOptionsOf, 'clock' | 'copyThreads'> {
  /** Default: the real time. */
  readonly clock?: Clock;
  /** @internal What copies large pages; the native addon's threads when it is left out. */
  readonly copyThreads?: CopyThreads;
}

/** The pages of one node in a range of host memory that peers may read. */
export class PublishedPool extends PublishedPoolOf {
  /** `capacity` bytes from `baseAddr` on must lie in one live `HostRegion`; `rkey` is what peers show to read them. */
  constructor(baseAddr: bigint, capacity: number, rkey: number, options: PublishedPoolOptions = {}) {
    const { clock = systemClock, copyThreads = nativeCopyThreads } = options;
    super(baseAddr, capacity, rkey, { ...options, clock, copyThreads });
  }
}

/** What {@link Metrics} takes beside the name of its node. */
export interface MetricsOptions extends Omit<MetricsOptionsOf, 'clock' | 'host'> {
  /** Default: the real time. */
  readonly clock?: Clock;
}

/**
 * One node's metrics: a registry of its own, every sample labelled with the node's id. It observes the event loop until it is
 * closed; that does not keep the process alive.
 */
export class Metrics extends MetricsOf {
  constructor(nodeId: string, options: MetricsOptions = {}) {
    super(nodeId, { ...options, clock: options.clock ?? systemClock, host: systemHost });
    this.observe();
  }
}

/** What a {@link MetricsServer} shows, and to whom. */
export interface MetricsServerOptions extends Omit<MetricsServerOptionsOf, 'env'> {
  /** Default: the real machine. */
  readonly env?: Environment;
}

/** HTTP server of one node for its operator: metrics, health, reports and the dashboard. It only reads. */
export class MetricsServer extends MetricsServerOf {
  /** `port` 0 takes any free one. Throws `ArgumentError` for a host or port that none can be. */
  constructor(metrics: MetricsSource, host: string, port: number, options: MetricsServerOptions = {}) {
    super(metrics, host, port, { ...options, env: options.env ?? systemEnvironment() });
  }
}
