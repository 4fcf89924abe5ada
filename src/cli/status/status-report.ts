import { formatEndpoint } from '../../base/environment/network.js';
import { type DepartedNode, mergeDeparted, type ObjectStoreReport } from '../../metrics/node-report.js';
import type { NodeInfo } from '../../types.js';
import { isLoopback, metricsUrl } from '../settings/endpoints.js';
import type { NodeStatus } from './cluster-query.js';
import {
  type ClusterNamespace,
  clusterNamespaces,
  namespaceWarnings,
  type StatusDifference,
  settingDifferences,
} from './differences.js';

/*
 * The output of `meshcache status --json`. Fields are only ever added. Counts run since the start of each node; rates
 * cover the last seconds.
 */

/** A node's answer, or the reason why there is none. */
export type NodeAnswer = NodeStatus | { readonly error: string };

export type NodeRow = {
  readonly node_id: string;
  readonly control_endpoint: string;
  readonly ring_share: number;
  /** Address on which the node's metrics server listens, as seen on its machine; empty if it has none. */
  readonly metrics_endpoint: string;
  /** URL of the node's dashboard for a browser on this machine; empty if it cannot be reached from here. */
  readonly metrics_url: string;
} & (
  | ({ readonly state: 'up' } & Omit<NodeStatus, 'node_id' | 'control_endpoint' | 'metrics_endpoint'>)
  | {
      readonly state: 'unreachable';
      readonly error: string;
      readonly pool?: undefined;
      readonly clients?: undefined;
      readonly quotas?: undefined;
      readonly named_pins?: undefined;
    }
);

/** Pages looked up, and pages found before the first gap, whose prefill is saved. */
interface Lookups {
  readonly asked: number;
  readonly found: number;
}

interface TierUse {
  readonly entries: number;
  readonly used_bytes: number;
  readonly capacity_bytes: number;
}

/** Totals of the cluster. Nodes that do not answer are counted but contribute to no other figure. */
export interface ClusterTotals {
  readonly members: number;
  readonly up: number;
  readonly degraded: number;
  readonly unreachable: number;
  /** Former members that are gone without a good-bye; `left` counts those that said good-bye. */
  readonly lost: number;
  readonly left: number;
  /**
   * Seconds that the rates and recent lookups cover; null if no node reports them, because they need its metrics
   * server.
   */
  readonly window_s: number | null;
  readonly recent_lookups: Lookups;
  readonly lookups: Lookups;
  readonly read_bytes_per_s: number;
  readonly written_bytes_per_s: number;
  readonly evictions_per_s: number;
  /** The node with the highest p99 of its read calls; null if none has read in the last seconds. */
  readonly slowest: { readonly node_id: string; readonly read_p99_s: number } | null;
  readonly pool: TierUse;
  /** All disk tiers; null if there is none. */
  readonly disk: TierUse | null;
  /** Use of object stores by all nodes; null if no node has one. */
  readonly object_store: ObjectStoreUse | null;
  readonly clients: number;
}

/** Counts of object stores since the nodes started; `queue_pages` is the current value. */
type ObjectStoreUse = Pick<ObjectStoreReport, 'read_pages' | 'sent_pages' | 'queue_pages' | 'errors'>;

export interface StatusResult {
  readonly discovery_addr: string;
  /** Wall-clock milliseconds of this machine. */
  readonly time_ms: number;
  readonly totals: ClusterTotals;
  /** Former members that have not come back, most recent first. */
  readonly departed: readonly DepartedNode[];
  /** The namespaces of attached clients, each once for all nodes. Clients of the same namespace share their pages. */
  readonly namespaces: readonly ClusterNamespace[];
  /**
   * Warnings about clients that share no pages although their namespaces differ in only one fact, and about clients
   * that share with no one.
   */
  readonly namespace_warnings: readonly string[];
  /** Settings that differ between nodes of one role. */
  readonly setting_differences: readonly StatusDifference[];
  readonly nodes: readonly NodeRow[];
}

export function statusResult(
  nodes: readonly NodeRow[],
  { discoveryAddr, timeMs }: { readonly discoveryAddr: string; readonly timeMs: number },
): StatusResult {
  const departed = mergeDeparted(nodes.flatMap(upNode), new Set(nodes.map(({ node_id }) => node_id)));
  const namespaces = clusterNamespaces(nodes);
  return {
    discovery_addr: discoveryAddr,
    time_ms: timeMs,
    totals: totalsOf(nodes, departed),
    departed,
    namespaces,
    namespace_warnings: namespaceWarnings(namespaces),
    setting_differences: settingDifferences(nodes),
    nodes,
  };
}

