import { readFile } from 'node:fs/promises';
import { Command, InvalidArgumentError, Option } from 'commander';
import {
  type CommandContext,
  CommandFailure,
  checkWritable,
  printResult,
  untilInterrupted,
  writePage,
  wrongUsage,
} from '../../command/context.js';
import { checkNeeds, decimalNumber, jsonOption, keyValue, pageBytes, wholeNumber } from '../../command/options.js';
import { PLACEMENT_ROUTINGS, type PlacementRouting } from '../../core/index.js';
import { reportPage } from '../../sim/report/page.js';
import { runScenario, type ScenarioResult } from '../../sim/run/run-scenario.js';
import { shrink } from '../../sim/run/shrink.js';
import { FAULT_KINDS, type FaultKind } from '../../sim/scenario/faults.js';
import { randomScenario, withRandomFaults } from '../../sim/scenario/random-scenario.js';
import { type Scenario, scenarioOf } from '../../sim/scenario/scenario.js';
import { CONVERSATIONS, MIXED, TRACE, type Workload } from '../../sim/scenario/workload.js';
import { readTrace } from '../load/trace.js';
import { plannedSessions, refuseAgentFlags, withAgentFlags } from '../load/trace-requests.js';
import { formatSimCluster, formatViolations, seedLine, simClusterReport, wordsOf } from './cluster-report.js';
import {
  addSessionsOptions,
  SESSIONS_NEEDS,
  SESSIONS_OPTIONS,
  type SimSessionsOptions,
  sessionsMs,
  sessionsWorkload,
  storageShape,
} from './cluster-sessions.js';
import { outputOfSelf } from './own-process.js';

interface SimClusterOptions extends SimSessionsOptions {
  readonly seed: number;
  readonly seeds?: number;
  readonly jobs: number;
  readonly random?: boolean;
  readonly scenario?: string;
  readonly nodes?: number;
  readonly ranks: number;
  readonly zones?: number;
  readonly duration?: number;
  readonly workload: 'mixed' | 'conversations' | 'none';
  readonly trace?: string;
  readonly requests?: number;
  readonly speed?: number;
  readonly routing: PlacementRouting;
  readonly poolPages: number;
  readonly pageBytes: number;
  readonly diskPages?: number;
  readonly latencyMs?: number;
  readonly option: Readonly<Record<string, string>>;
  readonly faults: readonly FaultKind[];
  readonly until?: number;
  readonly shrink?: boolean;
  readonly html?: string;
  readonly json: boolean;
}

/** The result of one run, as `--json` prints it. */
export interface SimClusterRun {
  readonly scenario: Scenario;
  readonly result: ScenarioResult;
  readonly wallS: number;
}

interface FailedSeed extends Pick<ScenarioResult, 'hash' | 'violations'> {
  readonly seed: number;
  /** Number of all violations, including those that `violations` leaves out. */
  readonly count: number;
}

/** Results of some seeds, which are part of what `--seeds` with `--json` prints. */
interface SeedsResult {
  readonly seeds: number;
  readonly events: number;
  readonly virtual_s: number;
  readonly failed: readonly FailedSeed[];
}

/**
 * Most seeds that one process takes at once: enough that its start costs little, few enough that all processes end at
 * about the same time.
 */
const JOB_MAX_SEEDS = 25;
const JOBS_MAX_COUNT = 256;
const ALL_KINDS = Object.keys(FAULT_KINDS) as FaultKind[];
const NODES_MAX_COUNT = 4096;
/** Options that shape a scenario; a random one does not take them. */
const SHAPING: readonly (keyof SimClusterOptions)[] = [
  'ranks',
  'zones',
  'workload',
  'trace',
  'requests',
  'speed',
  'routing',
  'poolPages',
  'pageBytes',
  'diskPages',
  'latencyMs',
  'option',
  ...SESSIONS_OPTIONS,
];
const NEEDS = { ...SESSIONS_NEEDS, requests: ['trace'], speed: ['trace'] };
const LOG_MAX_LINES = 200;

