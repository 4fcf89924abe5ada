import { parseEndpoint } from '../../base/environment/network.js';
import { formatSize } from '../../base/sizes.js';
import {
  type FittedTable,
  fitTable,
  formatAge,
  formatCount,
  formatMicros,
  formatPairs,
  formatRate,
  formatShare,
  printable,
  wrapText,
} from '../../command/table.js';
import { type Paint, plainPaint, type Tone } from '../../command/terminal.js';
import type {
  ClientReport,
  ClientsReport,
  DepartedNode,
  DiscoveryReport,
  NamedPinReport,
  QuotaReport,
  QuotaUse,
} from '../../metrics/node-report.js';
import { differenceText, namespaceColumns, namespaceRows } from './differences.js';
import { amountOf, type ClusterTotals, type NodeRow, type StatusResult } from './status-report.js';

/** A node, with its report about clients if it has one. */
interface ClientsOfNode {
  readonly node_id: string;
  readonly clients?: ClientsReport | undefined;
}

/** Columns that a narrow terminal leaves out, in this order. */
const CLIENT_COLUMNS: FittedTable = { optional: ['mapped', 'in flight', 'errors', 'mode', 'process'] };

interface QuotasOfNode {
  readonly node_id: string;
  readonly quotas?: readonly QuotaReport[] | undefined;
}

interface PinsOfNode {
  readonly node_id: string;
  readonly named_pins?: readonly NamedPinReport[] | undefined;
}

const QUOTA_COLUMNS: FittedTable = {
  rightColumns: new Set(['pages', 'used', 'min', 'max', 'evictions', 'refused']),
  optional: ['evictions', 'pages'],
};

const PIN_COLUMNS: FittedTable = { rightColumns: new Set(['pages', 'pinned']), optional: ['namespace'] };

/** Columns that a narrow terminal leaves out, in this order. */
const ZONE_COLUMNS: FittedTable = {
  optional: ['lookups leave', 'lookups', 'same host'],
  rightColumns: new Set(),
};

/** Characters of the digest of a namespace that are shown. */
const NAMESPACE_SHOWN_CHARACTERS = 12;
/** Width of output that does not go to a terminal, or goes to one of unknown width. */
const DEFAULT_COLUMNS = 100;
const UNKNOWN = '-';
/** Smallest clock offset of a node that is reported. */
const CLOCK_OFFSET_SHOWN_S = 1;
/** Members' columns that a narrow terminal leaves out, in this order. The others fit into 100 columns. */
const OPTIONAL_COLUMNS = [
  'version',
  'memory',
  'keys',
  'ring',
  'disk pages',
  'from disk',
  'remote',
  'pages',
  'uptime',
  'clients',
  'disk',
  'loop p99',
  'lifetime',
  'evicted',
  'written',
  'pool',
  'read',
  'hits',
  'p99',
];
const LEFT_COLUMNS: ReadonlySet<string> = new Set(['node', 'state']);
const STATE_TONES: ReadonlyMap<string, Tone> = new Map([
  ['up', 'good'],
  ['degraded', 'warning'],
  ['unreachable', 'bad'],
  ['lost', 'bad'],
]);

const PLACING_COLUMNS = { rightColumns: new Set(['placed', 'bytes', 'waiting', 'failed', 'in pool']) };
const PREFETCHED_COLUMNS = { rightColumns: new Set(['prefetched', 'used', 'wasted', 'unread']) };
const REDIS_COLUMNS = { rightColumns: new Set(['connections', 'commands']) };

interface StatusStyle {
  readonly columns?: number | undefined;
  readonly paint?: Paint;
  /** Leaves out tables that hardly change, such as addresses, quotas and attached clients, for a refreshed view. */
  readonly isBrief?: boolean;
}

