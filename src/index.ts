/** The public Node API. */
export * from './base/errors.js';
export {
  EVICTION_POLICIES,
  type EvictionPolicy,
  MeshCacheConfig,
  type MeshCacheConfigFields,
  type MeshCacheConfigInit,
  type StorageConfig,
} from './config.js';
export { ConsistentHashRing, type Core, KeyEncoder, loadCore, PoolAllocator } from './core/index.js';
export { DirectoryClient } from './directory/client.js';
export { DirectoryServer } from './directory/server.js';
export { DirectoryShard } from './directory/shard.js';
export { DiscoveryClient } from './discovery/client.js';
export { DiscoveryServer } from './discovery/server.js';
export { type DiskInfo, DiskStore, type DiskStoreOptions, diskSizeFor } from './disk/disk-store.js';
export { HostRegion } from './memory/host-region.js';
export { Metrics, type ReadSource } from './metrics/metrics.js';
export { MeshCacheStore, type StoreStats } from './node/meshcache-store.js';
export { NodeRuntime } from './node/node-runtime.js';
export { PublishedPool, type PublishedPoolOptions } from './pool/published-pool.js';
export { RpcClient } from './rpc/client.js';
export { RpcServer } from './rpc/server.js';
export type { HostIndices, HostMemPool } from './store/host-pool.js';
export type { HybridHits, PoolTransfer } from './store/hybrid.js';
export { createTransport } from './transport/create-transport.js';
export type { LocalRange, Mr, ReadOp, Transport, TransportStats } from './transport/transport.js';
export { DataLocation, type DataProtocol, NodeInfo, type Tier } from './types.js';