const EXAMPLES = `
Examples:
  meshcache sim cluster --nodes 3 --duration 60 --faults all --seed 7
  meshcache sim cluster --seeds 300 --jobs 2
  meshcache sim cluster --random --seed 210 --shrink --json > small.json
  meshcache sim cluster --scenario small.json --until 12.5
  meshcache sim cluster --nodes 16 --trace trace.jsonl --pool-pages 2000 --html report.html
  meshcache sim cluster --trace agents.jsonl --users 16 --pool-pages 2000 --disk-pages 2500 --disk-rate 6gb --told prefetch

Nodes are those of real clusters; clocks, network, disks and hosts are simulated. The hash that is printed is the same for the same
scenario on every machine. The exit status is 1 when a guarantee of docs/guarantees.md was broken.`;

export function simClusterCommand(context: CommandContext): Command {
  const command = new Command('cluster')
    .description('run whole nodes on virtual time, with faults, and check every read')
    .option('--seed <number>', 'the same seed makes the same run', wholeNumber(0, 2 ** 32 - 1), 1)
    .addOption(
      new Option('--seeds <count>', 'run random scenarios for that many seeds, from --seed on')
        .argParser(wholeNumber(1, 1e9))
        .conflicts([...SHAPING, 'random', 'scenario', 'until', 'shrink', 'html']),
    )
    .option('--jobs <count>', 'processes that run the --seeds', wholeNumber(1, JOBS_MAX_COUNT), 1)
    .addOption(new Option('--random', 'run the random scenario of --seed').conflicts([...SHAPING, 'scenario']))
    .addOption(
      new Option('--scenario <file>', 'a scenario as JSON, as --json and --shrink print it').conflicts([
        ...SHAPING,
        'seed',
        'nodes',
        'duration',
        'faults',
      ]),
    )
    .option('--nodes <count>', 'nodes (default: 3)', wholeNumber(1, NODES_MAX_COUNT))
    .option('--ranks <count>', 'nodes on each host', wholeNumber(1, 64), 1)
    .option('--zones <count>', 'zones that the hosts are in (default: none)', wholeNumber(1, NODES_MAX_COUNT))
    .option('--duration <seconds>', 'virtual time of the workload (default: 30)', decimalNumber(0.1, 1e6, 'seconds'))
    .addOption(
      new Option('--workload <kind>', 'what the nodes do').choices(['mixed', 'conversations', 'none']).default('mixed'),
    )
    .option('--trace <file>', 'use the requests of a Mooncake-format trace, or recorded agent sessions, instead')
    .option('--requests <count>', 'with --trace: number of requests (default: all)', wholeNumber(1, 1e9))
    .option('--speed <factor>', 'with --trace: factor of its speed (default: 1)', decimalNumber(0.001, 1e6, ''))
    .addOption(
      new Option('--routing <name>', 'how requests find a node').choices([...PLACEMENT_ROUTINGS]).default('session'),
    )
    .option('--pool-pages <count>', 'pages of each pool', wholeNumber(1, 1e7), 64)
    .option('--page-bytes <size>', 'bytes of a page', pageBytes, 1024)
    .option('--disk-pages <count>', 'pages of each disk tier (default: none)', wholeNumber(1, 1e7))
    .option('--latency-ms <ms>', 'latency between hosts (default: 0.05)', decimalNumber(0, 10_000, 'milliseconds'))
    .option('--option <key=value>', 'a configuration key for every node; may be repeated', keyValue, {})
    .addOption(
      new Option('--faults <kinds>', `all, none, or some of: ${ALL_KINDS.join(', ')}`)
        .argParser(faultKinds)
        .default([], 'none'),
    )
    .option(
      '--until <seconds>',
      'stop at this virtual time, and print the log until then',
      decimalNumber(0, 1e6, 'seconds'),
    )
    .option('--shrink', 'make a failing scenario smaller while it fails alike')
    .option('--html <file>', 'also write the result as one HTML page')
    .addOption(jsonOption())
    .addHelpText('after', EXAMPLES)
    .action(async (given: SimClusterOptions) => {
      checkNeeds(command, NEEDS);
      await untilInterrupted(runAsAsked(withAgentFlags(given, command), context), context);
    });
  return addSessionsOptions(command);
}

async function runAsAsked(options: SimClusterOptions, context: CommandContext): Promise<void> {
  const { seeds, html } = options;
  if (html !== undefined) await checkWritable(html);
  return seeds === undefined ? runOne(options, context) : runSeeds(options, seeds, context);
}

