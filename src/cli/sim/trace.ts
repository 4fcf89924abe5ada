import { Command, InvalidArgumentError, Option } from 'commander';
import { POOL_MAX_BYTES, READ_REPORT_DELAY_MS } from '../../base/limits.js';
import { formatSize } from '../../base/sizes.js';
import { type CommandContext, printResult } from '../../command/context.js';
import { wrongUsage } from '../../command/failure.js';
import {
  type DiskSize,
  decimalNumber,
  jsonOption,
  listOf,
  pageBytes,
  poolBytes,
  wholeNumber,
} from '../../command/options.js';
import { formatCount, formatTable } from '../../command/table.js';
import {
  type EvictionPolicy,
  PLACEMENT_POLICIES,
  PLACEMENT_ROUTINGS,
  type PlacementRouting,
} from '../../core/index.js';
import { reportPage } from '../../sim/report/page.js';
import { checkWritable, writePage } from './report-file.js';
import { simTraceReport } from './trace-report.js';
import { runSimTrace, type SimTraceOptions, type SimTraceResult, shapesOf } from './trace-run.js';

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
  meshcache sim trace trace.jsonl --pool 16gb,64gb --page-bytes 4mb --nodes 8 --report-delay-ms 5000

Nothing is started: requests go one after the other to pools that hold no bytes, by the code of real nodes.
Beside the runs stand two bounds: a cache that knows the future, and one with room for everything.`;

export function simTraceCommand(context: CommandContext): Command {
  return new Command('trace')
    .description(
      'predict the hit rates of a Mooncake-format trace for all combinations of nodes, pools, policies and routings',
    )
    .argument('<trace>', 'file of JSON lines: timestamp, input_length, output_length, hash_ids')
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
    .option('--page-bytes <size>', 'bytes of a page; one page for each hash id', pageBytes, 64 * 2 ** 10)
    .addOption(
      new Option('--report-delay-ms <ms>', 'delay until owners hear of reads by other nodes; or never')
        .argParser(reportDelay)
        .default(READ_REPORT_DELAY_MS),
    )
    .option(
      '--quarantine-ms <ms>',
      'time of the trace before an evicted range is used again',
      decimalNumber(0, 3_600_000, 'milliseconds'),
      0,
    )
    .option('--ends-told <share>', 'part of the ends of conversations that callers report: 0 to 1', shareOfAll, 0)
    .option('--interval-s <seconds>', 'seconds of the trace for each point of the charts', seconds, 60)
    .option('--requests <count>', "number of requests from the trace's start (default: all)", wholeNumber(1, 1e9))
    .option('--html <file>', 'also write the result as one HTML page')
    .addOption(jsonOption())
    .addHelpText('after', EXAMPLES)
    .action(async (trace: string, options: CommandOptions) => {
      checkShapes(options);
      if (options.html !== undefined) await checkWritable(options.html);
      const result = await runSimTrace(trace, options, context);
      if (options.html !== undefined) await writePage(options.html, reportPage(simTraceReport(result)));
      printResult(context, result, { json: options.json, asText: formatSimTrace });
      if (options.html !== undefined) context.tell(`report: ${options.html}`);
    });
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
  return `${result.trace}: ${asked}, ${unique}\n\n${formatTable(rows)}\n\n${bound}`;
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

function reportDelay(text: string): number {
  return text === 'never' ? Number.POSITIVE_INFINITY : decimalNumber(0, 3_600_000, 'milliseconds, or never')(text);
}

function shareOfAll(text: string): number {
  return decimalNumber(0, 1, 'of them all')(text);
}

function seconds(text: string): number {
  const value = decimalNumber(0, 86_400, 'seconds')(text);
  if (value < 1) throw new InvalidArgumentError('Allowed is 1 to 86400 seconds.');
  return value;
}

/** Checks that the options make sense together. */
function checkShapes(options: SimTraceOptions): void {
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