/** Formats the status for a terminal of `columns` columns: the whole cluster first, then its members. */
export function formatStatus(result: StatusResult, style: StatusStyle = {}): string {
  const { columns = DEFAULT_COLUMNS, paint = plainPaint, isBrief = false } = style;
  const { nodes, totals, departed, discovery_addr } = result;
  const parts = [`${wrapText(titleOf(totals, discovery_addr), columns)}\n${formatTotals(result, columns, paint)}`];
  const rows = [...nodes.map(memberRow), ...departed.filter(({ how }) => how !== 'left').map(lostRow)];
  if (rows.length > 0) parts.push(fitTable(rows, columns, memberStyle(rows, paint)));
  if (nodes.length > 0 && !isBrief) parts.push(fitTable(nodes.map(addressRow), columns));
  const doors = isBrief ? [] : nodes.flatMap(redisRow);
  if (doors.length > 0) parts.push(fitTable(doors, columns, REDIS_COLUMNS));
  const zones = isBrief ? [] : zoneRows(nodes);
  if (zones.length > 0) parts.push(fitTable(zones, columns, ZONE_COLUMNS));
  const placing = isBrief ? [] : nodes.flatMap(placingRow);
  if (placing.length > 0) parts.push(fitTable(placing, columns, PLACING_COLUMNS));
  const prefetched = isBrief ? [] : nodes.flatMap(prefetchedRow);
  if (prefetched.length > 0) parts.push(fitTable(prefetched, columns, PREFETCHED_COLUMNS));
  const quotas = isBrief ? [] : quotaRows(nodes);
  if (quotas.length > 0) parts.push(fitTable(quotas, columns, QUOTA_COLUMNS));
  const pins = isBrief ? [] : pinRows(nodes);
  if (pins.length > 0) parts.push(fitTable(pins, columns, PIN_COLUMNS));
  const clients = isBrief ? [] : clientRows(nodes);
  if (clients.length > 0) parts.push(fitTable(clients, columns, CLIENT_COLUMNS));
  const namespaces = isBrief ? [] : namespaceRows(result.namespaces);
  if (namespaces.length > 0) parts.push(fitTable(namespaces, columns, namespaceColumns(namespaces)));
  const namesOf = (nodeIds: readonly string[]): string =>
    nodeIds.length === nodes.length && nodes.length > 1 ? 'all nodes' : nodeIds.join(', ');
  const notes = [...remarks(nodes)].map(([text, nodeIds]) => `${namesOf(nodeIds)}: ${text}`);
  notes.push(...result.setting_differences.map(differenceText));
  if (!isBrief) notes.push(...furtherClients(nodes), ...result.namespace_warnings);
  if (notes.length > 0) parts.push(notes.map((note) => wrapText(printable(note), columns)).join('\n'));
  return parts.join('\n\n');
}

function titleOf({ members, up, degraded, unreachable }: ClusterTotals, addr: string): string {
  const states = [`${up} up`];
  if (degraded > 0) states[0] += `, ${degraded} of them degraded`;
  if (unreachable > 0) states.push(`${unreachable} unreachable`);
  return `${members} member${members === 1 ? '' : 's'} at ${addr}: ${states.join(', ')}`;
}