async function runSeeds(options: SimClusterOptions, count: number, context: CommandContext): Promise<void> {
  const startMs = context.clock.nowMs();
  const failed: FailedSeed[] = [];
  let [events, virtualS, doneCount] = [0, 0, 0];
  // A process that runs some of the seeds for another one must print nothing but JSON.
  const progress = options.json ? undefined : context.progress();
  const add = (part: SeedsResult): void => {
    doneCount += part.seeds;
    progress?.update(`${doneCount} of ${count} seeds, ${failed.length + part.failed.length} failed`);
    events += part.events;
    virtualS += part.virtual_s;
    failed.push(...part.failed);
    if (options.json) return;
    if (part.failed.length > 0) progress?.end();
    for (const { seed, hash, count, violations } of part.failed) {
      context.print(`${seedLine(seed, { hash, violationsCount: count }, options)}\n${formatViolations(violations, 3)}`);
    }
  };
  if (options.jobs > 1) await runJobs(options, count, { add, signal: context.signal });
  else for (let i = 0; i < count && !context.signal.aborted; i++) add(await runSeed(options.seed + i, options));
  progress?.end();
  failed.sort((a, b) => a.seed - b.seed);
  const wallS = (context.clock.nowMs() - startMs) / 1000;
  const summary = { seeds: doneCount, from: options.seed, failed, events, virtual_s: virtualS, wall_s: wallS };
  const ran = doneCount === count ? `${count}` : `${doneCount} of ${count}`;
  const text =
    `${ran} seeds from ${options.seed} on: ${failed.length} failed; ${virtualS.toFixed(0)} virtual seconds, ` +
    `${events} events in ${wallS.toFixed(1)} s`;
  printResult(context, summary, { json: options.json, asText: () => text });
  if (failed.length > 0) context.setExitStatus(1);
}

async function runSeed(seed: number, options: SimClusterOptions): Promise<SeedsResult> {
  const { events, virtualMs, hash, violations, violationsCount: count } = await runScenario(byChance(seed, options));
  const failed = count === 0 ? [] : [{ seed, hash, count, violations }];
  return { seeds: 1, events, virtual_s: virtualMs / 1000, failed };
}

/** Runs the seeds in several processes, each of which takes the next few until none is left. */
async function runJobs(
  options: SimClusterOptions,
  count: number,
  { add, signal }: { readonly add: (part: SeedsResult) => void; readonly signal: AbortSignal },
): Promise<void> {
  const { seed: from, jobs } = options;
  const share = Math.max(1, Math.min(JOB_MAX_SEEDS, Math.ceil(count / jobs)));
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < count && !signal.aborted) {
      const start = next;
      next += share;
      const seeds = ['--seed', `${from + start}`, '--seeds', `${Math.min(share, count - start)}`];
      add(
        JSON.parse(
          await outputOfSelf(['sim', 'cluster', '--json', ...seeds, ...wordsOf(options)], signal),
        ) as SeedsResult,
      );
    }
  };
  await Promise.all(Array.from({ length: jobs }, work));
}

async function runOne(options: SimClusterOptions, context: CommandContext): Promise<void> {
  const startMs = context.clock.nowMs();
  let scenario = await scenarioFrom(options);
  const untilMs = options.until === undefined ? {} : { untilMs: options.until * 1000 };
  const runOptions = { ...untilMs, logMaxLines: LOG_MAX_LINES };
  if (options.shrink) {
    const shrunk = await shrink(scenario, {
      onSmaller: ({ nodes, faults, durationMs }) =>
        context.tell(`${nodes} nodes, ${faults.length} faults, ${durationMs} ms: fails alike`),
    });
    if (shrunk === undefined) throw new CommandFailure('the scenario does not fail, so there is nothing to shrink');
    scenario = shrunk.scenario;
  }
  const result = await runScenario(scenario, runOptions);
  const run: SimClusterRun = { scenario, result, wallS: (context.clock.nowMs() - startMs) / 1000 };
  const withLog = options.until !== undefined || result.violationsCount > 0;
  printResult(context, run, { json: options.json, asText: (each) => formatSimCluster(each, { withLog }) });
  if (result.violationsCount > 0) context.setExitStatus(1);
  if (options.html !== undefined) await writePage(options.html, reportPage(simClusterReport(run)));
}

