import {
  NODE_REPORT_CLIENTS_MAX_COUNT,
  NODE_REPORT_NAMESPACE_TEXT_MAX_CHARACTERS,
  NODE_REPORT_NAMESPACES_MAX_COUNT,
} from '../../base/limits.js';
import { compareNames } from '../../base/names.js';
import type { AttachedNamespace, ClientInfo, ClientServer } from '../../clients/client-server.js';
import type { MeshCacheConfig } from '../../config.js';
import type { PoolTenantStats } from '../../core/index.js';
import type { DiskInfo, DiskStore } from '../../disk/disk-store.js';
import type { PageEventSource } from '../../metrics/event-stream.js';
import type {
  ClientReport,
  ClientsReport,
  NamedPinReport,
  NamespaceReport,
  NodeReport,
  ObjectStoreReport,
  PlacementReport,
  PrefetchedReport,
  QuotaReport,
  QuotaUse,
  RedisReport,
} from '../../metrics/node-report.js';
import type { PageAdvice } from '../../metrics/page-advice.js';
import type { PublishedPool } from '../../pool/published-pool.js';
import type { NamespaceTenants } from '../../pool/tenants/namespace-tenants.js';
import type { RespServer } from '../../resp/resp-server.js';
import type { NamedPin, Pinning } from '../../store/holding/pinning.js';
import type { PlacementStats } from '../../store/holding/placement-lane.js';
import type { Placements } from '../../store/holding/placements.js';
import type { Prefetching } from '../../store/holding/prefetching.js';
import type { ObjectTierStats } from '../../store/objects/object-tier.js';
import type { PageStore } from '../../store/page-store.js';
import type { StoreReporter } from './node-reporting.js';
import { shownSettings } from './shown-settings.js';

/** Statistics of each tenant, by number; empty if the tier is closed. */
interface TenantTier {
  tenantStats(): readonly PoolTenantStats[];
}

/** Results of the node's search for pages in its pool at its start. */
interface KeptFigures {
  readonly pages: number;
  readonly bytes: number;
  readonly refused: number;
}

export interface StoreReporterParts {
  readonly pool: PublishedPool;
  readonly disk: DiskStore | null;
  /** Pages from before this start in the pool; undefined if the pool does not outlive the process. */
  readonly kept?: { readonly figures: KeptFigures } | undefined;
  readonly pages: Pick<PageStore, 'objectStats'>;
  readonly tenants: Pick<NamespaceTenants, 'names' | 'prefixesCount' | 'refusedCount'>;
  readonly leaving: { readonly drain: { readonly isDraining: boolean } };
  readonly placements: Pick<Placements, 'stats'> | null;
  readonly config: MeshCacheConfig;
  /** The socket for processes of this host; undefined without one. */
  readonly clients: Pick<ClientServer, 'path' | 'clients' | 'namespaces'> | undefined;
  /** The door for Redis clients; undefined without one. */
  readonly resp: Pick<RespServer, 'endpoint' | 'path' | 'connectionsCount' | 'commandsCount'> | undefined;
  readonly events: PageEventSource;
  readonly advice: PageAdvice;
  readonly pinning: Pick<Pinning, 'named'>;
  readonly prefetching: Pick<Prefetching, 'stats' | 'unreadBytes'>;
}

/** Creates the reporter for the store's part of a node's report. */
export function storeReporter(parts: StoreReporterParts): StoreReporter {
  const { pool, disk, kept, pages, tenants, leaving, placements, config, clients, resp, events, advice } = parts;
  const { pinning, prefetching } = parts;
  // Computed once, because settings do not change while the node runs.
  const settings = shownSettings(config);
  return {
    report() {
      const quotas = quotaReports(tenants, pool, disk);
      const objects = pages.objectStats();
      const { entries, usedBytes, capacityBytes, quarantinedBytes, evictions } = pool.stats();
      return {
        pool: {
          entries,
          used_bytes: usedBytes,
          capacity_bytes: capacityBytes,
          quarantined_bytes: quarantinedBytes,
          evictions,
          ...(kept === undefined ? {} : keptStatus(kept.figures)),
        },
        disk: disk === null ? null : diskStatus(disk.info()),
        ...(objects === undefined ? {} : { object_store: objectStoreReport(objects) }),
        role: config.role,
        settings,
        write_policy: config.writePolicy,
        ...(placements === null ? {} : { placement: placementReport(placements.stats()) }),
        ...(clients === undefined
          ? {}
          : { clients: clientsReport(clients.path, clients.clients(), clients.namespaces()) }),
        ...(resp === undefined ? {} : { redis: redisReport(resp) }),
        ...(quotas === undefined ? {} : { quotas }),
        ...prefetched(prefetching),
        ...namedPins(pinning.named()),
      };
    },
    ...{ events, advice },
    troubles() {
      const failure = disk?.info().failure ?? null;
      return [
        ...(leaving.drain.isDraining ? ['the node is being drained'] : []),
        ...(failure === null ? [] : [`the disk tier has failed: ${failure}`]),
      ];
    },
  };
}

function prefetched(prefetching: StoreReporterParts['prefetching']): { readonly prefetched?: PrefetchedReport } {
  const { brought, used, wasted } = prefetching.stats();
  return brought === 0 ? {} : { prefetched: { brought, used, wasted, unread_bytes: prefetching.unreadBytes } };
}

/** The names of pins begin with their namespace and a slash. */
function namedPins(pins: readonly NamedPin[]): { readonly named_pins?: NamedPinReport[] } {
  if (pins.length === 0) return {};
  const named_pins = pins.map(({ name, pages, bytes }) => {
    const slash = name.indexOf('/');
    return { namespace: name.slice(0, slash), name: name.slice(slash + 1), pages, bytes };
  });
  return { named_pins };
}

