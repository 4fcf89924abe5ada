import { MeshCacheStore } from '../../../../src/node/meshcache-store.js';
import type { SimProcess } from '../../../../src/sim/world/sim-process.js';

/**
 * Creates a store in a simulated process, with its discovery master on `host-1`; `extra` overrides its configuration.
 */
export function simulatedStore(process: SimProcess, extra: Record<string, unknown> = {}): Promise<MeshCacheStore> {
  return MeshCacheStore.create(
    {
      tpRank: 0,
      tpSize: 1,
      ppRank: 0,
      ppSize: 1,
      isMlaModel: false,
      modelName: 'test',
      extraConfig: {
        discovery_addr: 'host-1:31990',
        protocol: 'tcp',
        global_segment_size: '4mb',
        node_id: process.host.name,
        metrics_enabled: false,
        allow_unauthenticated: true,
        ...extra,
      },
    },
    process.environment,
  );
}
