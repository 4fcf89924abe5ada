import { Command } from 'commander';
import { formatSize } from '../../base/sizes.js';
import { type CommandContext, CommandFailure, wrongUsage } from '../../command/context.js';
import { decimalNumber, jsonOption, pageBytes, wholeNumber } from '../../command/options.js';
import { formatCount } from '../../command/table.js';
import { type DiskSizes, diskSizeFor } from '../../disk/disk-store.js';
import { commandPoolBytes, ownMemory } from '../../system/memory-limit.js';
import type { KeptLoad } from '../cluster/agent-protocol.js';
import { Cluster, NodeFolders } from '../cluster/cluster.js';
import { type LoadResult, runLoad } from '../load/load.js';
import { formatLoadReport, type LoadReport, loadReport, printLoadReport } from '../load/load-report.js';
import { conversationWorkload, type TurnRequest, uniquePages } from '../load/workload.js';
import { metricsUrl } from '../settings/endpoints.js';
import { printEngineDemo, runEngineDemo } from './engines.js';

/** Share of the free memory that a demo may fill with pages. */
const MEMORY_SHARE = 0.75;
/**
 * Share of all pages that the pools hold with `--disk`; the disks have room for all pages twice. Few prompts are
 * popular, so even pools with an eighth of the pages would serve most reads from memory.
 */
const POOLED_SHARE = 1 / 20;
/** In smaller pools, reads wait until pages of other reads are released. */
const POOLED_MIN_PAGES = 24;
const DISK_COPIES = 2;
/** Most turns that a kept cluster repeats. */
const KEPT_TURNS_MAX_COUNT = 300;
/** Most bytes that each node of a kept cluster reads per second. */
const KEPT_BYTES_PER_S = 32 * 2 ** 20;
/** Shortest pause of a kept node after a turn. */
const KEPT_PAUSE_MIN_MS = 1_000;

interface DemoOptions {
  readonly nodes: number;
  readonly conversations: number;
  /** No turn is started after this many seconds. */
  readonly seconds: number;
  readonly pageBytes: number;
  readonly seed: number;
  readonly keep: boolean;
  /** Whether each node has a small pool with a disk tier behind it. */
  readonly disk: boolean;
}

export interface DemoResult extends LoadReport {
  readonly seed: number;
  readonly conversations: number;
  /** Dashboards and processes of a cluster that keeps running. */
  readonly kept?: {
    readonly discovery_addr: string;
    readonly pids: readonly number[];
    /** URLs of the nodes' dashboards. */
    readonly dashboards: readonly string[];
    /** Seconds that each node pauses after each turn of the continuing load. */
    readonly pause_s: number;
    readonly disk_path?: string;
  };
}

/** Plays the conversations with engines in Python, which need host memory in addition to the pools. */
async function playEngines(options: DemoOptions, json: boolean, context: CommandContext): Promise<void> {
  for (const name of ['keep', 'disk'] as const) {
    if (options[name]) throw wrongUsage(`--${name} cannot be used with --engines; leave one of them out`);
  }
  const requests = conversationWorkload(options);
  checkMemory((uniquePages(requests) + options.nodes * longestTurn(requests)) * options.pageBytes);
  printEngineDemo(context, await runEngineDemo(requests, options, context), json);
}

/**
 * Runs conversations against a cluster of processes on this machine, and checks every byte of every page that is read.
 */
async function runDemo(options: DemoOptions, context: CommandContext): Promise<DemoResult> {
  const requests = conversationWorkload(options);
  checkMemory(uniquePages(requests) * options.pageBytes);
  const progress = context.progress();
  const tiers = options.disk ? tierSizes(requests, options) : undefined;
  const folders = tiers && (await NodeFolders.create(undefined, tiers.disk.maxBytes * options.nodes));
  let cluster: Cluster | undefined;
  let isKept = false;
  try {
    progress.update(`starting ${options.nodes} nodes`);
    cluster = await Cluster.start({
      nodes: options.nodes,
      pageBytes: options.pageBytes,
      components: 2,
      config: { global_segment_size: tiers?.poolBytes ?? commandPoolBytes() },
      nodeConfig: (index) => (tiers && folders?.config(index, tiers.disk)) ?? {},
      mayBeKept: options.keep,
      isLogShown: process.env.MESHCACHE_LOG !== undefined,
      signal: context.signal,
    });
    const dashboards = cluster.agents.flatMap(({ metricsEndpoint }) => metricsUrl(metricsEndpoint) ?? []);
    if (dashboards.length > 0) context.tell(`Dashboards while it runs: ${dashboards.join(' ')}`);
    const load: LoadResult = await runLoad(cluster.agents, requests, {
      concurrency: options.nodes,
      clock: context.clock,
      maxMs: options.seconds * 1000,
      signal: context.signal,
      onProgress: (counts) => {
        const read = formatSize(counts.readBytes);
        const done = `${formatCount(counts.requests)} of ${formatCount(requests.length)} turns`;
        progress.update(`${done}, ${read} read and checked, ${counts.wrongBytes} bytes wrong`);
      },
    });
    const statuses = await Promise.all(cluster.agents.map((agent) => agent.status()));
    const report = loadReport(load, { statuses, pageBytes: options.pageBytes });
    const result = { ...report, seed: options.seed, conversations: options.conversations };
    if (!options.keep) return result;
    const keptLoad = gentleLoad(requests, options.pageBytes);
    await cluster.keep(keptLoad);
    isKept = true;
    const pids = cluster.agents.map((agent) => agent.pid);
    const kept = {
      discovery_addr: cluster.discoveryAddr,
      pids,
      dashboards,
      pause_s: keptLoad.pauseMs / 1000,
      ...(folders && { disk_path: folders.path }),
    };
    return { ...result, kept };
  } finally {
    progress.end();
    await cluster?.close();
    if (!isKept) await folders?.remove();
  }
}