function placementReport(stats: PlacementStats): PlacementReport {
  return {
    placed_pages: stats.placedPages,
    placed_bytes: stats.placedBytes,
    failed_pages: stats.failedPages,
    unplaced_pages: stats.unplacedPages,
    pool_placed_pages: stats.poolPlacedPages,
    pool_placed_bytes: stats.poolPlacedBytes,
  };
}

/** The number of attached clients, and the busiest of them. */
export function clientsReport(
  socket: string,
  attached: readonly ClientInfo[],
  namespaces: readonly AttachedNamespace[],
): ClientsReport {
  const moved = (client: ClientInfo): number => client.read_bytes + client.written_bytes;
  const byBytes = [...attached].sort((a, b) => moved(b) - moved(a) || b.requests - a.requests);
  const busiest = byBytes.slice(0, NODE_REPORT_CLIENTS_MAX_COUNT).map(clientReport);
  return { socket, attached: attached.length, busiest, namespaces: namespaceReports(namespaces) };
}

function clientReport(client: ClientInfo): ClientReport {
  const { name, pid, mode, requests, errors, in_flight, lookups, found, hits, misses } = client;
  const { pages_written, read_bytes, written_bytes, mapped_bytes } = client;
  return {
    name,
    pid,
    mode,
    requests,
    errors,
    in_flight,
    lookups,
    found,
    hits,
    misses,
    pages_written,
    read_bytes,
    written_bytes,
    mapped_bytes,
  };
}

function redisReport({
  endpoint,
  path,
  connectionsCount,
  commandsCount,
}: NonNullable<StoreReporterParts['resp']>): RedisReport {
  const addresses = [endpoint, path].filter((address) => address !== '');
  return { addresses, connections: connectionsCount, commands: commandsCount };
}

function keptStatus({ pages, bytes, refused }: KeptFigures): Partial<NodeReport['pool']> {
  return { found_pages: pages, found_bytes: bytes, refused_pages: refused };
}

function objectStoreReport(stats: ObjectTierStats): ObjectStoreReport {
  return {
    read_pages: stats.readPages,
    read_bytes: stats.readBytes,
    sent_pages: stats.sentPages,
    sent_bytes: stats.sentBytes,
    queue_pages: stats.queuePages,
    errors: stats.errors,
    failure: stats.failure,
  };
}

/** The disk tier's part of a node's report. */
function diskStatus(info: DiskInfo): NonNullable<NodeReport['disk']> {
  return {
    entries: info.entries,
    used_bytes: info.usedBytes,
    capacity_bytes: info.capacityBytes,
    queue_bytes: info.queueBytes,
    skipped_pages: info.skippedPages,
    corrupt_pages: info.corruptPages,
    evictions: info.evictions,
    write_errors: info.writeErrors,
  };
}

/**
 * The quotas of a node and their use. Undefined if there is only one tenant, without a quota, and once the pool is
 * freed.
 */
function quotaReports(
  tenants: Pick<NamespaceTenants, 'names' | 'prefixesCount' | 'refusedCount'>,
  pool: TenantTier,
  disk: TenantTier | null,
): QuotaReport[] | undefined {
  const { names } = tenants;
  const poolStats = names.length > 1 ? pool.tenantStats() : [];
  if (poolStats.length === 0) return undefined;
  const diskStats = disk?.tenantStats() ?? [];
  return poolStats.map((stats, tenant) => {
    const onDisk = diskStats[tenant];
    const namespace = names[tenant] as string;
    const prefixes = { known: tenants.prefixesCount(namespace), refused: tenants.refusedCount(namespace) };
    return {
      namespace,
      pool: useOf(stats),
      disk: onDisk === undefined ? null : useOf(onDisk),
      ...(tenant === 0 ? {} : { prefixes }),
    };
  });
}

function useOf({ entries, usedBytes, minBytes, maxBytes, evictions }: PoolTenantStats): QuotaUse {
  return { entries, used_bytes: usedBytes, min_bytes: minBytes, max_bytes: maxBytes, evictions };
}

/** The namespaces of attached clients, those with most clients first. */
function namespaceReports(namespaces: readonly AttachedNamespace[]): NamespaceReport[] {
  const most = [...namespaces].sort((a, b) => b.clients.length - a.clients.length || compareNames(a.digest, b.digest));
  return most.slice(0, NODE_REPORT_NAMESPACES_MAX_COUNT).map(namespaceReport);
}

function namespaceReport({ settings, digest, clients }: AttachedNamespace): NamespaceReport {
  const { modelName, dtype, layout, tag, fingerprint, tpRank, tpSize, ppRank, ppSize, isMlaModel } = settings;
  return {
    digest,
    model_name: cut(modelName),
    dtype: cut(dtype),
    layout: cut(layout),
    tag: cut(tag),
    fingerprint: cut(fingerprint),
    tp_rank: tpRank,
    tp_size: tpSize,
    pp_rank: ppRank,
    pp_size: ppSize,
    is_mla: isMlaModel,
    attached: clients.length,
    clients: [...new Set(clients)].sort(compareNames).slice(0, NODE_REPORT_CLIENTS_MAX_COUNT),
  };
}

/** Limits the length, because clients may send texts of any length, and the report is sent to everyone who asks. */
function cut(text = ''): string {
  return text.slice(0, NODE_REPORT_NAMESPACE_TEXT_MAX_CHARACTERS);
}
