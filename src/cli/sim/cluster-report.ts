import { formatSize } from '../../base/sizes.js';
import { formatCount, formatShare } from '../../command/table.js';
import type { BarChart, ChartMark, LineChart, Report, ReportHighlight, ReportTable } from '../../sim/report/report.js';
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
  const { local, remote, disk } = counts.hits;
  const asked = local + remote + disk + counts.misses;
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
    const all = sample.local + sample.remote + sample.disk + sample.misses;
    return all === 0 ? null : part(sample) / all;
  };
  return [
    chart('Where pages were found', 'Share of reads', {
      'own pool': share(({ local }) => local),
      'another node’s pool': share(({ remote }) => remote),
      disk: share(({ disk }) => disk),
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
