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

/** The cluster, as the store of one of its nodes sees it: `NodeRuntime` is one. */
export interface Cluster {
  /** Id of the own node. */
  readonly nodeId: string;
  /** This start of the own node. */
  readonly incarnation: number;
  readonly directory: DirectoryClient;
  readonly transport: Transport;
  /** The clock that gives versions to pages that are set here. */
  readonly versions: HybridClock;
  /** Has other nodes hold pages. */
  readonly holders: OtherHolders;
  readonly notices: {
    /** Tells a node that the directory listed pages which it could not serve. */
    unreadable(nodeId: string, keys: readonly string[]): void;
  };
  readonly clears: {
    /** The clears that this node knows of. */
    readonly known: KnownClears;
    /**
     * Makes void what this node has set before a version, under keys that begin with one of the prefixes, or under all.
     * Resolves when the copies on other nodes have gone.
     */
    clear(voidBelow: number, prefixes: readonly string[] | undefined): Promise<void>;
  };
  readonly drops: {
    /**
     * Makes every node drop these pages if they are older than the version; true for each page that all nodes have
     * dropped. `isOver`: whether the caller has given the call up, so that what is newer stays.
     */
    deleteEverywhere(keys: readonly string[], version: number, isOver: () => boolean): Promise<boolean[]>;
    /** Tells a node that has a void page to drop what is older than a version. */
    dropFrom(nodeId: string, key: string, voidBelow: number): void;
    /** Whether the owners have answered the announcement of this node's own pages. */
    readonly isAnnounced: boolean;
  };
  /** The live nodes by id, the own one included. */
  members(): ReadonlyMap<string, unknown>;
  /** Resolves with true when the others have told this node what they know; with false when that took too long. */
  waitForDirectory(): Promise<boolean>;
  /** The data endpoint of that start of a node; undefined when it is not alive. */
  dataEndpointOf(node: Pick<LocationNode, 'nodeId' | 'incarnation'>): string | undefined;
  /** Ids of the nodes whose pages cannot be read now, as reads have found out, and of this one while its disk hangs. */
  unreachableNodes(): readonly string[];
  /** How far other nodes are from this one; undefined: it has no zone. */
  distances(): Distances;
}

/** What all parts of a store stand on. */
export interface StoreGround extends Pick<Cluster, 'directory' | 'transport' | 'versions'> {
  readonly cluster: Cluster;
  readonly pool: PublishedPool;
  /** Lengths of the longest pages that the pool takes. */
  readonly limits: PageLimits;
  /** The disk from which pages that the pool has evicted are read; undefined: none. */
  readonly disk: DiskTier | undefined;
  readonly pins: PagePins;
  /** Which pages from before this start are good. */
  readonly settling: Settling;
  /** What happens to the pages of this node. */
  readonly feed: PageFeed;
  readonly config: Pick<MeshCacheConfig, 'verifyReads' | 'reuseQuarantineMs' | 'locationReuseMs' | 'keepDuplicates'>;
  /** Dropped keys that are remembered in each of two generations; default DROPPED_KEYS_MAX_COUNT. */
  readonly droppedMaxKeys?: number | undefined;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Metrics;
}