function byChance(seed: number, { nodes, duration, faults }: SimClusterOptions): Scenario {
  return randomScenario(seed, {
    ...(nodes === undefined ? {} : { nodes }),
    ...(duration === undefined ? {} : { durationMs: duration * 1000 }),
    ...(faults.length === 0 ? {} : { kinds: faults }),
  });
}

/**
 * Settings of nodes that play a trace, unless others are given. Without a map of the cluster they find the same pages;
 * its questions would be five sixths of all that happens in an hour.
 */
const TRACE_SETTINGS = { cluster_map: '0' };

async function scenarioFrom(options: SimClusterOptions): Promise<Scenario> {
  if (options.scenario !== undefined) return readScenario(options.scenario);
  if (options.random) return byChance(options.seed, options);
  const { seed, nodes = 3, ranks, zones, poolPages, diskPages, latencyMs, networkRate, option, faults } = options;
  const workload = await workloadFrom(options);
  const durationMs = durationOf(workload, options);
  const scenario = scenarioOf({
    seed,
    nodes,
    ranksPerHost: ranks,
    durationMs,
    workload,
    shape: {
      poolPages,
      pageBytes: options.pageBytes,
      diskPages: diskPages ?? null,
      ...storageShape(options),
      ...(zones === undefined ? {} : { zones }),
      config: options.trace === undefined ? option : { ...TRACE_SETTINGS, ...option },
      listedMasters: Math.min(3, nodes),
    },
    network: {
      ...(latencyMs === undefined ? {} : { latencyMs }),
      ...(networkRate === undefined ? {} : { bytesPerS: networkRate }),
    },
  });
  return faults.length === 0 ? scenario : withRandomFaults(scenario, faults);
}

async function workloadFrom(options: SimClusterOptions): Promise<Workload> {
  const { workload, trace, requests, speed, routing } = options;
  if (trace === undefined) {
    refuseAgentFlags(options);
    if (workload === 'conversations') return { ...CONVERSATIONS, routing };
    return workload === 'mixed' ? MIXED : { kind: 'none' };
  }
  const planned = await plannedSessions(trace, options);
  if (planned !== undefined) {
    if (speed !== undefined) throw wrongUsage('--speed is for traces in the Mooncake format, not for agent sessions');
    return { ...sessionsWorkload(planned, options), routing };
  }
  const read: { timestampMs: number; hashIds: readonly number[] }[] = [];
  for await (const { timestampMs, hashIds } of readTrace(trace)) {
    if (requests !== undefined && read.length >= requests) break;
    read.push({ timestampMs, hashIds });
  }
  if (read.length === 0) throw new CommandFailure(`the trace ${trace} has no requests`);
  return { ...TRACE, requests: read, speed: speed ?? TRACE.speed, routing };
}

function durationOf(workload: Workload, options: SimClusterOptions): number {
  if (workload.kind === 'trace') return traceMs(workload, options);
  if (workload.kind !== 'sessions' || options.duration !== undefined) return (options.duration ?? 30) * 1000;
  return sessionsMs(workload.requests);
}

/** Duration of the requested part of the trace, which is the whole trace by default. */
function traceMs({ requests, speed }: Extract<Workload, { kind: 'trace' }>, { duration }: SimClusterOptions): number {
  const lastMs = ((requests.at(-1)?.timestampMs ?? 0) - (requests[0]?.timestampMs ?? 0)) / speed + 1_000;
  return duration === undefined ? lastMs : Math.min(lastMs, duration * 1000);
}

async function readScenario(file: string): Promise<Scenario> {
  const text = await readFile(file, 'utf8').catch((cause: Error) => {
    throw new CommandFailure(`cannot read the scenario ${file}: ${cause.message}`, undefined, { cause });
  });
  try {
    const given = JSON.parse(text) as (Partial<SimClusterRun> & Scenario) | null;
    // The output of --json has the scenario next to the result.
    return scenarioOf((given?.scenario ?? given) as Scenario);
  } catch (cause) {
    throw wrongUsage(`--scenario ${file}: ${(cause as Error).message}`);
  }
}

function faultKinds(text: string): FaultKind[] {
  if (text === 'none') return [];
  if (text === 'all') return ALL_KINDS;
  return text.split(',').map((name) => {
    const kind = ALL_KINDS.find((each) => each === name.trim());
    if (kind === undefined)
      throw new InvalidArgumentError(`Allowed are all, none, or some of ${ALL_KINDS.join(', ')}.`);
    return kind;
  });
}
