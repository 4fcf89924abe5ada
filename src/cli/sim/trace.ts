import { Command, InvalidArgumentError, Option } from 'commander';
import { POOL_MAX_BYTES } from '../../base/limits.js';
import { formatSize } from '../../base/sizes.js';
import { type CommandContext, checkWritable, printResult, writePage, wrongUsage } from '../../command/context.js';
import {
  checkNeeds,
  type DiskSize,
  decimalNumber,
  jsonOption,
  listOf,
  pageBytes,
  poolBytes,
  wholeNumber,
} from '../../command/options.js';
import { formatCount, formatShare, formatTable } from '../../command/table.js';
import {
  type EvictionPolicy,
  PLACEMENT_DISK_WRITES,
  PLACEMENT_POLICIES,
  PLACEMENT_ROUTINGS,
  type PlacementRouting,
} from '../../core/index.js';
import { reportPage } from '../../sim/report/page.js';
import type { BarChart, LineChart, LineSeries, Report, ReportHighlight, ReportTable } from '../../sim/report/report.js';
import { addAgentOptions, reportDelayOption, TRACE_ARGUMENT, withAgentFlags } from '../load/trace-requests.js';
import { runSimTrace, type SimTraceOptions, type SimTraceResult, type SimTraceRun, shapesOf } from './trace-run.js';
import { formatSessions, sessionsTables } from './trace-sessions.js';

const NODES_MAX_COUNT = 1024;
const CLUSTERS_MAX_COUNT = 1000;

interface CommandOptions extends SimTraceOptions {
  readonly json: boolean;
  readonly html?: string;
}

const EXAMPLES = `
Examples:
  meshcache sim trace trace.jsonl
  meshcache sim trace trace.jsonl --pool 1000,5859,10000,30000 --policy lru --json
  meshcache sim trace trace.jsonl --nodes 1,3,16 --routing round-robin,prefix --html report.html
  meshcache sim trace trace.jsonl --policy yield --ends-told 0.9
  meshcache sim trace agents.jsonl --users 32 --block 512 --nodes 3 --routing session --returns-told 1
  meshcache sim trace trace.jsonl --pool 16gb,64gb --page-bytes 4mb --nodes 8 --report-delay-ms 5000

Recorded agent sessions are known by their first line, which has "conversation". Users play them in a closed loop: a
request begins after the last answer and the think time.
Nothing is started: requests go one after the other to pools that hold no bytes, by the code of real nodes.
Beside the runs stand two bounds: a cache that knows the future, and one with room for everything.`;