export function demoCommand(context: CommandContext): Command {
  return new Command('demo')
    .description('run a cluster of real processes on this machine with a workload of its own, and check every byte')
    .option('--nodes <count>', 'node processes', wholeNumber(1, 64), 3)
    .option('--conversations <count>', 'multi-turn conversations', wholeNumber(1, 100_000), 60)
    .option('--seconds <s>', 'stop starting turns after this many seconds', decimalNumber(0, 86_400, 'seconds'), 40)
    .option('--page-bytes <size>', 'bytes of a page', pageBytes, 2 ** 20)
    .option('--seed <number>', 'seed of the workload', wholeNumber(0, 2 ** 32 - 1), 1)
    .option('--keep', 'leave the cluster running afterwards, with a gentle load', false)
    .option('--disk', 'use small pools, and a disk tier for each node in a temporary folder', false)
    .option('--engines', 'let engines in Python use the nodes as SGLang does; kill one node and start it again', false)
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache demo                         3 nodes, 1 MiB pages, less than a minute
  meshcache demo --nodes 5 --page-bytes 64kb
  meshcache demo --disk                  most pages come from disks
  meshcache demo --engines               needs python3, and neither SGLang nor torch
  meshcache demo --keep                  then: meshcache status --discovery-addr ...

On a terminal it says where the nodes' dashboards are. Ends with status 1 when a byte was wrong or, with --engines, when
something was raised in Python.`,
    )
    .action(async (options: DemoOptions & { json: boolean; engines: boolean }) => {
      if (options.engines) return playEngines(options, options.json, context);
      const result = await runDemo(options, context);
      printLoadReport(context, result, { json: options.json, asText: formatDemo });
    });
}

function formatDemo(result: DemoResult): string {
  const table = `${formatLoadReport(result)}\n`;
  if (result.kept === undefined) return table;
  const { discovery_addr, pids, dashboards, pause_s, disk_path } = result.kept;
  const leftover = disk_path === undefined ? '' : `  remove disks: rm -r ${disk_path}\n`;
  return `${table}
The cluster is still running: each node plays a turn, checks every byte, and rests for ${pause_s} s.
  look at it:   meshcache status --watch --discovery-addr ${discovery_addr}
  in a browser: ${dashboards.join(' ') || 'no dashboard is running'}
  join it:      meshcache node --discovery-addr ${discovery_addr}
  stop it:      kill ${pids.join(' ')}
${leftover}`;
}

/** The first turns, with a pause after each that keeps the load on the machine low. */
function gentleLoad(requests: readonly TurnRequest[], pageBytes: number): KeptLoad {
  const played = requests.slice(0, KEPT_TURNS_MAX_COUNT);
  const turnBytes = longestTurn(played) * pageBytes;
  const pauseMs = Math.max(KEPT_PAUSE_MIN_MS, Math.round((1000 * turnBytes) / KEPT_BYTES_PER_S));
  return { requests: played.map(({ keys }) => keys), pauseMs };
}

/** Pool sizes far below the total of the workload's pages, and disk sizes that hold all of them. */
function tierSizes(
  requests: readonly TurnRequest[],
  { nodes, pageBytes }: DemoOptions,
): { readonly poolBytes: number; readonly disk: DiskSizes } {
  const pages = uniquePages(requests) / nodes;
  return {
    poolBytes: Math.ceil(Math.max(POOLED_MIN_PAGES, pages * POOLED_SHARE)) * pageBytes,
    disk: diskSizeFor(Math.ceil(pages * DISK_COPIES), pageBytes),
  };
}

/** The number of pages in the longest prompt. */
function longestTurn(requests: readonly TurnRequest[]): number {
  return requests.reduce((most, { keys }) => Math.max(most, keys.length), 0);
}

function checkMemory(neededBytes: number): void {
  const { freeBytes } = ownMemory();
  if (neededBytes <= freeBytes * MEMORY_SHARE) return;
  throw new CommandFailure(
    `the workload's pages need ${formatSize(neededBytes)} and ${formatSize(freeBytes)} of memory are free: ` +
      'choose fewer --conversations or a smaller --page-bytes',
  );
}
