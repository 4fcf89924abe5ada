import type { HybridClock } from '../../base/concurrency/hybrid-clock.js';
import type { Clock } from '../../base/environment/clock.js';
import type { Logger } from '../../base/environment/log.js';
import type { MeshCacheConfig } from '../../config.js';
import type { DirectoryClient } from '../../directory/client.js';
import type { LocationNode } from '../../directory/messages/location-columns.js';
import type { KnownClears } from '../../directory/shard/known-clears.js';
import type { Metrics } from '../../metrics/metrics.js';
import type { Distances } from '../../net/distance.js';
import type { PublishedPool } from '../../pool/published-pool.js';
import type { PageLimits } from '../../pool/tenants/page-limits.js';
import type { Transport } from '../../transport/contract/transport.js';
import type { PageFeed } from '../call/page-feed.js';
import type { DiskTier } from '../disk/disk-tier.js';
import type { PagePins } from '../pins/page-pins.js';
import type { OtherHolders } from './other-holders.js';
import type { Settling } from './settling.js';

/** The cluster as the store of one of its nodes sees it; implemented by `NodeRuntime`. */
export interface Cluster {
  /** Id of this node. */
  readonly nodeId: string;
  /** Number of this start of this node. */
  readonly incarnation: number;
  readonly directory: DirectoryClient;
  readonly transport: Transport;
  /** Clock that assigns versions to pages set here. */
  readonly versions: HybridClock;
  /** Asks other nodes to hold pages. */
  readonly holders: OtherHolders;
  readonly notices: {
    /** Tells a node that the directory listed pages which it could not serve. */
    unreadable(nodeId: string, keys: readonly string[]): void;
  };
  readonly clears: {
    /** Clears known to this node. */
    readonly known: KnownClears;
    /**
     * Makes void what this node set before a version, under keys with one of the prefixes, or under all keys. Resolves
     * when the copies on other nodes are gone.
     */
    clear(voidBelow: number, prefixes: readonly string[] | undefined): Promise<void>;
  };
  readonly drops: {
    /**
     * Makes every node drop these pages if they are older than the version; true for each page that all nodes have
     * dropped. `isOver`: whether the caller has given the call up; newer content then stays.
     */
    deleteEverywhere(keys: readonly string[], version: number, isOver: () => boolean): Promise<boolean[]>;
    /** Tells a node that has a void page to drop everything older than a version. */
    dropFrom(nodeId: string, key: string, voidBelow: number): void;
    /** Whether the owners have answered the announcement of this node's own pages. */
    readonly isAnnounced: boolean;
  };
  /** The live nodes by id, including this one. */
  members(): ReadonlyMap<string, unknown>;
  /** Resolves with true when the other nodes have told this node what they know; with false if that took too long. */
  waitForDirectory(): Promise<boolean>;
  /** The data endpoint of this incarnation of a node; undefined if it is not alive. */
  dataEndpointOf(node: Pick<LocationNode, 'nodeId' | 'incarnation'>): string | undefined;
  /**
   * Ids of nodes whose pages cannot be read now, as found by earlier reads; includes this node while its disk hangs.
   */
  unreachableNodes(): readonly string[];
  /** Distances of other nodes from this one; undefined if this node has no zone. */
  distances(): Distances;
}

/** The foundation that all parts of a store share. */
export interface StoreGround extends Pick<Cluster, 'directory' | 'transport' | 'versions'> {
  readonly cluster: Cluster;
  readonly pool: PublishedPool;
  /** Lengths of the longest pages that the pool accepts. */
  readonly limits: PageLimits;
  /** Disk tier that keeps pages after the pool has evicted them; undefined: none. */
  readonly disk: DiskTier | undefined;
  readonly pins: PagePins;
  /** Knows which pages from before this start are good. */
  readonly settling: Settling;
  /** Events of this node's pages. */
  readonly feed: PageFeed;
  readonly config: Pick<
    MeshCacheConfig,
    'verifyReads' | 'reuseQuarantineMs' | 'locationReuseMs' | 'existsMaxAgeMs' | 'keepDuplicates'
  >;
  /** Dropped keys that are remembered in each of two generations; default DROPPED_KEYS_MAX_COUNT. */
  readonly droppedMaxKeys?: number | undefined;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Metrics;
}