export function simTraceCommand(context: CommandContext): Command {
  const command = new Command('trace')
    .description('predict the hit rates of a trace for all combinations of nodes, pools, policies and routings')
    .argument('<trace>', TRACE_ARGUMENT)
    .addOption(
      new Option('--pool <sizes>', 'pools of each node, comma-separated: 10000 (pages) or 4gb')
        .argParser(listOf(poolOfNode))
        .default(
          [1000, 10_000, 30_000].map((pages) => ({ kind: 'pages', pages })),
          '1000,10000,30000',
        ),
    )
    .addOption(
      new Option('--nodes <counts>', 'numbers of nodes, comma-separated')
        .argParser(listOf(wholeNumber(1, NODES_MAX_COUNT)))
        .default([1], '1'),
    )
    .addOption(
      new Option('--policy <names>', `eviction policies: ${PLACEMENT_POLICIES.join(', ')}`)
        .argParser(listOf(oneOf(PLACEMENT_POLICIES)))
        .default(PLACEMENT_POLICIES as EvictionPolicy[], 'all'),
    )
    .addOption(
      new Option('--routing <names>', `how requests find a node: ${PLACEMENT_ROUTINGS.join(', ')}`)
        .argParser(listOf(oneOf(PLACEMENT_ROUTINGS)))
        .default(['round-robin'] as PlacementRouting[], 'round-robin'),
    )
    .option('--routing-pages <count>', 'number of first pages that decide routing by prefix', wholeNumber(1, 1e6), 2)
    .option('--disk-pages <count>', 'pages in the disk tier of a single node (default: no disk)', wholeNumber(1, 1e9))
    .addOption(
      new Option('--disk-write <ways>', `pages that the disk tier writes: ${PLACEMENT_DISK_WRITES.join(', ')}`)
        .argParser(listOf(oneOf(PLACEMENT_DISK_WRITES)))
        .default(PLACEMENT_DISK_WRITES, 'all'),
    )
    .option('--page-bytes <size>', 'bytes of a page; one page for each hash id', pageBytes, 64 * 2 ** 10)
    .addOption(reportDelayOption())
    .option(
      '--quarantine-ms <ms>',
      'time of the trace before an evicted range is used again',
      decimalNumber(0, 3_600_000, 'milliseconds'),
      0,
    )
    .option('--interval-s <seconds>', 'seconds of the trace for each point of the charts', seconds, 60)
    .option('--requests <count>', "number of requests from the trace's start (default: all)", wholeNumber(1, 1e9))
    .option('--html <file>', 'also write the result as one HTML page')
    .addOption(jsonOption())
    .addHelpText('after', EXAMPLES)
    .action(async (trace: string, given: CommandOptions) => {
      const options = withAgentFlags(given, command);
      checkNeeds(command, { toldWrong: ['returnsTold', 'overTold'], diskWrite: ['diskPages'] });
      checkShapes(options);
      if (options.html !== undefined) await checkWritable(options.html);
      const result = await runSimTrace(trace, options, context);
      printResult(context, result, { json: options.json, asText: formatSimTrace });
      if (options.html === undefined) return;
      await writePage(options.html, reportPage(simTraceReport(result)));
      context.tell(`report: ${options.html}`);
    });
  return addAgentOptions(addToldOptions(command));
}

/** Adds the options for what callers say of the time to come. */
function addToldOptions(command: Command): Command {
  return command
    .option('--ends-told <share>', 'part of the ends of conversations that callers report: 0 to 1', shareOfAll, 0)
    .option(
      '--returns-told <share>',
      'part of the requests of which callers tell when they are continued: 0 to 1',
      shareOfAll,
      0,
    )
    .option(
      '--over-told <share>',
      'part of the requests of which callers tell which pages are never asked for again: 0 to 1',
      shareOfAll,
      0,
    )
    .option('--told-wrong <share>', 'part of those that tell it wrongly: 0 to 1', shareOfAll, 0);
}

function formatSimTrace(result: SimTraceResult): string {
  const rows = result.bounds.flatMap(({ nodes, pool_pages, clairvoyant_hit_rate }) => {
    const runs = result.runs.filter((run) => run.nodes === nodes && run.pool_pages === pool_pages);
    const size = { nodes, 'pool pages': pool_pages };
    return [
      ...runs.map((run) => ({
        ...size,
        policy: run.policy,
        routing: run.routing ?? '-',
        'hit rate': run.prefix_hit_rate.toFixed(4),
        local: share(run.hits.local, result.pages_asked),
        remote: share(run.hits.remote, result.pages_asked),
        ...(run.disk_write === null ? {} : ofDisk(run, result)),
        evictions: run.evictions,
        moved: formatSize(run.moved_bytes),
        seconds: run.wall_s.toFixed(2),
      })),
      { ...size, policy: '(clairvoyant)', routing: '-', 'hit rate': clairvoyant_hit_rate.toFixed(4) },
    ];
  });
  const asked = `${formatCount(result.requests)} requests, ${formatCount(result.pages_asked)} pages asked for`;
  const unique = `${formatCount(result.unique_pages)} different ones of ${formatSize(result.page_bytes)}`;
  const bound = `With room for all of them the hit rate is ${result.unbounded_hit_rate.toFixed(4)}.`;
  return `${result.trace}: ${asked}, ${unique}\n\n${formatTable(rows)}\n\n${bound}${formatSessions(result.runs)}`;
}

