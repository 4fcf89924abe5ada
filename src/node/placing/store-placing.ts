import type { Environment } from '../../base/environment/environment.js';
import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import type { PublishedPool } from '../../pool/published-pool.js';
import type { KeyPolicies } from '../../store/placement/key-policies.js';
import type { PlacementStats } from '../../store/placement/placement-lane.js';
import { Placements } from '../../store/placement/placements.js';
import type { StorageNode } from '../../store/placement/storage-nodes.js';
import { TakenPages, type TakenPagesParts } from '../../store/placement/taken-pages.js';
import type { NodeRole } from '../../types.js';
import type { PlacementCalls } from './placement-calls.js';

/** A store's part in placing pages on storage nodes, and in being one. */
export interface StorePlacing {
  /** Places the pages of this node; null: its policies keep all of them in its pool. */
  readonly placements: Placements | null;
  /** The pages that others have placed here; null: this is no storage node. */
  readonly taken: TakenPages | null;
  /** Ends placing and taking. Resolves when neither uses the pool any more. */
  close(): Promise<void>;
  /** Throws `InvariantError` unless what waits, what is placed and what is taken is counted. */
  verify(): void;
}

/** The node to which the store belongs. */
export interface PlacingNode {
  readonly nodeId: string;
  readonly role: NodeRole;
  readonly calls: Pick<PlacementCalls, 'take'>;
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
  readonly taking: TakenPagesParts;
  readonly env: Environment;
}): StorePlacing {
  const { node, pool, policies, taking, env } = parts;
  const { nodeId, calls } = node;
  const placements = policies.placesAny
    ? new Placements({
        nodeId,
        pool,
        policyOf: policies.of,
        hasDisk: taking.disk !== undefined,
        storageNodes: () => node.storageNodes(),
        ask: (id, request, timeoutMs) => calls.take(id, request, timeoutMs),
        env,
      })
    : null;
  const taken = node.role === 'storage' ? new TakenPages(taking) : null;
  reportPlacements(placements, env.metrics);
  if (placements !== null) node.onMembersChanged(() => placements.membersChanged());
  return {
    placements,
    taken,
    async close() {
      placements?.close();
      await taken?.close();
    },
    verify() {
      placements?.verify();
      taken?.verify();
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
