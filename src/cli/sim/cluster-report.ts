import { formatSize } from '../../base/sizes.js';
import { formatCount, formatPairs, formatShare, formatTable } from '../../command/table.js';
import type { Violation } from '../../sim/check/violations.js';
import type { BarChart, ChartMark, LineChart, Report, ReportHighlight, ReportTable } from '../../sim/report/report.js';
import type { ScenarioResult } from '../../sim/run/run-scenario.js';
import type { Sample } from '../../sim/run/series.js';
import type { SimClusterRun } from './cluster.js';

const MARKS_MAX_COUNT = 40;

/** The page that `--html` writes. */
export function simClusterReport(run: SimClusterRun): Report {
  const { scenario, result } = run;
  const { nodes, durationMs, workload, shape, network } = scenario;
  return {
    title: `${nodes} simulated nodes, seed ${scenario.seed}`,
    summary:
      `${(durationMs / 1000).toFixed(0)} s of a workload of kind “${workload.kind}” with ${scenario.faults.length} faults. Every read that brought a page was ` +
      'held against everything that had been set, deleted and cleared before.',
    highlights: highlights(run),
    sections: [
      { title: 'Over time', note: 'Bands are faults.', blocks: overTime(run) },
      { title: 'Traffic', note: 'Sent by each host, by plane.', blocks: [trafficBars(run)] },
      ...(result.violations.length > 0 ? [{ title: 'Violations', blocks: [violationTable(run)] }] : []),
      ...(scenario.faults.length > 0 ? [{ title: 'Faults', blocks: [faultTable(run)] }] : []),
    ],
    parameters: [
      { name: 'Seed', value: String(scenario.seed) },
      { name: 'Hash', value: result.hash },
      { name: 'Pool', value: `${formatCount(shape.poolPages)} pages of ${formatSize(shape.pageBytes)}` },
      { name: 'Disk tier', value: shape.diskPages === null ? 'none' : `${formatCount(shape.diskPages)} pages` },
      {
        name: 'Settings',
        value:
          Object.entries(shape.config)
            .map(([key, value]) => `${key} ${value}`)
            .join(', ') || 'defaults',
      },
      { name: 'Network', value: `${network.latencyMs} ms, ${formatSize(network.bytesPerS)}/s` },
    ],
  };
}

function highlights({ result }: SimClusterRun): ReportHighlight[] {
  const { counts, recovery, violationsCount, events, virtualMs } = result;
  const { local, remote, disk, object } = counts.hits;
  const asked = local + remote + disk + object + counts.misses;
  const { requests } = counts;
  return [
    { label: 'Violations', value: String(violationsCount), note: 'of what is promised' },
    {
      label: 'Reads checked',
      value: formatCount(counts.readsChecked),
      note: 'every byte, and whether it was new enough',
    },
    requests.count > 0
      ? {
          label: 'Prefix hit rate',
          value: (requests.asked === 0 ? 0 : requests.found / requests.asked).toFixed(3),
          note: `of ${formatCount(requests.count)} requests`,
        }
      : {
          label: 'Pages found',
          value: formatShare(asked - counts.misses, asked),
          note: `of ${formatCount(asked)} asked for`,
        },
    {
      label: 'Recovery',
      value: recovery?.foundMs == null ? '–' : `${(recovery.foundMs / 1000).toFixed(2)} s`,
      note: 'from the last fault until every page is found from everywhere',
    },
    { label: 'Events', value: formatCount(events), note: `in ${(virtualMs / 1000).toFixed(0)} virtual seconds` },
  ];
}

