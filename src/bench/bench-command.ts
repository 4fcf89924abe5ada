import { Argument, Command, Option } from 'commander';
import { TCP_THREADS_MAX_COUNT } from '../base/limits.js';
import { type CommandContext, EXIT_FAILURE, printResult, untilInterrupted } from '../command/context.js';
import { jsonOption, wholeNumber } from '../command/options.js';
import { formatTable } from '../command/table.js';
import { ENGINES } from './engine/engine-plans.js';
import type { Benchmark, BenchReport } from './measuring/report.js';

/** Benchmarks by name. Each is loaded on demand, as it may need packages that are not installed. */
const BENCHMARKS: Readonly<Record<string, () => Promise<Benchmark>>> = {
  tcp: async () => (await import('./tcp/tcp.js')).tcpBench,
  ring: async () => (await import('./ring.js')).ringBench,
  map: async () => (await import('./map.js')).mapBench,
  'map-feed': async () => (await import('./map-feed.js')).mapFeedBench,
  pool: async () => (await import('./pool.js')).poolBench,
  directory: async () => (await import('./directory.js')).directoryBench,
  rdma: async () => (await import('./rdma.js')).rdmaBench,
  memory: async () => (await import('./memory.js')).memoryBench,
  small: async () => (await import('./store/small.js')).smallBench,
  store: async () => (await import('./store/store.js')).storeBench,
  placement: async () => (await import('./placement.js')).placementBench,
  metrics: async () => (await import('./metrics.js')).metricsBench,
  auth: async () => (await import('./auth/auth.js')).authBench,
  disk: async () => (await import('./disk/disk.js')).diskBench,
  clients: async () => (await import('./clients.js')).clientsBench,
  peers: async () => (await import('./peers/peers.js')).peersBench,
  resp: async () => (await import('./resp.js')).respBench,
  isolation: async () => (await import('./isolation/isolation.js')).isolationBench,
  engine: async () => (await import('./engine/engine.js')).engineBench,
  cluster: async () => (await import('./cluster/cluster.js')).clusterBench,
};

interface BenchCommandOptions {
  readonly rounds: number;
  readonly quick: boolean;
  readonly dir?: string;
  readonly threads?: readonly number[];
  readonly nodes?: readonly number[];
  readonly pages?: number;
  readonly seconds?: number;
  readonly kill: boolean;
  readonly flood?: number;
  readonly hostile?: readonly string[];
  readonly burn?: number;
  readonly failures: boolean;
  readonly device?: string;
  readonly engine?: string;
  readonly environment?: string;
  readonly model?: string;
  readonly prompts?: number;
  readonly tokens?: number;
  readonly json: boolean;
}

export function benchCommand(context: CommandContext): Command {
  return new Command('bench')
    .description('measure one part beside comparable programs, interleaved in one run')
    .addArgument(new Argument('<what>', 'what to measure').choices(Object.keys(BENCHMARKS)))
    .option('--rounds <count>', 'counted rounds of each contender; medians are reported', wholeNumber(1, 1000), 5)
    .option('--quick', 'run a much smaller workload, to see that it works; its figures mean nothing', false)
    .option('--dir <path>', "folder for the files of `disk` (default: the system's folder for temporary files)")
    .option('--threads <counts>', 'with `tcp`: compare these numbers of threads, comma-separated', threadCounts)
    .option('--nodes <counts>', 'number of nodes of `cluster`, or several, comma-separated (default: 50)', clusterSizes)
    .option('--pages <count>', 'pages of each node of `cluster` (default: 300)', wholeNumber(4, 400))
    .option('--seconds <count>', 'idle phase of `cluster` in seconds (default: 30)', wholeNumber(1, 3600))
    .option('--kill', 'with `cluster`: kill one of three nodes, and count failed reads of the others', false)
    .option(
      '--flood <rate>',
      'connections a second by unauthenticated peers for `auth` (default: 10000)',
      wholeNumber(1, 1_000_000),
    )
    .option('--hostile <kinds>', 'with `isolation`: kinds of hostile clients, comma-separated (default: all)', (text) =>
      text.split(','),
    )
    .option(
      '--burn <count>',
      'with `peers`: processes that keep cores busy meanwhile (default: 0)',
      wholeNumber(0, 256),
    )
    .option('--failures', 'with `peers`: what happens when something fails, instead of speeds', false)
    .option('--device <name>', 'with `rdma`: the device (default: the first that can be used)')
    .addOption(new Option('--engine <name>', 'with `engine`: the engine').choices(ENGINES))
    .option('--environment <folder>', 'with `engine`: virtual environment that has the engine')
    .option('--model <folder>', 'with `engine`: folder of the model')
    .option('--prompts <count>', 'with `engine`: prompts in each round (default: 2)', wholeNumber(1, 1000))
    .option('--tokens <count>', 'with `engine`: tokens of a prompt, roughly (default: 1500)', wholeNumber(100, 100_000))
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache bench ring
  meshcache bench store --rounds 7 --json
  meshcache bench tcp --threads 1,2,4
  meshcache bench auth --flood 3000
  meshcache bench disk --dir /mnt/nvme
  meshcache bench peers --failures
  meshcache bench cluster --nodes 5,10,25,50
  meshcache bench engine --engine vllm --environment ~/venv-vllm --model ~/SmolLM2-135M-Instruct --rounds 3`,
    )
    .action(async (what: string, options: BenchCommandOptions) => {
      const report = await runBench(what, options, context);
      printResult(context, report, { json: options.json, asText: formatReport });
      if (report.failure === undefined) return;
      context.warn(report.failure);
      context.setExitStatus(EXIT_FAILURE);
    });
}

async function runBench(what: string, options: BenchCommandOptions, context: CommandContext): Promise<BenchReport> {
  const progress = context.progress();
  try {
    const benchmark = await (BENCHMARKS[what] as () => Promise<Benchmark>)();
    const report = benchmark({
      rounds: options.rounds,
      quick: options.quick,
      ...(options.dir === undefined ? {} : { dir: options.dir }),
      ...(options.threads === undefined ? {} : { threads: options.threads }),
      cluster: { nodes: options.nodes, pages: options.pages, seconds: options.seconds, kill: options.kill },
      engine: {
        engine: options.engine,
        environment: options.environment,
        model: options.model,
        prompts: options.prompts,
        tokens: options.tokens,
      },
      ...(options.flood === undefined ? {} : { floodPerS: options.flood }),
      ...(options.burn === undefined ? {} : { burn: options.burn }),
      failures: options.failures,
      ...(options.device === undefined ? {} : { device: options.device }),
      ...(options.hostile === undefined ? {} : { hostile: options.hostile }),
      progress: (text) => progress.update(text),
    });
    return await untilInterrupted(report, context);
  } finally {
    progress.end();
  }
}

function threadCounts(text: string): number[] {
  return text.split(',').map(wholeNumber(1, TCP_THREADS_MAX_COUNT));
}

function clusterSizes(text: string): number[] {
  return text.split(',').map(wholeNumber(2, 250));
}

function formatReport(report: BenchReport): string {
  const notes = report.notes.map((note) => `\n${note}`).join('');
  return `${report.title}\n\n${formatTable(report.rows)}\n${notes}`;
}