/** A row of the result. `isHere`: the member is on this machine. */
export function nodeRow(
  member: NodeInfo,
  answer: NodeAnswer,
  { ringShare, isHere }: { readonly ringShare: number; readonly isHere: boolean },
): NodeRow {
  const { metricsPort: port, controlHost } = member;
  const host = member.metricsHost || controlHost;
  const metricsEndpoint = port > 0 ? formatEndpoint({ host, port }) : '';
  const isTls = 'metrics_tls' in answer && answer.metrics_tls === true;
  const isReachable = isHere || !isLoopback(host);
  const base = {
    node_id: member.nodeId,
    control_endpoint: formatEndpoint({ host: controlHost, port: member.controlPort }),
    ring_share: ringShare,
    metrics_endpoint: metricsEndpoint,
    metrics_url: (isReachable && metricsUrl(metricsEndpoint, { host: controlHost, isTls })) || '',
  };
  if ('error' in answer) return { ...base, state: 'unreachable', error: answer.error };
  return { ...answer, ...base, state: 'up' };
}

/** A number that a node has given; nodes of other versions may give something else. */
export function amountOf(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

type UpNode = NodeRow & { readonly state: 'up' };

function upNode(node: NodeRow): UpNode[] {
  return node.state === 'up' ? [node] : [];
}

function totalsOf(nodes: readonly NodeRow[], departed: readonly DepartedNode[]): ClusterTotals {
  const up = nodes.flatMap(upNode);
  const sum = (pick: (node: UpNode) => unknown): number =>
    up.reduce((total, node) => total + (amountOf(pick(node)) ?? 0), 0);
  const left = departed.filter(({ how }) => how === 'left').length;
  const windows = up.flatMap(({ recent }) => amountOf(recent?.window_s) ?? []);
  return {
    members: nodes.length,
    up: up.length,
    degraded: up.filter(({ health }) => health?.status === 'degraded').length,
    unreachable: nodes.length - up.length,
    lost: departed.length - left,
    left,
    window_s: windows.length === 0 ? null : Math.max(...windows),
    recent_lookups: {
      asked: sum(({ recent }) => recent?.lookups?.asked),
      found: sum(({ recent }) => recent?.lookups?.found),
    },
    lookups: { asked: sum(({ lookups }) => lookups?.asked), found: sum(({ lookups }) => lookups?.found) },
    read_bytes_per_s: sum(({ recent }) => recent?.read_bytes_per_s),
    written_bytes_per_s: sum(({ recent }) => recent?.written_bytes_per_s),
    evictions_per_s: sum(({ recent }) => recent?.evictions_per_s),
    slowest: slowestOf(up),
    pool: tierUse(up.map(({ pool }) => pool)) ?? { entries: 0, used_bytes: 0, capacity_bytes: 0 },
    disk: tierUse(up.map(({ disk }) => disk ?? undefined)),
    object_store: objectStoreUse(up.flatMap(({ object_store }) => object_store ?? [])),
    clients: sum(({ clients }) => clients?.attached),
  };
}

function slowestOf(up: readonly UpNode[]): ClusterTotals['slowest'] {
  let slowest: ClusterTotals['slowest'] = null;
  for (const { node_id, recent } of up) {
    const read_p99_s = amountOf(recent?.read_p99_s);
    if (read_p99_s !== undefined && read_p99_s > (slowest?.read_p99_s ?? -1)) slowest = { node_id, read_p99_s };
  }
  return slowest;
}

function objectStoreUse(stores: readonly ObjectStoreReport[]): ObjectStoreUse | null {
  if (stores.length === 0) return null;
  const sum = (pick: (store: ObjectStoreReport) => unknown): number =>
    stores.reduce((total, store) => total + (amountOf(pick(store)) ?? 0), 0);
  return {
    read_pages: sum(({ read_pages }) => read_pages),
    sent_pages: sum(({ sent_pages }) => sent_pages),
    queue_pages: sum(({ queue_pages }) => queue_pages),
    errors: sum(({ errors }) => errors),
  };
}

function tierUse(tiers: readonly (TierUse | undefined)[]): TierUse | null {
  const there = tiers.filter((tier) => tier !== undefined);
  if (there.length === 0) return null;
  const sum = (pick: (tier: TierUse) => number): number => there.reduce((total, tier) => total + pick(tier), 0);
  return {
    entries: sum(({ entries }) => entries),
    used_bytes: sum(({ used_bytes }) => used_bytes),
    capacity_bytes: sum(({ capacity_bytes }) => capacity_bytes),
  };
}