function overTime({ scenario, result }: SimClusterRun): LineChart[] {
  const { series } = result;
  const marks = scenario.faults.slice(0, MARKS_MAX_COUNT).map(({ kind, atMs, durationMs, nodes }): ChartMark => {
    return { x: atMs / 1000, endX: (atMs + durationMs) / 1000, label: `${kind} ${nodes.join(', ')}`, kind: 'fault' };
  });
  const x = { label: 'Seconds', format: (seconds: number) => String(Number(seconds.toFixed(1))) };
  const chart = (
    title: string,
    label: string,
    lines: Readonly<Record<string, (sample: Sample) => number | null>>,
  ): LineChart => ({
    kind: 'lines',
    title,
    x,
    y: { label, format: (value) => String(Number(value.toPrecision(3))) },
    series: Object.entries(lines).map(([name, of]) => ({
      name,
      points: series.map((sample): [number, number | null] => [sample.atMs / 1000, of(sample)]),
    })),
    marks,
    isWide: true,
  });
  const share = (part: (sample: Sample) => number) => (sample: Sample) => {
    const all = sample.local + sample.remote + sample.disk + sample.object + sample.misses;
    return all === 0 ? null : part(sample) / all;
  };
  return [
    chart('Where pages were found', 'Share of reads', {
      'own pool': share(({ local }) => local),
      'another node’s pool': share(({ remote }) => remote),
      disk: share(({ disk }) => disk),
      ...(scenario.shape.objectStore === undefined ? {} : { 'object store': share(({ object }) => object) }),
      'not found': share(({ misses }) => misses),
    }),
    chart('Convergence', 'Nodes, and pairs of nodes that know each other, of all', {
      'nodes up': ({ up }) => up / scenario.nodes,
      'pairs that know each other': ({ up, knowing }) => (up === 0 ? null : knowing / (up * up)),
    }),
    chart('Traffic of all hosts', 'Bytes a sample', {
      control: ({ controlBytes }) => controlBytes,
      data: ({ dataBytes }) => dataBytes,
    }),
    chart('What nodes hold', 'Count', {
      'pages in pools': ({ poolPages }) => poolPages,
      'pages on disks': ({ diskPages }) => diskPages,
      connections: ({ connections }) => connections,
      timers: ({ timers }) => timers,
    }),
  ];
}

function trafficBars({ result }: SimClusterRun): BarChart {
  const planes = [...new Set(result.traffic.map(({ plane }) => plane))];
  const hosts = [...new Set(result.traffic.map(({ host }) => host))];
  return {
    kind: 'bars',
    title: 'Sent bytes',
    parts: planes,
    bars: hosts.map((name) => ({
      name,
      values: planes.map(
        (plane) => result.traffic.find((each) => each.host === name && each.plane === plane)?.bytes ?? 0,
      ),
    })),
    format: formatSize,
    isWide: true,
  };
}

function violationTable({ result }: SimClusterRun): ReportTable {
  return {
    kind: 'table',
    title: `${formatCount(result.violationsCount)} in all`,
    columns: [
      { name: 'Second', isNumeric: true },
      { name: 'Node', isNumeric: true },
      { name: 'Kind' },
      { name: 'What' },
    ],
    rows: result.violations.map(({ atMs, node, kind, rule, detail }) => {
      return [(atMs / 1000).toFixed(3), String(node), `${kind} ${rule}`, detail];
    }),
  };
}

function faultTable({ scenario }: SimClusterRun): ReportTable {
  return {
    kind: 'table',
    title: 'In the order of their times',
    columns: [
      { name: 'Second', isNumeric: true },
      { name: 'Lasts', isNumeric: true },
      { name: 'Kind' },
      { name: 'Nodes' },
      { name: 'Amount', isNumeric: true },
    ],
    rows: scenario.faults.map(({ atMs, durationMs, kind, nodes, peers, amount }) => {
      const where = peers.length > 0 ? `${nodes.join(', ')} and ${peers.join(', ')}` : nodes.join(', ');
      return [
        (atMs / 1000).toFixed(3),
        `${(durationMs / 1000).toFixed(3)} s`,
        kind,
        where,
        amount === 0 ? '' : String(amount),
      ];
    }),
  };
}

/** Most violations of one run to show. */
const SHOWN_COUNT = 10;

