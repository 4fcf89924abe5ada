/**
 * The entry `meshcache/parts`: the parts of which a node is made, for programs that build their own: simulators, tools,
 * other transports. They follow the design of the project, so that a minor version may change them; the changelog says
 * how.
 *
 * @module meshcache/parts
 */

export type { SharedClock } from '../base/concurrency/hybrid-clock.js';
export type { AuditEvent, AuditSink } from '../base/environment/audit.js';
export type { Clock } from '../base/environment/clock.js';
export type { ClusterSecrets, TlsIdentity } from '../base/environment/credentials.js';
export type { Environment } from '../base/environment/environment.js';
export type { Files, OpenFile, OpenOptions } from '../base/environment/files.js';
export type { Host, HostAddress } from '../base/environment/host.js';
export type {
  HttpClient,
  HttpConnections,
  HttpHeaders,
  HttpListener,
  HttpPost,
  HttpRequest,
  HttpServerAddress,
} from '../base/environment/http-client.js';
export type { Labels, MetricsSink } from '../base/environment/metrics-sink.js';
export type { LookUpSignal, NameService } from '../base/environment/name-service.js';
export type {
  Connection,
  ConnectionEvent,
  ConnectOptions,
  ConnectTarget,
  Endpoint,
  ListenOptions,
  ListenTarget,
  Network,
  Server,
  TcpOptions,
} from '../base/environment/network.js';
export type { RandomSource } from '../base/environment/random.js';
export type { Thread, ThreadProgram, Threads } from '../base/environment/threads.js';
export type { ClientFollowOptions, ClientPageChange, ClientPageEvent } from '../client/page-event-feed.js';
export type { ClientWay } from '../clients/requests/client-stats.js';
export type { ResolveControl } from '../directory/client.js';
export type { DirectoryServerOptions } from '../directory/server.js';
export { DirectoryShard, type DirectoryShardOptions, type DirectoryShardStats } from '../directory/shard/shard.js';
export { type DiskSizes, diskSizeFor, type PutOptions } from '../disk/disk-store.js';
export type { ClusterHistory, HistoryCount, HistoryGauge, HistoryReport } from '../metrics/history-report.js';
export type { ReadSource } from '../metrics/metrics.js';
export type { MetricsSource } from '../metrics/metrics-server.js';
export type {
  ClientReport,
  ClusterNode,
  DepartedNode,
  HealthReport,
  LatencyReport,
  MemberEvent,
  MetricsReport,
  NodeEvent,
  RecentReport,
} from '../metrics/node-report.js';
export type { Distance, Distances } from '../net/distance.js';
export type {
  DirectoryClientOptions,
  DiscoveryClientOptions,
  DiscoveryServerOptions,
  EnvironmentOption,
  RpcClientOptions,
  RpcServerOptions,
} from '../node/machine/machine-defaults.js';
export type { DiskStoreOptions } from '../node/machine/machine-disk.js';
export type {
  MetricsOptions,
  MetricsServerOptions,
  NodeRuntimeOptions,
  PublishedPoolOptions,
} from '../node/machine/machine-node.js';
export type { PagesOf } from '../pool/slots/page-origin.js';
export type { RpcCallOptions } from '../rpc/client.js';
export type { RpcContext, RpcHandler, RpcServerStats } from '../rpc/server.js';
export type { FollowOptions, PageChange, PageEvent } from '../store/events/page-events.js';
export type { PageStoreStats } from '../store/page-store.js';
export type { Address, TransportStats } from '../transport/contract/transport.js';
export type { TransportConfig } from '../transport/create-transport.js';
export type {
  DataLocationInit,
  DataProtocol,
  EntryKind,
  NamespaceFingerprint,
  NodeInfoInit,
  NodeRole,
  Tier,
} from '../types.js';