/** Lines about the whole cluster. */
function formatTotals({ totals, departed, nodes, time_ms }: StatusResult, columns: number, paint: Paint): string {
  const { lookups, recent_lookups: recent, window_s, slowest, pool, disk } = totals;
  const whole = `${formatShare(lookups.found, lookups.asked)} since the nodes started`;
  const window = window_s === null ? '' : `last ${Math.round(window_s)} s`;
  const prefixHits =
    recent.asked > 0
      ? `${formatShare(recent.found, recent.asked)} of ${formatCount(recent.asked)} pages in the ${window}, ${whole}`
      : `${whole}${window && `, nothing asked for in the ${window}`}`;
  const pairs: [string, string][] = [['prefix hits', prefixHits]];
  if (window_s !== null) {
    const rates = `${formatRate(totals.read_bytes_per_s)} read, ${formatRate(totals.written_bytes_per_s)} written`;
    pairs.push(['throughput', `${rates}, ${formatEvictions(totals.evictions_per_s)} evicted`]);
    const p99 = slowest && `${formatSeconds(slowest.read_p99_s)} at the slowest node, ${printable(slowest.node_id)}`;
    pairs.push(['read p99', p99 ?? 'nothing read']);
  }
  const gone = (how: DepartedNode['how']): string =>
    departed
      .filter((node) => (node.how === 'left') === (how === 'left'))
      .map(({ node_id, time_ms: goneMs }) => `${printable(node_id)} (${agoOf(goneMs, time_ms)})`)
      .join(', ');
  pairs.push(['lost nodes', gone('lost') || 'none']);
  if (totals.left > 0) pairs.push(['left nodes', gone('left')]);
  pairs.push(['pool', formatUse(pool)]);
  if (disk !== null) pairs.push(['disk', formatUse(disk)]);
  if (totals.object_store !== null) pairs.push(['object store', formatObjectStore(totals.object_store)]);
  const masters = nodes.flatMap((node) => (node.state === 'up' ? (node.masters ?? []) : []));
  if (masters.length > 0) pairs.push(['masters', printable([...new Set(masters)].join(', '))]);
  for (const source of sourcesOf(nodes)) pairs.push(['found by', printable(source)]);
  const lines = formatPairs(pairs, columns).split('\n');
  return lines
    .map((line) => (totals.lost > 0 && line.startsWith('  lost nodes') ? paint('bad', line) : line))
    .join('\n');
}

function formatUse({ used_bytes, capacity_bytes, entries }: NonNullable<ClusterTotals['disk']>): string {
  const share = formatShare(used_bytes, capacity_bytes);
  return `${formatSize(used_bytes)} of ${formatSize(capacity_bytes)} (${share}), ${formatCount(entries)} ${entries === 1 ? 'page' : 'pages'}`;
}

function formatObjectStore(use: NonNullable<ClusterTotals['object_store']>): string {
  const moved = `${formatCount(use.read_pages)} pages read, ${formatCount(use.sent_pages)} sent`;
  return `${moved}, ${formatCount(use.queue_pages)} waiting, ${formatCount(use.errors)} requests failed`;
}

function memberStyle(rows: readonly Readonly<Record<string, string>>[], paint: Paint) {
  const names = Object.keys(rows[0] as object);
  return {
    // Columns for which no node has a value are left out first.
    optional: [...names.filter((name) => rows.every((row) => (row[name] ?? UNKNOWN) === UNKNOWN)), ...OPTIONAL_COLUMNS],
    rightColumns: new Set(names.filter((name) => !LEFT_COLUMNS.has(name))),
    paintCell: (text: string, column: string): string => {
      const tone = column === 'state' ? STATE_TONES.get(text.trim()) : undefined;
      return tone === undefined ? text : paint(tone, text);
    },
  };
}

function memberRow(node: NodeRow): Record<string, string> {
  if (node.state === 'unreachable') return { node: node.node_id, state: 'unreachable', ring: ringOf(node) };
  const { pool, disk, reads, recent, directory, clients } = node;
  const hits = reads === undefined ? 0 : reads.local + reads.remote + reads.disk + (reads.object ?? 0);
  return {
    node: node.node_id,
    state: node.health?.status === 'degraded' ? 'degraded' : 'up',
    ring: ringOf(node),
    uptime: shown(node.uptime_s, formatAge),
    version: typeof node.version === 'string' ? node.version : UNKNOWN,
    pool: pool === undefined ? UNKNOWN : formatShare(pool.used_bytes, pool.capacity_bytes),
    pages: shown(pool?.entries, formatCount),
    disk: disk ? formatShare(disk.used_bytes, disk.capacity_bytes) : UNKNOWN,
    'disk pages': shown(disk?.entries, formatCount),
    keys: shown(directory?.keys, formatCount),
    hits: prefixHits(node),
    remote: reads === undefined ? UNKNOWN : formatShare(reads.remote, hits),
    'from disk': reads === undefined ? UNKNOWN : formatShare(reads.disk, hits),
    p99: shown(recent?.read_p99_s, formatSeconds),
    read: shown(recent?.read_bytes_per_s, formatRate),
    written: shown(recent?.written_bytes_per_s, formatRate),
    evicted: shown(recent?.evictions_per_s, formatEvictions),
    lifetime: shown(recent?.page_lifetime_s, formatAge),
    'loop p99': shown(node.event_loop_delay?.p99_s, formatSeconds),
    clients: shown(clients?.attached, formatCount),
    memory: shown(node.rss_bytes, formatSize),
  };
}

