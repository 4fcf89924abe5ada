import type { Environment } from '../../base/environment/environment.js';
import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import type { PublishedPool } from '../../pool/published-pool.js';
import type { KeyPolicies } from '../../store/holding/key-policies.js';
import type { PlacementStats } from '../../store/holding/placement-lane.js';
import { Placements } from '../../store/holding/placements.js';
import type { StorageNode } from '../../store/holding/storage-nodes.js';
import type { PageStatements } from '../../store/page-statements.js';
import type { OtherHolders } from '../../store/remote/other-holders.js';

/** A store's part in placing pages on storage nodes. */
export interface StorePlacing {
  /** Places the pages of this node; null: its policies keep all of them in its pool. */
  readonly placements: Placements | null;
  /** Ends placing. */
  close(): void;
  /** Throws `InvariantError` unless what waits and what is placed is counted. */
  verify(): void;
}

/** The node to which the store belongs. */
export interface PlacingNode {
  readonly holders: Pick<OtherHolders, 'ask'>;
  /** The live storage nodes, without this one. */
  storageNodes(): readonly StorageNode[];
  /** Calls `listener` after each change of members. */
  onMembersChanged(listener: () => void): void;
}

/** Makes a store's part in placing pages. */
export function placingOf(parts: {
  readonly node: PlacingNode;
  readonly pool: PublishedPool;
  readonly policies: KeyPolicies;
  readonly statements: PageStatements;
  readonly hasDisk: boolean;
  readonly env: Environment;
}): StorePlacing {
  const { node, pool, policies, statements, hasDisk, env } = parts;
  const placements = policies.placesAny
    ? new Placements({
        pool,
        policyOf: policies.of,
        hasDisk,
        storageNodes: () => node.storageNodes(),
        statements,
        holders: node.holders,
        env,
      })
    : null;
  reportPlacements(placements, env.metrics);
  if (placements !== null) node.onMembersChanged(() => placements.membersChanged());
  return {
    placements,
    close() {
      placements?.close();
    },
    verify() {
      placements?.verify();
    },
  };
}

/** Registers the gauges of placing, which are 0 on a node that places nothing. */
function reportPlacements(placements: Placements | null, metrics: MetricsSink): void {
  const gauges = {
    meshcache_placements_waiting_pages: (stats: PlacementStats) => stats.unplacedPages - stats.inFlightPages,
    meshcache_placements_in_flight_pages: (stats: PlacementStats) => stats.inFlightPages,
    meshcache_pool_placed_pages: (stats: PlacementStats) => stats.poolPlacedPages,
    meshcache_pool_placed_bytes: (stats: PlacementStats) => stats.poolPlacedBytes,
  };
  for (const [name, pick] of Object.entries(gauges)) {
    metrics.setGaugeProvider(name, () => (placements === null ? 0 : pick(placements.stats())));
  }
}
