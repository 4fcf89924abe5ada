/**
 * Types that occur in signatures of other exports, and that no program needs to name. Any version may change them.
 *
 * @module meshcache: internal
 */
export type { AuditAction, AuditActor, AuditDoor, AuditOutcome } from '../base/audit/audit.js';
export type { FileCaller, FileStatus } from '../base/environment/files.js';
export type { HostMemory, LoopObservation } from '../base/environment/host.js';
export type { HttpTls } from '../base/environment/http-client.js';
export type { NameAnswer, NameQuery } from '../base/environment/name-service.js';
export type { ReceiveInto, TlsRefusal } from '../base/environment/network.js';
export type { MessageEnd } from '../base/environment/threads.js';
export type { TlsRules, TlsTexts } from '../base/environment/tls-identity.js';
export type { DoorTlsSettings, TlsDoor } from '../base/settings/door-tls-settings.js';
export type { FormerPages, LocationSource } from '../directory/client.js';
export type { LocationColumns, LocationNode, LocationStamp } from '../directory/messages/location-columns.js';
export type { PutWish } from '../directory/messages/wire.js';
export type { Seniority } from '../directory/owners/known-rings.js';
export type { OwnerRing } from '../directory/owners/owners.js';
export type { Displaced } from '../directory/shard/displaced.js';
export type { ShardClock } from '../directory/shard/location-choice.js';
export type { Liveness } from '../directory/shard/shard.js';
export type {
  ClusterSettings,
  Refusal,
  SettingDifference,
  SettingValue,
} from '../discovery/messages/cluster-settings.js';
export type { RefusedNode } from '../discovery/refused-nodes.js';
export type { MasterOwner } from '../discovery/server.js';
export type { DiskReadOptions, PutOutcome, RenewedPage } from '../disk/disk-store.js';
export type { PageEventSource, StreamedChange, StreamedEvent } from '../metrics/event-stream.js';
export type { MetricsFormat } from '../metrics/metrics.js';
export type {
  ByDistance,
  ClientsReport,
  DiscoveryReport,
  NamespaceReport,
  NodeView,
  ObjectStoreReport,
  PlacementReport,
  QuotaReport,
  QuotaUse,
  RedisReport,
} from '../metrics/node-report.js';
export type { DoorTls } from '../net/credentials/door-tls.js';
export type { Fill } from '../pool/page-fills.js';
export type { LocalRead, PageBytes, PageLease, PageOrigin, PublishedPage, ServedPage } from '../pool/published-pool.js';
export type { FrameFault } from '../rpc/frame.js';
export type { RpcFault } from '../rpc/server.js';
export type { RpcService } from '../rpc/service.js';
export type { LocalRange } from '../transport/contract/transport.js';
