/** The public Node API. */

export type { Clock } from './base/environment/clock.js';
export type { ClusterSecrets } from './base/environment/cluster-secrets.js';
export type { Environment } from './base/environment/environment.js';
export type { FileStatus, Files, OpenFile, OpenOptions } from './base/environment/files.js';
export type { Host, HostAddress, HostMemory, LoopObservation } from './base/environment/host.js';
export type { Logger, LogLevel } from './base/environment/log.js';
export type { Labels, MetricsSink } from './base/environment/metrics-sink.js';
export type {
  Connection,
  ConnectionEvent,
  ConnectOptions,
  ConnectTarget,
  Endpoint,
  ListenOptions,
  ListenTarget,
  Network,
  ReceiveInto,
  Server,
  TcpOptions,
} from './base/environment/network.js';
export type { RandomSource } from './base/environment/random.js';
export type { MessageEnd, Thread, ThreadProgram, Threads } from './base/environment/threads.js';
export type { TlsIdentity, TlsTexts } from './base/environment/tls-identity.js';
export * from './base/errors.js';
export {
  MeshCacheClient,
  type MeshCacheClientOptions,
  type MeshCacheClientStats,
} from './client/meshcache-client.js';
export type { ClientInfo } from './clients/client-server.js';
export type { PageHolders } from './clients/requests/client-namespace.js';
export type { ClientWay } from './clients/requests/client-stats.js';
export {
  EVICTION_POLICIES,
  type EvictionPolicy,
  MeshCacheConfig,
  type MeshCacheConfigFields,
  type MeshCacheConfigInit,
  type StorageConfig,
} from './config.js';
export {
  type BatchLookup,
  type BatchPlacement,
  ConsistentHashRing,
  Core,
  type CoreOptions,
  type CoreSource,
  defaultCore,
  type EncodedKeys,
  type FetchResponse,
  KeyBatch,
  KeyEncoder,
  type KeyNamespace,
  type Keys,
  loadCore,
  NO_NODE,
  type PageLocation,
  PLACEMENT_POLICIES,
  PLACEMENT_ROUTINGS,
  type Placement,
  PlacementBounds,
  type PlacementCounts,
  type PlacementInterval,
  type PlacementNode,
  type PlacementOptions,
  type PlacementOutcome,
  type PlacementRequest,
  type PlacementRouting,
  type PlacementSettings,
  PlacementSimulation,
  PoolAllocator,
  type PoolAllocatorOptions,
  type PoolAllocatorStats,
  type RequestHint,
  type RequestOptions,
  type WasmInstance,
  type WasmModule,
} from './core/index.js';
export type { LocationSource, ResolveControl } from './directory/client.js';
export type { LocationColumns, LocationNode, LocationStamp } from './directory/messages/location-columns.js';
export type { Seniority } from './directory/owners/known-rings.js';
export type { OwnerRing } from './directory/owners/owners.js';
export { DirectoryServer, type DirectoryServerOptions } from './directory/server.js';
export {
  DirectoryShard,
  type DirectoryShardOptions,
  type DirectoryShardStats,
  type Displaced,
  type Liveness,
} from './directory/shard/shard.js';
export type {
  ClusterSettings,
  Refusal,
  SettingDifference,
  SettingValue,
} from './discovery/messages/cluster-settings.js';
export type { RefusedNode } from './discovery/refused-nodes.js';
export type { MasterOwner } from './discovery/server.js';
export {
  type DiskInfo,
  type DiskSizes,
  diskSizeFor,
  type PutOptions,
  type PutOutcome,
  type RenewedPage,
} from './disk/disk-store.js';
export { HostRegion, type HostRegionOptions } from './memory/host-region.js';
export type { MetricsFormat, ReadSource } from './metrics/metrics.js';
export type { MetricsSource } from './metrics/metrics-server.js';
export type {
  ClientReport,
  ClientsReport,
  ClusterNode,
  ClusterReport,
  HealthReport,
  LatencyReport,
  MetricsReport,
  NodeEvent,
  NodeReport,
  NodeView,
} from './metrics/node-report.js';
export { keyEncoderFor } from './node/key-namespace.js';
export {
  createTransport,
  DirectoryClient,
  type DirectoryClientOptions,
  DiscoveryClient,
  type DiscoveryClientOptions,
  DiscoveryServer,
  type DiscoveryServerOptions,
  type EnvironmentOption,
  RpcClient,
  type RpcClientOptions,
  RpcServer,
  type RpcServerOptions,
} from './node/machine/machine-defaults.js';
export { DiskStore, type DiskStoreOptions } from './node/machine/machine-disk.js';
export {
  Metrics,
  type MetricsOptions,
  MetricsServer,
  type MetricsServerOptions,
  NodeRuntime,
  type NodeRuntimeOptions,
  PublishedPool,
  type PublishedPoolOptions,
} from './node/machine/machine-node.js';
export { MeshCacheStore } from './node/meshcache-store.js';
export type { StoreStats } from './node/reporting/store-stats.js';
export type { Fill } from './pool/page-fills.js';
export type {
  LocalRead,
  PageBytes,
  PageLease,
  PageOrigin,
  PublishedPage,
} from './pool/published-pool.js';
export type { RpcCallOptions } from './rpc/client.js';
export type { FrameFault } from './rpc/frame.js';
export type { RpcContext, RpcFault, RpcHandler, RpcServerStats } from './rpc/server.js';
export type { RpcService } from './rpc/service.js';
export type { HostIndices, HostMemPool } from './store/namespace/host-pool.js';
export type { HybridHits, PoolTransfer } from './store/namespace/hybrid.js';
export { StoreNamespace } from './store/namespace/store-namespace.js';
export type { PageStoreStats } from './store/page-store.js';
export type { Address, LocalRange, Mr, ReadOp, Transport, TransportStats } from './transport/contract/transport.js';
export type { TransportConfig } from './transport/create-transport.js';
export {
  DataLocation,
  type DataLocationInit,
  type DataProtocol,
  type EntryKind,
  NodeInfo,
  type NodeInfoInit,
  type Tier,
} from './types.js';