function lostRow({ node_id }: DepartedNode): Record<string, string> {
  return { node: node_id, state: 'lost' };
}

function addressRow(node: NodeRow): Record<string, string> {
  const port = parseEndpoint(node.metrics_endpoint)?.port;
  const isUp = node.state === 'up';
  const data = isUp ? [node.data_protocol, node.data_endpoint].filter(Boolean).join(' ') : '';
  return {
    node: node.node_id,
    head: isUp && node.is_meta ? 'head' : '',
    control: node.control_endpoint,
    data: data || UNKNOWN,
    metrics: node.metrics_url || (port === undefined ? UNKNOWN : `${port}, only on that host`),
  };
}

/** The row of a storage node, or of a node that places pages on storage nodes. */
function placingRow(node: NodeRow): Record<string, string>[] {
  if (node.state !== 'up' || (node.role !== 'storage' && node.placement === undefined)) return [];
  const { placement } = node;
  return [
    {
      node: node.node_id,
      role: printable(String(node.role ?? UNKNOWN)),
      'write policy': printable(String(node.write_policy ?? UNKNOWN)),
      placed: shown(placement?.placed_pages, formatCount),
      bytes: shown(placement?.placed_bytes, formatSize),
      waiting: shown(placement?.unplaced_pages, formatCount),
      failed: shown(placement?.failed_pages, formatCount),
      'in pool': shown(placement?.pool_placed_pages, formatCount),
    },
  ];
}

/** The row of a node with a door for Redis clients. */
function redisRow(node: NodeRow): Record<string, string>[] {
  if (node.state !== 'up' || node.redis === undefined) return [];
  const { addresses, connections, commands } = node.redis;
  return [
    {
      node: node.node_id,
      redis: addresses.join(', '),
      connections: formatCount(connections),
      commands: formatCount(commands),
    },
  ];
}

/**
 * Remarks that do not fit into the table, each with the ids of its nodes, such as problems and why a node does not read
 * over the wanted transport.
 */
function remarks(nodes: readonly NodeRow[]): Map<string, string[]> {
  const byText = new Map<string, string[]>();
  for (const node of nodes) {
    for (const text of remarksOf(node)) byText.set(text, [...(byText.get(text) ?? []), node.node_id]);
  }
  return byText;
}

function remarksOf(node: NodeRow): string[] {
  if (node.state === 'unreachable') return [`unreachable: ${node.error}`];
  const { health, transport, data_protocol, discovery, unreachable = [] } = node;
  const fellBack = transport?.wanted !== data_protocol && transport?.reason;
  const reads = fellBack ? [`reads over ${data_protocol}, not ${transport.wanted}: ${transport.reason}`] : [];
  const peers = unreachable.map((id) => `cannot read the pages of ${id}`);
  const source = discovery?.trouble ? [`${discovery.source} does not answer: ${discovery.trouble}`] : [];
  const failure = node.object_store?.failure;
  const offsetS = node.clock_offset_s ?? 0;
  const ahead = offsetS > 0 ? 'ahead of' : 'behind';
  const isOff = Math.abs(offsetS) >= CLOCK_OFFSET_SHOWN_S;
  const clock = isOff ? [`clock ${Math.abs(offsetS).toFixed(1)} s ${ahead} those of the cluster: set it by NTP`] : [];
  const store = typeof failure === 'string' ? [`object store failing: ${failure} (see meshcache doctor)`] : [];
  return [...(health?.reasons ?? []), ...clock, ...peers, ...source, ...reads, ...store, ...foundAgain(node)];
}

