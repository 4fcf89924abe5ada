/**
 * The entry `meshcache`: what programs use every day. Within a major version, names and meanings stay; new ones may be
 * added.
 *
 * @module meshcache
 */
export type { Logger, LogLevel } from './base/environment/log.js';
export * from './base/errors.js';
export { MeshCacheClient, type MeshCacheClientOptions, type MeshCacheClientStats } from './client/meshcache-client.js';
export type { ClientInfo } from './clients/client-server.js';
export type { PageHolders } from './clients/requests/client-namespace.js';
export {
  EVICTION_POLICIES,
  type EvictionPolicy,
  MeshCacheConfig,
  type MeshCacheConfigFields,
  type MeshCacheConfigInit,
  type NamespaceQuota,
  type NamespaceQuotas,
  type NamespaceWritePolicies,
  type StorageConfig,
  type WritePolicy,
} from './config.js';
export {
  ConsistentHashRing,
  Core,
  type CoreOptions,
  defaultCore,
  KeyEncoder,
  type KeyEncoderOptions,
  type KeyNamespace,
  type Keys,
  loadCore,
  PoolAllocator,
  type PoolAllocatorOptions,
} from './core/index.js';
export { DirectoryServer } from './directory/server.js';
export type { DiskInfo } from './disk/disk-store.js';
export { HostRegion, type HostRegionOptions } from './memory/host-region.js';
export type { ClusterReport, NodeReport } from './metrics/node-report.js';
export { keyEncoderFor } from './node/key-namespace.js';
export {
  createTransport,
  DirectoryClient,
  DiscoveryClient,
  DiscoveryServer,
  RpcClient,
  RpcServer,
} from './node/machine/machine-defaults.js';
export { DiskStore } from './node/machine/machine-disk.js';
export { Metrics, MetricsServer, NodeRuntime, PublishedPool } from './node/machine/machine-node.js';
export { MeshCacheStore } from './node/meshcache-store.js';
export type { StoreStats } from './node/reporting/store-stats.js';
export type { ByteSize, MeshCacheStoreOptions } from './node/store-options.js';
export type { MissReason, ReadOptions, RefusalReason, WaitOptions, WriteOptions } from './store/call/call-options.js';
export type { PlacementStats } from './store/holding/placement-lane.js';
export type {
  GetResult,
  PinOptions,
  PrefetchOptions,
  ReadResult,
  SetResult,
  UnpinOptions,
} from './store/namespace/call-arguments.js';
export { type HostPagesOptions, hostPages } from './store/namespace/host-pages.js';
export type { HostIndices, HostMemPool, PageMemory } from './store/namespace/host-pool.js';
export type { HybridHits, PoolTransfer } from './store/namespace/hybrid.js';
export { type KeysOptions, NodeNamespace } from './store/namespace/node-namespace.js';
export type { TellOptions } from './store/namespace/session-options.js';
export { StoreNamespace } from './store/namespace/store-namespace.js';
export type { Mr, ReadOp, Transport } from './transport/contract/transport.js';
export { DataLocation, NodeInfo } from './types.js';
