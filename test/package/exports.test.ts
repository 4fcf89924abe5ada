import test from 'ava';
import * as core from '../../src/core/index.js';
import * as main from '../../src/index.js';
import * as native from '../../src/native/index.js';
import * as parts from '../../src/parts/index.js';
import * as sim from '../../src/sim/index.js';

/** What is exported at run time: adding here is a feature, taking away breaks users. */
const EXPORTS = {
  meshcache: [
    'ArgumentError AuthError ClosedError ConfigError ConsistentHashRing Core DataLocation DirectoryClient DirectoryServer',
    'DiscoveryClient DiscoveryServer DiskError DiskStore EVICTION_POLICIES HostRegion InvariantError KeyEncoder',
    'MeshCacheClient MeshCacheConfig MeshCacheError MeshCacheStore Metrics MetricsServer NodeInfo NodeNamespace NodeRuntime ObjectStoreError',
    'PoolAllocator ProtocolError PublishedPool',
    'RdmaError RpcClient RpcServer StoreNamespace createTransport defaultCore hostPages keyEncoderFor loadCore',
  ],
  'meshcache/core': [
    'ArgumentError ClosedError ConsistentHashRing Core KeyBatch KeyEncoder MeshCacheError NO_NODE PLACEMENT_DISK_WRITES',
    'PLACEMENT_POLICIES PLACEMENT_ROUTINGS',
    'PlacementBounds PlacementSimulation PoolAllocator defaultCore loadCore',
  ],
  'meshcache/native': ['HAS_RDMA RDMA_STEPS TransferEngine rdmaSupport'],
  'meshcache/parts': ['DirectoryShard diskSizeFor'],
  'meshcache/sim': [
    'CALL_BOUNDS_MS CONVERSATIONS FAULT_KINDS MIXED NETWORK_SHAPE SCENARIO SimulatedFailure TRACE VIOLATION_KINDS World',
    'formatJournalLine randomScenario runScenario scenarioOf shrink withRandomFaults',
  ],
};

for (const [name, exported] of Object.entries({
  meshcache: main,
  'meshcache/core': core,
  'meshcache/native': native,
  'meshcache/parts': parts,
  'meshcache/sim': sim,
})) {
  test(`package: ${name} exports exactly what is documented`, (t) => {
    t.is(Object.keys(exported).sort().join(' '), EXPORTS[name as keyof typeof EXPORTS].join(' '));
  });
}

test('package: what the core and the main entry both export is the same', (t) => {
  const both = Object.entries(core).filter(([name]) => name in main);
  t.true(both.length >= 8);
  for (const [name, value] of both) t.is((main as Record<string, unknown>)[name], value, name);
});