function ofDisk(run: SimTraceRun, { pages_asked }: SimTraceResult): Readonly<Record<string, string | number>> {
  return {
    'disk write': run.disk_write ?? '-',
    disk: share(run.hits.disk, pages_asked),
    written: run.disk_pages_written,
  };
}

function share(part: number, whole: number): string {
  return (whole === 0 ? 0 : part / whole).toFixed(4);
}

function oneOf<T extends string>(allowed: readonly T[]): (text: string) => T {
  return (text) => {
    const found = allowed.find((name) => name === text);
    if (found === undefined) {
      throw new InvalidArgumentError(`Allowed are ${allowed.join(', ')}, or several of them, comma-separated.`);
    }
    return found;
  };
}

/** A pool size: `10000` and `10000p` are pages, `4gb` is bytes. */
function poolOfNode(text: string): DiskSize {
  const pages = /^(\d{1,12})p?$/.exec(text);
  if (pages !== null && Number(pages[1]) > 0) return { kind: 'pages', pages: Number(pages[1]) };
  if (pages === null) return { kind: 'bytes', bytes: poolBytes(text, ', or a number of pages such as 10000') };
  throw new InvalidArgumentError('Allowed is a number of pages from 1 on, or a size such as 4gb.');
}

function shareOfAll(text: string): number {
  return decimalNumber(0, 1, 'of them all')(text);
}

function seconds(text: string): number {
  const value = decimalNumber(0, 86_400, 'seconds')(text);
  if (value < 1) throw new InvalidArgumentError('Allowed is 1 to 86400 seconds.');
  return value;
}

/** Checks the number of clusters, and the pool size of each. */
function checkShapes(options: SimTraceOptions): void {
  if (options.diskPages !== undefined && options.nodes.some((count) => count > 1)) {
    throw wrongUsage('--disk-pages: only one node may have a disk tier: leave out --nodes');
  }
  const shapes = shapesOf(options);
  if (shapes.length > CLUSTERS_MAX_COUNT) {
    throw wrongUsage(`${shapes.length} clusters to simulate, ${CLUSTERS_MAX_COUNT} are allowed: give fewer values`);
  }
  for (const { pool_pages, pool_bytes } of shapes) {
    if (pool_pages < 1) {
      throw wrongUsage(`--pool: ${formatSize(pool_bytes)} have no room for a page of ${formatSize(options.pageBytes)}`);
    }
    if (pool_bytes > POOL_MAX_BYTES) {
      throw wrongUsage(`--pool: ${formatSize(pool_bytes)} of a node, ${formatSize(POOL_MAX_BYTES)} are allowed`);
    }
  }
}

/** Most charts over time. The table and the JSON have all clusters. */
const TIME_CHARTS_MAX_COUNT = 12;
const BARS_MAX_COUNT = 60;

/** The report that `--html` writes. */
function simTraceReport(result: SimTraceResult): Report {
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
      { title: 'By session', blocks: sessionsTables(result.runs) },
      { title: 'All simulated clusters', blocks: [runsTable(result)] },
    ].filter(({ blocks }) => blocks.length > 0),
    parameters: [
      { name: 'Trace', value: result.trace },
      { name: 'Page', value: formatSize(result.page_bytes) },
      {
        name: 'Owners hear of remote reads',
        value: result.report_delay_ms === null ? 'never' : `after ${result.report_delay_ms} ms`,
      },
      ...(result.disk_pages === 0 ? [] : [{ name: 'Disk tier', value: `${formatCount(result.disk_pages)} pages` }]),
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
    parts: ['own pool', 'another node’s pool', 'own disk', 'not found'],
    isLastRest: true,
    bars: shown.map((run) => {
      const { local, remote, disk } = run.hits;
      const name = `${formatCount(run.pool_pages)}, ${nameOf(run)}`;
      return { name, values: [local / asked, remote / asked, disk / asked, (asked - local - remote - disk) / asked] };
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
function nameOf({ policy, routing, disk_write }: SimTraceRun): string {
  return [policy, routing, disk_write].filter((part) => part !== null).join(', ');
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
