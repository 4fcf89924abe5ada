import type { Environment } from '../base/environment/environment.js';
import type { MetricsSink } from '../base/environment/metrics-sink.js';
import type { CopyThreads } from '../pool/copy-threads.js';
import type { PageStatements } from '../store/ground/page-statements.js';
import type { StoreGround } from '../store/ground/store-ground.js';
import type { KeyPolicies } from '../store/placement/key-policies.js';
import type { PlacementStats } from '../store/placement/placement-lane.js';
import { Placements } from '../store/placement/placements.js';
import { TakenPages } from '../store/placement/taken-pages.js';
import type { NodeRuntime } from './runtime/node-runtime.js';

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

/** Makes a store's part in placing pages. */
export function placingOf(parts: {
  readonly ground: StoreGround;
  readonly runtime: NodeRuntime;
  readonly statements: PageStatements;
  readonly copyThreads: CopyThreads;
  readonly policies: KeyPolicies;
  readonly env: Environment;
}): StorePlacing {
  const { ground, runtime, statements, copyThreads, policies, env } = parts;
  const { placementCalls: calls } = runtime;
  const placements = policies.placesAny
    ? new Placements({
        nodeId: runtime.nodeId,
        pool: ground.pool,
        policyOf: policies.of,
        hasDisk: ground.disk !== undefined,
        storageNodes: () => runtime.storageNodes(),
        ask: (id, request, timeoutMs) => calls.take(id, request, timeoutMs),
        env,
      })
    : null;
  const taken = runtime.config.role === 'storage' ? new TakenPages(ground, statements, copyThreads) : null;
  reportPlacements(placements, env.metrics);
  if (placements !== null) runtime.changed.listen(() => placements.membersChanged());
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
