import { formatSize } from '../../base/sizes.js';
import { formatCount, formatShare } from '../../command/table.js';
import type { BarChart, LineChart, LineSeries, Report, ReportHighlight, ReportTable } from '../../sim/report/report.js';
import type { SimTraceResult, SimTraceRun } from './trace-run.js';

/** Most clusters for which charts over time are drawn. With more there are the table and the JSON. */
const TIME_CHARTS_MAX_COUNT = 12;
const BARS_MAX_COUNT = 60;

/** The page that `--html` writes. */
export function simTraceReport(result: SimTraceResult): Report {
  const nodes = unique(result.runs.map((run) => run.nodes));
  const pools = unique(result.runs.map((run) => run.pool_pages));
  const times = timeCharts(result, { nodes, pools });
  const left = nodes.length * pools.length - times.length;
  return {
    title: `Trace ${result.trace} on ${nodes.join(', ')} ${nodes.length === 1 && nodes[0] === 1 ? 'node' : 'nodes'}`,
    summary:
      `${formatCount(result.requests)} requests asked for ${formatCount(result.pages_asked)} pages. The hit rate is the share of these that came ` +
      'before the first miss of their request, from the pool of the node that served it or from another node’s.',
    highlights: highlights(result),
    sections: [
      {
        title: 'Hit rate by pool size',
        note: 'Each node has a pool of so many pages. The bounds are those of one cache with the room of all nodes together.',
        blocks: pools.length > 1 ? nodes.map((count) => poolChart(result, count)) : [],
      },
      {
        title: 'Where pages were found',
        note: 'Shares of all pages asked for.',
        blocks: nodes.map((count) => sources(result, count)),
      },
      {
        title: 'Hit rate over the trace’s time',
        note: `One point for ${formatCount(result.interval_s)} seconds.${left > 0 ? ` ${left} further charts are left out; the JSON has their values.` : ''}`,
        blocks: times,
      },
      { title: 'All simulated clusters', blocks: [runsTable(result)] },
    ].filter(({ blocks }) => blocks.length > 0),
    parameters: [
      { name: 'Trace', value: result.trace },
      { name: 'Page', value: formatSize(result.page_bytes) },
      {
        name: 'Owners hear of remote reads',
        value: result.report_delay_ms === null ? 'never' : `after ${result.report_delay_ms} ms`,
      },
      { name: 'Ends of conversations told', value: `${Math.round(100 * result.ends_told)} %` },
      { name: 'Quarantine of evicted ranges', value: `${result.quarantine_ms} ms` },
      { name: 'Pages that routing by prefix goes by', value: String(result.routing_pages) },
    ],
  };
}

function highlights(result: SimTraceResult): ReportHighlight[] {
  const best = result.runs.reduce((a, b) => (b.prefix_hit_rate > a.prefix_hit_rate ? b : a));
  const found: ReportHighlight[] = [
    {
      label: 'Best hit rate',
      value: best.prefix_hit_rate.toFixed(3),
      note: `${nameOf(best)}, ${nodesOf(best.nodes)} of ${formatCount(best.pool_pages)} pages`,
    },
    {
      label: 'Limit of any cache',
      value: result.unbounded_hit_rate.toFixed(3),
      note: 'with room for every page: the rest was never asked for before',
    },
    {
      label: 'Different pages',
      value: formatCount(result.unique_pages),
      note: `${formatSize(result.unique_pages * result.page_bytes)} at ${formatSize(result.page_bytes)} a page`,
    },
  ];
  const busiest = result.runs.reduce((a, b) => (b.moved_bytes > a.moved_bytes ? b : a));
  if (busiest.moved_bytes > 0) {
    found.push({
      label: 'Most moved between nodes',
      value: formatSize(busiest.moved_bytes),
      note: `${nameOf(busiest)}, ${nodesOf(busiest.nodes)} of ${formatCount(busiest.pool_pages)} pages`,
    });
  }
  return found;
}

function poolChart(result: SimTraceResult, nodes: number): LineChart {
  const runs = result.runs.filter((run) => run.nodes === nodes);
  const bounds = result.bounds.filter((bound) => bound.nodes === nodes);
  const pools = unique(bounds.map((bound) => bound.pool_pages)).sort((a, b) => a - b);
  const series: LineSeries[] = [...groups(runs, nameOf)].map(([name, some]) => ({
    name,
    points: some.map((run): [number, number] => [run.pool_pages, run.prefix_hit_rate]).sort(([a], [b]) => a - b),
  }));
  const clairvoyant = bounds.map((bound): [number, number] => [bound.pool_pages, bound.clairvoyant_hit_rate]);
  return {
    kind: 'lines',
    title: nodesOf(nodes),
    x: { label: 'Pages in the pool of each node', format: formatCount, scale: 'log', ticks: pools },
    y: { label: 'Hit rate', format: rate },
    series: [
      ...series,
      { name: 'knows the future', isBound: true, points: clairvoyant.sort(([a], [b]) => a - b) },
      { name: 'room for all', isBound: true, points: pools.map((pages) => [pages, result.unbounded_hit_rate]) },
    ],
  };
}

