import { formatSize } from '../../base/sizes.js';
import { type CommandContext, EXIT_FAILURE, printResult } from '../../command/context.js';
import { formatCount, formatMicros, formatPairs, formatShare } from '../../command/table.js';
import type { AgentDisk, AgentStatus } from '../cluster/agent-protocol.js';
import { type LoadResult, quantile } from './load.js';

const REPORT_COLUMNS = 100;
const WHAT_CHECKSUMS_CATCH =
  'pages whose place in a pool was reused while they were read; none was delivered, each was read elsewhere or set again';

/** Results of a load, as `--json` prints them. Names end with their unit; counts without a unit are in pages. */
export interface LoadReport {
  readonly nodes: number;
  readonly page_bytes: number;
  readonly requests: number;
  readonly pages_asked: number;
  readonly pages_set: number;
  readonly prefix_hits: number;
  /** Share of all requested pages that were read before their request's first miss. */
  readonly prefix_hit_rate: number;
  readonly hits: { readonly local: number; readonly remote: number; readonly disk: number };
  readonly stale_misses: number;
  readonly set_failures: number;
  readonly evictions: number;
  readonly checksum_failures: number;
  readonly read_bytes: number;
  readonly set_bytes: number;
  /** Read throughput of one process within its read calls, in 10^9 bytes per second; processes run in parallel. */
  readonly read_gb_per_s: number;
  readonly set_gb_per_s: number;
  readonly read_p50_us: number;
  readonly read_p99_us: number;
  readonly lookup_p50_us: number;
  readonly lookup_p99_us: number;
  readonly wall_s: number;
  readonly wrong_bytes: number;
  readonly nodes_rss_bytes: number;
  /** Sum of all disk tiers; null if there is none. */
  readonly disk: DiskReport | null;
}

/** Results of the disk tiers; counts are in pages. */
interface DiskReport {
  readonly entries: number;
  readonly used_bytes: number;
  readonly capacity_bytes: number;
  readonly evictions: number;
  readonly skipped_pages: number;
  readonly corrupt_pages: number;
  readonly write_errors: number;
  /**
   * Pages read from the disks: by their own nodes, as in `hits.disk`, and for other nodes, as a part of `hits.remote`.
   */
  readonly read_pages: number;
}

export function loadReport(
  load: LoadResult,
  cluster: { readonly statuses: readonly AgentStatus[]; readonly pageBytes: number },
): LoadReport {
  const { counts } = load;
  const sum = (pick: (status: AgentStatus) => number): number =>
    cluster.statuses.reduce((total, status) => total + pick(status), 0);
  return {
    nodes: cluster.statuses.length,
    page_bytes: cluster.pageBytes,
    requests: counts.requests,
    pages_asked: counts.asked,
    pages_set: counts.set,
    prefix_hits: counts.prefixHits,
    prefix_hit_rate: counts.asked === 0 ? 0 : rounded(counts.prefixHits / counts.asked),
    hits: { local: counts.localHits, remote: counts.remoteHits, disk: counts.diskHits },
    stale_misses: counts.staleMisses,
    set_failures: counts.setFailures,
    evictions: sum((status) => status.evictions),
    checksum_failures: sum((status) => status.checksumFailures),
    read_bytes: counts.readBytes,
    set_bytes: counts.setBytes,
    read_gb_per_s: speed(counts.readBytes, counts.readUs),
    set_gb_per_s: speed(counts.setBytes, counts.setUs),
    read_p50_us: latency(load.readLatenciesUs, 0.5),
    read_p99_us: latency(load.readLatenciesUs, 0.99),
    lookup_p50_us: latency(load.lookupLatenciesUs, 0.5),
    lookup_p99_us: latency(load.lookupLatenciesUs, 0.99),
    wall_s: rounded(load.wallMs / 1000),
    wrong_bytes: counts.wrongBytes,
    nodes_rss_bytes: sum((status) => status.rssBytes),
    disk: diskReport(cluster.statuses),
  };
}

