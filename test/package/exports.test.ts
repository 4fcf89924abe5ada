import test from 'ava';
import * as core from '../../src/core/index.js';
import * as main from '../../src/index.js';
import * as native from '../../src/native/index.js';
import * as sim from '../../src/sim/index.js';

/** What is exported at run time: adding here is a feature, taking away breaks users. */
const EXPORTS = {
  meshcache: [
    'ArgumentError AuthError ClosedError ConfigError ConsistentHashRing Core DataLocation DirectoryClient DirectoryServer',
    'DirectoryShard DiscoveryClient DiscoveryServer DiskError DiskStore EVICTION_POLICIES HostRegion InvariantError KeyBatch KeyEncoder',
    'MeshCacheClient MeshCacheConfig MeshCacheError MeshCacheStore Metrics MetricsServer NO_NODE NodeInfo NodeNamespace NodeRuntime ObjectStoreError',
    'PLACEMENT_POLICIES PLACEMENT_ROUTINGS PlacementBounds PlacementSimulation PoolAllocator ProtocolError PublishedPool',
    'RdmaError RpcClient RpcServer StoreNamespace createTransport defaultCore diskSizeFor hostPages keyEncoderFor loadCore',
  ],
  'meshcache/core': [
    'ArgumentError ClosedError ConsistentHashRing Core KeyBatch KeyEncoder MeshCacheError NO_NODE PLACEMENT_POLICIES PLACEMENT_ROUTINGS',
    'PlacementBounds PlacementSimulation PoolAllocator defaultCore loadCore',
  ],
  'meshcache/native': ['HAS_RDMA RDMA_STEPS TransferEngine rdmaSupport'],
  'meshcache/sim': [
    'CALL_BOUNDS_MS CONVERSATIONS FAULT_KINDS MIXED NETWORK_SHAPE SCENARIO SimulatedFailure TRACE VIOLATION_KINDS World',
    'formatJournalLine randomScenario runScenario scenarioOf shrink withRandomFaults',
  ],
};

for (const [name, exported] of Object.entries({
  meshcache: main,
  'meshcache/core': core,
  'meshcache/native': native,
  'meshcache/sim': sim,
})) {
  test(`package: ${name} exports exactly what is documented`, (t) => {
    t.is(Object.keys(exported).sort().join(' '), EXPORTS[name as keyof typeof EXPORTS].join(' '));
  });
}

test('package: all that the core exports is exported by the main entry too, and is the same', (t) => {
  for (const [name, value] of Object.entries(core)) t.is((main as Record<string, unknown>)[name], value, name);
});