function timeCharts(
  result: SimTraceResult,
  { nodes, pools }: { readonly nodes: readonly number[]; readonly pools: readonly number[] },
): LineChart[] {
  const charts = nodes.flatMap((count) =>
    pools.map((pages): LineChart => {
      const runs = result.runs.filter((run) => run.nodes === count && run.pool_pages === pages);
      return {
        kind: 'lines',
        title: `${nodesOf(count)} of ${formatCount(pages)} pages`,
        x: { label: 'Minutes', format: (minutes) => String(Number(minutes.toFixed(2))) },
        y: { label: 'Hit rate', format: rate },
        series: runs.map((run) => ({ name: nameOf(run), points: hitRates(run) })),
      };
    }),
  );
  return charts.slice(0, TIME_CHARTS_MAX_COUNT);
}

function hitRates({ series }: SimTraceRun): [number, number | null][] {
  return series.start_s.map((startS, i) => {
    const asked = series.pages_asked[i] as number;
    return [startS / 60, asked === 0 ? null : (series.prefix_hits[i] as number) / asked];
  });
}

function sources(result: SimTraceResult, nodes: number): BarChart {
  const asked = Math.max(1, result.pages_asked);
  const runs = result.runs.filter((run) => run.nodes === nodes);
  const shown = runs.slice(0, BARS_MAX_COUNT);
  return {
    kind: 'bars',
    title: `${nodesOf(nodes)}, by pages of a pool`,
    ...(shown.length < runs.length ? { note: `The first ${shown.length} of ${runs.length} clusters.` } : {}),
    parts: ['own pool', 'another node’s pool', 'not found'],
    isLastRest: true,
    bars: shown.map((run) => {
      const { local, remote } = run.hits;
      const name = `${formatCount(run.pool_pages)}, ${nameOf(run)}`;
      return { name, values: [local / asked, remote / asked, (asked - local - remote) / asked] };
    }),
    format: (value) => formatShare(value, 1),
  };
}

function runsTable(result: SimTraceResult): ReportTable {
  const numeric = (name: string) => ({ name, isNumeric: true });
  return {
    kind: 'table',
    title: 'Counts',
    note: 'Pages where no unit is named. Busiest: requests of the node that had most, as a multiple of the mean.',
    columns: [
      { name: 'Policy' },
      { name: 'Routing' },
      ...['Nodes', 'Pool', 'Hit rate', 'Knows the future', 'Local hits', 'Remote hits', 'Set', 'Duplicates'].map(
        numeric,
      ),
      ...['Evictions', 'Moved', 'Busiest', 'Seconds'].map(numeric),
    ],
    rows: result.runs.map((run) => {
      const bound = result.bounds.find(({ nodes, pool_pages }) => nodes === run.nodes && pool_pages === run.pool_pages);
      const counts = [run.hits.local, run.hits.remote, run.pages_set, run.duplicates, run.evictions].map(formatCount);
      return [
        run.policy,
        run.routing ?? '–',
        formatCount(run.nodes),
        formatCount(run.pool_pages),
        run.prefix_hit_rate.toFixed(4),
        bound?.clairvoyant_hit_rate.toFixed(4) ?? '',
        ...counts,
        formatSize(run.moved_bytes),
        run.busiest_node.toFixed(2),
        run.wall_s.toFixed(2),
      ];
    }),
  };
}

/** The properties that distinguish clusters of the same size. */
function nameOf({ policy, routing }: SimTraceRun): string {
  return routing === null ? policy : `${policy}, ${routing}`;
}

function nodesOf(count: number): string {
  return count === 1 ? '1 node' : `${formatCount(count)} nodes`;
}

function groups<T>(values: readonly T[], nameOfOne: (value: T) => string): Map<string, T[]> {
  const found = new Map<string, T[]>();
  for (const value of values) {
    const name = nameOfOne(value);
    found.set(name, [...(found.get(name) ?? []), value]);
  }
  return found;
}

function unique(values: readonly number[]): number[] {
  return [...new Set(values)];
}

function rate(value: number): string {
  return value.toFixed(3).replace(/0$/, '');
}