/** A line about each source through which nodes find each other. */
function sourcesOf(nodes: readonly NodeRow[]): string[] {
  const reports = nodes.flatMap((node) => (node.state === 'up' && node.discovery ? [node.discovery] : []));
  const bySource = new Map<string, DiscoveryReport[]>();
  for (const report of reports) bySource.set(report.source, [...(bySource.get(report.source) ?? []), report]);
  return [...bySource].map(([source, all]) => {
    const answering = all.filter(({ trouble }) => trouble === '').length;
    const ages = all.flatMap(({ answered_ago_s }) => amountOf(answered_ago_s) ?? []);
    const last = ages.length === 0 ? 'never' : `${formatAge(Math.min(...ages))} ago`;
    const found = Math.max(...all.map((one) => one.found));
    return `${source}: ${found} address${found === 1 ? '' : 'es'}, answers ${answering} of ${all.length} nodes, last ${last}`;
  });
}

/** The pages that a node found at its start in a pool that outlives it. */
function foundAgain({ pool }: NodeRow): string[] {
  const [pages, bytes, refused] = [pool?.found_pages, pool?.found_bytes, pool?.refused_pages].map(amountOf);
  if (pages === undefined) return [];
  const others = refused ? `, ${formatCount(refused)} not taken again` : '';
  if (pages === 0) return [`found no pages from before its restart${others}`];
  return [`found ${formatCount(pages)} pages from before its restart, ${formatSize(bytes ?? 0)}${others}`];
}

/** Prefix hit rate of the last seconds; of the time since the node started if nothing was looked up recently. */
function prefixHits({ recent, lookups }: NodeRow & { readonly state: 'up' }): string {
  const { asked, found } = (amountOf(recent?.lookups?.asked) ? recent?.lookups : lookups) ?? {};
  return formatShare(amountOf(found) ?? 0, amountOf(asked) ?? 0);
}

function ringOf({ ring_share }: NodeRow): string {
  return formatShare(ring_share, 1);
}

function shown(value: unknown, format: (amount: number) => string): string {
  const amount = amountOf(value);
  return amount === undefined ? UNKNOWN : format(amount);
}

function formatSeconds(seconds: number): string {
  return seconds < 1 ? formatMicros(seconds * 1e6) : `${seconds.toPrecision(3)} s`;
}

function formatEvictions(perS: number): string {
  return `${perS < 10 ? Number(perS.toFixed(1)) : formatCount(perS)}/s`;
}

function agoOf(thenMs: number, nowMs: number): string {
  return `${formatAge(Math.max(0, nowMs - thenMs) / 1000)} ago`;
}

/**
 * For each node, what it reads from its own host, from its own zone and from other zones; empty if no node has a zone.
 * A node without a zone does not count this.
 */
function zoneRows(nodes: readonly NodeRow[]): Record<string, string>[] {
  const rows = nodes.flatMap((node) => (node.state === 'up' ? [node] : []));
  return rows.some(({ zone }) => zone) ? rows.map(zoneRow) : [];
}

function zoneRow({ node_id, zone = '', by_distance }: NodeRow & { readonly state: 'up' }): Record<string, string> {
  const { read_pages: pages, directory_keys: keys } = by_distance ?? {};
  const read = pages === undefined ? 0 : pages.host + pages.zone + pages.other;
  const asked = keys === undefined ? 0 : keys.host + keys.zone + keys.other;
  const count = (pagesOrKeys: number) => (zone === '' ? '-' : formatCount(pagesOrKeys));
  return {
    node: node_id,
    zone: zone === '' ? '-' : zone,
    'read of others': count(read),
    'same host': formatShare(pages?.host ?? 0, read),
    'same zone': formatShare(pages?.zone ?? 0, read),
    'other zones': formatShare(pages?.other ?? 0, read),
    lookups: count(asked),
    'lookups leave': formatShare(keys?.other ?? 0, asked),
  };
}