/** The text that the command prints about one run. */
export function formatSimCluster(
  { scenario, result, wallS }: SimClusterRun,
  { withLog }: { readonly withLog: boolean },
): string {
  const { nodes, workload, faults } = scenario;
  const { counts, hash, events, virtualMs, violationsCount, violations, recovery, log } = result;
  const { local, remote, disk, object } = counts.hits;
  const read = local + remote + disk + object;
  const objects = object === 0 ? '' : `, ${formatShare(object, read)} object store`;
  const calls = Object.entries(counts.calls).map(([kind, count]) => `${formatCount(count)} ${kind}`);
  const pairs: [string, string][] = [
    ['scenario', `seed ${scenario.seed}, ${nodes} nodes, ${workload.kind}, ${faults.length} faults`],
    [
      'time',
      `${(virtualMs / 1000).toFixed(3)} virtual seconds, ${formatCount(events)} events in ${wallS.toFixed(2)} s`,
    ],
    ['hash', hash],
    ['calls', calls.join(', ')],
    [
      'reads',
      `${formatCount(counts.readsChecked)} checked; ${formatShare(local, read)} local, ${formatShare(remote, read)} remote, ${formatShare(disk, read)} disk${objects}; ${formatCount(counts.misses)} misses`,
    ],
  ];
  if (result.distances !== null) {
    const { pages, keys } = result.distances;
    const leaving = ({ host, zone, other }: typeof pages): string => formatShare(other, host + zone + other);
    pairs.push(['leave their zone', `${leaving(pages)} of remote reads, ${leaving(keys)} of directory lookups`]);
  }
  pairs.push(...requestPairs(counts));
  if (recovery !== null) {
    const shown = (time: number | null) => (time === null ? 'not' : `after ${(time / 1000).toFixed(3)} s`);
    pairs.push([
      'recovery',
      `members known ${shown(recovery.membersMs)}, ${recovery.pages} pages found everywhere ${shown(recovery.foundMs)}`,
    ]);
  }
  pairs.push(['violations', String(violationsCount)]);
  const parts = [formatPairs(pairs), formatTable(trafficRows(result))];
  if (violations.length > 0) parts.push(formatViolations(violations, SHOWN_COUNT));
  for (const [key, story] of withLog ? Object.entries(result.stories) : [])
    parts.push(`${key}\n  ${story.join('\n  ')}`);
  if (withLog) parts.push(log.join('\n'));
  return parts.join('\n\n');
}

/** What requests found, how long they waited for it, and what was brought back for them. */
function requestPairs({ requests, prefetched }: ScenarioResult['counts']): [string, string][] {
  const { count, asked, found, local, waitMs } = requests;
  if (count === 0) return [];
  const pairs: [string, string][] = [
    ['requests', `${formatCount(count)}, prefix hit rate ${(asked === 0 ? 0 : found / asked).toFixed(4)}`],
  ];
  if (waitMs !== null) {
    const [mean, p50, p99] = [waitMs.mean, waitMs.p50, waitMs.p99].map((ms) => `${ms.toFixed(0)} ms`);
    pairs.push(['found pages', `${formatShare(local, found)} in the pool of the node when asked for`]);
    pairs.push(['waiting for them', `p50 ${p50}, p99 ${p99}, mean ${mean}`]);
  }
  const { brought, used, wasted } = prefetched;
  if (brought === 0) return pairs;
  const left = formatShare(brought - used - wasted, brought);
  const shares = `${formatShare(used, brought)} used, ${formatShare(wasted, brought)} wasted, ${left} not read yet`;
  return [...pairs, ['brought back', `${formatCount(brought)} pages; ${shares}`]];
}

/** The first violations, each with its virtual time. */
export function formatViolations(violations: readonly Violation[], maxCount: number): string {
  return violations
    .slice(0, maxCount)
    .map(
      ({ kind, rule, atMs, node, detail }) =>
        `  ${(atMs / 1000).toFixed(6)}s node ${node} ${kind} ${rule}: ${detail.split('\n')[0]}`,
    )
    .join('\n');
}

/** Properties of a random scenario that were given instead of drawn. */
interface GivenOfChance {
  readonly nodes?: number;
  readonly duration?: number;
  readonly faults: readonly string[];
}

/** The given properties as command-line words. */
export function wordsOf({ nodes, duration, faults }: GivenOfChance): string[] {
  return [
    ...(nodes === undefined ? [] : ['--nodes', `${nodes}`]),
    ...(duration === undefined ? [] : ['--duration', `${duration}`]),
    ...(faults.length === 0 ? [] : ['--faults', faults.join(',')]),
  ];
}

/** A line about a failed seed, with the command that replays it. */
export function seedLine(
  seed: number,
  { violationsCount, hash }: Pick<ScenarioResult, 'violationsCount' | 'hash'>,
  given: GivenOfChance,
): string {
  const command = ['meshcache sim cluster --random --seed', seed, ...wordsOf(given)].join(' ');
  return `seed ${seed}: ${violationsCount} violations, hash ${hash}: ${command}`;
}

function trafficRows({ traffic }: ScenarioResult): Record<string, string | number>[] {
  const hosts = new Map<string, Record<string, string | number>>();
  for (const { host, plane, messages, bytes } of traffic) {
    const row = hosts.get(host) ?? { host };
    row[`${plane} messages`] = messages;
    row[`${plane} sent`] = formatSize(bytes);
    hosts.set(host, row);
  }
  return [...hosts.values()];
}
