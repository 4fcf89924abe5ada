import type { HybridClock } from '../../base/concurrency/hybrid-clock.js';
import type { Environment } from '../../base/environment/environment.js';
import { formatEndpoint } from '../../base/environment/network.js';
import type { DiscoveryClient } from '../../discovery/client.js';
import type { EmbeddedMaster } from '../../discovery/embedded-master.js';
import type { SourceState } from '../../discovery/sources/rendezvous.js';
import type { DiscoveryReport } from '../../metrics/node-report.js';
import type { ChosenTransport } from '../../transport/create-transport.js';
import type { NodeInfo } from '../../types.js';
import type { MemberEvents } from './member-events.js';
import { packageVersion } from './package-version.js';

export interface OwnReportParts {
  readonly identity: { readonly nodeId: string; readonly incarnation: number; readonly uptimeMs: number };
  readonly vnodes: number;
  /** Whether the metrics server speaks TLS. */
  readonly isMetricsTls: boolean;
  readonly chosen: ChosenTransport;
  readonly master: Pick<EmbeddedMaster, 'isHead'>;
  readonly discovery: Pick<DiscoveryClient, 'seats'>;
  /** State of the source of discovery addresses; undefined if they are listed in the configuration. */
  readonly source: SourceState | undefined;
  readonly members: ReadonlyMap<string, NodeInfo>;
  readonly versions: Pick<HybridClock, 'offsetMs'>;
  readonly memberEvents: Pick<MemberEvents, 'departed' | 'list'>;
  /** Ids of the nodes whose pages this node cannot read. */
  readonly unreachable: readonly string[];
  /** Keys in this node's shard of the directory. */
  readonly directoryKeys: number;
  readonly env: Pick<Environment, 'host'>;
}

/** Most unreachable nodes that a report names; `meshcache_transport_unreachable_peers` counts all. */
const UNREACHABLE_SHOWN_MAX_COUNT = 16;

/** The part of a node's report that does not depend on its store. */
export function ownReport(parts: OwnReportParts): Record<string, unknown> {
  const { identity, chosen, members, env } = parts;
  const { transport, wanted, reason } = chosen;
  const self = members.get(identity.nodeId);
  return {
    node_id: identity.nodeId,
    version: packageVersion(),
    incarnation: identity.incarnation,
    uptime_s: identity.uptimeMs / 1000,
    ...(self?.zone ? { zone: self.zone } : {}),
    vnodes: parts.vnodes,
    protocols: self?.protocols ?? [],
    control_endpoint: self === undefined ? '' : formatEndpoint({ host: self.controlHost, port: self.controlPort }),
    data_endpoint: transport.localEndpoint(),
    data_protocol: transport.protocol,
    transport: { wanted, reason },
    metrics_endpoint: self?.metricsPort ? formatEndpoint({ host: self.metricsHost, port: self.metricsPort }) : '',
    ...(parts.isMetricsTls ? { metrics_tls: true } : {}),
    is_meta: parts.master.isHead,
    masters: parts.discovery.seats().map(formatEndpoint),
    ...(parts.source === undefined ? {} : { discovery: discoveryReport(parts.source) }),
    members: members.size,
    ...(parts.unreachable.length === 0 ? {} : { unreachable: parts.unreachable.slice(0, UNREACHABLE_SHOWN_MAX_COUNT) }),
    clock_offset_s: parts.versions.offsetMs / 1000,
    directory: { keys: parts.directoryKeys },
    rss_bytes: env.host.residentBytes(),
    departed: parts.memberEvents.departed(),
    member_events: parts.memberEvents.list(),
  };
}

function discoveryReport({ source, found, answeredAgoMs, failure }: SourceState): DiscoveryReport {
  const answered_ago_s = answeredAgoMs === undefined ? null : answeredAgoMs / 1000;
  return { source, found, answered_ago_s, trouble: failure ?? '' };
}