/**
 * Rows of a table of all quotas, by node and namespace tag: one for the pool, and one for the disk tier if there is
 * one.
 */
function quotaRows(nodes: readonly QuotasOfNode[]): Record<string, string>[] {
  return nodes.flatMap(({ node_id, quotas = [] }) =>
    quotas.flatMap(({ namespace, pool, disk, prefixes }) => {
      const subject = { node: node_id, namespace };
      // Refused uses of namespaces are rare, so their column is usually absent.
      const refused: Record<string, string> = prefixes?.refused ? { refused: formatCount(prefixes.refused) } : {};
      const inPool = { ...quotaRow({ ...subject, tier: 'pool' }, pool), ...refused };
      return disk === null ? [inPool] : [inPool, quotaRow({ ...subject, tier: 'disk' }, disk)];
    }),
  );
}

function quotaRow(subject: Readonly<Record<string, string>>, use: QuotaUse): Record<string, string> {
  return {
    ...subject,
    pages: formatCount(use.entries),
    used: formatSize(use.used_bytes),
    min: formatSize(use.min_bytes),
    max: formatSize(use.max_bytes),
    evictions: formatCount(use.evictions),
  };
}

function prefetchedRow(node: NodeRow): Record<string, string>[] {
  if (node.state !== 'up' || node.prefetched === undefined) return [];
  const { brought, used, wasted, unread_bytes } = node.prefetched;
  return [
    {
      node: node.node_id,
      prefetched: formatCount(brought),
      used: formatCount(used),
      wasted: formatCount(wasted),
      unread: formatSize(unread_bytes),
    },
  ];
}

/** Rows of a table of all pins with names, by node. */
function pinRows(nodes: readonly PinsOfNode[]): Record<string, string>[] {
  return nodes.flatMap(({ node_id, named_pins = [] }) =>
    named_pins.map(({ namespace, name, pages, bytes }) => ({
      'pin by name': name,
      node: node_id,
      namespace: namespace.slice(0, NAMESPACE_SHOWN_CHARACTERS),
      pages: formatCount(pages),
      pinned: formatSize(bytes),
    })),
  );
}

/** Rows of a table of all clients, by node, with the busiest client of each node first. */
function clientRows(nodes: readonly ClientsOfNode[]): Record<string, string>[] {
  return nodes.flatMap(({ node_id, clients }) => (clients?.busiest ?? []).map((client) => clientRow(node_id, client)));
}

/** One line for each node with attached clients that are not in the table. */
function furtherClients(nodes: readonly ClientsOfNode[]): string[] {
  return nodes.flatMap(({ node_id, clients }) => {
    const further = (clients?.attached ?? 0) - (clients?.busiest?.length ?? 0);
    return further > 0 ? [`${node_id}: ${formatCount(further)} more clients, which have moved fewer bytes`] : [];
  });
}

/** Hit rate of a client's lookups or, if it makes none, of its reads. */
function hitsOf({ lookups = 0, found = 0, hits, misses }: ClientReport): string {
  return lookups > 0 ? formatShare(found, lookups) : formatShare(hits, hits + misses);
}

function clientRow(nodeId: string, client: ClientReport): Record<string, string> {
  const { name, pid, mode, requests, in_flight } = client;
  return {
    client: name,
    process: String(pid),
    node: nodeId,
    mode,
    requests: formatCount(requests),
    'in flight': formatCount(in_flight),
    hits: hitsOf(client),
    read: formatSize(client.read_bytes),
    written: formatSize(client.written_bytes),
    errors: formatCount(client.errors),
    mapped: formatSize(client.mapped_bytes),
  };
}