export function formatLoadReport(report: LoadReport): string {
  const { hits } = report;
  const found = hits.local + hits.remote + hits.disk;
  const source = (count: number): string => `${formatCount(count)} (${formatShare(count, found)})`;
  const pairs: [string, string][] = [
    ['nodes', `${report.nodes} processes, ${formatSize(report.nodes_rss_bytes)} of memory in use`],
    ['requests', `${formatCount(report.requests)} in ${report.wall_s.toFixed(1)} s`],
    ['pages asked for', `${formatCount(report.pages_asked)} of ${formatSize(report.page_bytes)}`],
    ['prefix hit rate', `${formatShare(report.prefix_hits, report.pages_asked)} of them`],
    ['hits, own pool', source(hits.local)],
    ['hits, other nodes', source(hits.remote)],
    ['hits, own disk', source(hits.disk)],
    ['pages set', `${formatCount(report.pages_set)}, ${formatCount(report.evictions)} evicted`],
    ['read', `${formatSize(report.read_bytes)}, ${report.read_gb_per_s.toFixed(2)} GB/s in a call`],
    ['written', `${formatSize(report.set_bytes)}, ${report.set_gb_per_s.toFixed(2)} GB/s in a call`],
    ['read call p50, p99', `${formatMicros(report.read_p50_us)}, ${formatMicros(report.read_p99_us)}`],
    ['lookup call p50, p99', `${formatMicros(report.lookup_p50_us)}, ${formatMicros(report.lookup_p99_us)}`],
  ];
  pairs.push(...diskPairs(report.disk, found));
  if (report.stale_misses > 0) pairs.push(['stale prefixes', `${formatCount(report.stale_misses)}, set again`]);
  if (report.checksum_failures > 0) {
    pairs.push(['checksum failures', `${formatCount(report.checksum_failures)} caught: ${WHAT_CHECKSUMS_CATCH}`]);
  }
  if (report.set_failures > 0) pairs.push(['pages not set', formatCount(report.set_failures)]);
  pairs.push(['wrong bytes', formatCount(report.wrong_bytes)]);
  return formatPairs(pairs, REPORT_COLUMNS);
}

/** Prints the results of a load. A wrong byte makes the program end with a failure. */
export function printLoadReport<T extends LoadReport>(
  context: CommandContext,
  report: T,
  output: { readonly json: boolean; readonly asText: (report: T) => string },
): void {
  printResult(context, report, output);
  if (report.wrong_bytes > 0) context.setExitStatus(EXIT_FAILURE);
}

function diskReport(statuses: readonly AgentStatus[]): DiskReport | null {
  const disks = statuses.flatMap(({ disk }) => disk ?? []);
  if (disks.length === 0) return null;
  const sum = (pick: (disk: AgentDisk) => number): number => disks.reduce((total, disk) => total + pick(disk), 0);
  return {
    entries: sum((disk) => disk.entries),
    used_bytes: sum((disk) => disk.usedBytes),
    capacity_bytes: sum((disk) => disk.capacityBytes),
    evictions: sum((disk) => disk.evictions),
    skipped_pages: sum((disk) => disk.skippedPages),
    corrupt_pages: sum((disk) => disk.corruptPages),
    write_errors: sum((disk) => disk.writeErrors),
    read_pages: sum((disk) => disk.readPages),
  };
}

/** Lines about the disks; `found`: all pages that were read. */
function diskPairs(disk: DiskReport | null, found: number): [string, string][] {
  if (disk === null) return [];
  const use = `${formatSize(disk.used_bytes)} of ${formatSize(disk.capacity_bytes)}`;
  const pairs: [string, string][] = [
    [
      'from disks',
      `${formatCount(disk.read_pages)} of ${formatCount(found)} pages read (${formatShare(disk.read_pages, found)}), own ones and of other nodes`,
    ],
    ['on disk', `${formatCount(disk.entries)} pages, ${use}, ${formatCount(disk.evictions)} evicted`],
  ];
  if (disk.skipped_pages > 0) pairs.push(['not put on disk', `${formatCount(disk.skipped_pages)} pages`]);
  if (disk.corrupt_pages > 0)
    pairs.push(['damaged on disk', `${formatCount(disk.corrupt_pages)} pages caught: dropped, and a miss`]);
  if (disk.write_errors > 0) pairs.push(['disk errors', formatCount(disk.write_errors)]);
  return pairs;
}

/** GB/s from bytes and microseconds. */
function speed(bytes: number, us: number): number {
  return us === 0 ? 0 : rounded(bytes / us / 1000);
}

function latency(sorted: Float64Array, share: number): number {
  return sorted.length === 0 ? 0 : Math.round(quantile(sorted, share));
}

function rounded(value: number): number {
  return Number(value.toFixed(4));
}
