import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import type { PageLease } from '../../pool/published-pool.js';
import type { StorageNode } from './storage-nodes.js';

/** The pages that wait for one storage node, and its requests in flight. */
export interface PlacementLane {
  readonly node: StorageNode;
  /** Keys of waiting pages, in the order in which they were set, with the nodes that could not take them. */
  readonly waiting: Map<string, readonly string[]>;
  /** Requests in flight. */
  inFlight: number;
  /** Failed or refused requests since the last success. */
  failures: number;
  /** Ends the rest between two requests while pages are being set; undefined: the lane is not resting. */
  cancelRest: (() => void) | undefined;
  /** Ends the pause after a failure; undefined: the node accepts pages, as far as is known. */
  cancelRetry: (() => void) | undefined;
}

/** A page that a storage node has been asked to take, leased meanwhile, and the nodes that could not take it. */
export interface SentPage {
  readonly lease: PageLease;
  readonly tried: readonly string[];
}

/** A new lane for a node that has not been asked yet. */
export function laneOf(node: StorageNode): PlacementLane {
  return { node, waiting: new Map(), inFlight: 0, failures: 0, cancelRest: undefined, cancelRetry: undefined };
}

/** Statistics of the pages that a node places on storage nodes. */
export interface PlacementStats {
  /** Pages, and their bytes, that storage nodes have taken since the store was created. */
  readonly placedPages: number;
  readonly placedBytes: number;
  /** Failed attempts to place a page. */
  readonly failedPages: number;
  /** Pages that wait to be placed, or are in flight. */
  readonly unplacedPages: number;
  /** Pages that storage nodes were asked to take and have not answered for. */
  readonly inFlightPages: number;
  /** Pages of this node's pool that a storage node has, too, and their bytes. */
  readonly poolPlacedPages: number;
  readonly poolPlacedBytes: number;
}

/** Ends all pauses of a lane that is given up. */
export function endLane(lane: PlacementLane): void {
  lane.cancelRest?.();
  lane.cancelRetry?.();
}

/** Why a page was not placed. */
export type PlacementFailure =
  | 'no_node'
  | 'unreachable'
  | 'refused'
  | 'unread'
  | 'outdated'
  | 'too_large'
  | 'queue_full'
  | 'evicted';

/** A page of this node's pool that a storage node has, too. */
export interface PlacedPage {
  readonly node: StorageNode;
  readonly version: number;
  readonly length: number;
  readonly expires: number;
}

/** Registers the gauges of placing; without `stats`, on a node that places nothing, they stay 0. */
export function reportPlacements(stats: (() => PlacementStats) | undefined, metrics: MetricsSink): void {
  const gauges = {
    meshcache_placements_waiting_pages: ({ unplacedPages, inFlightPages }: PlacementStats) =>
      unplacedPages - inFlightPages,
    meshcache_placements_in_flight_pages: ({ inFlightPages }: PlacementStats) => inFlightPages,
    meshcache_pool_placed_pages: ({ poolPlacedPages }: PlacementStats) => poolPlacedPages,
    meshcache_pool_placed_bytes: ({ poolPlacedBytes }: PlacementStats) => poolPlacedBytes,
  };
  for (const [name, pick] of Object.entries(gauges)) {
    metrics.setGaugeProvider(name, () => (stats === undefined ? 0 : pick(stats())));
  }
}
