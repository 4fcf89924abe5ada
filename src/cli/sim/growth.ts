import { Command, Option } from 'commander';
import { type CommandContext, printResult, untilInterrupted } from '../../command/context.js';
import { jsonOption, listOf, wholeNumber } from '../../command/options.js';
import { formatTable } from '../../command/table.js';
import { GROWTH_DISCOVERY, Growth, type GrowthDiscovery, type GrowthPhase } from '../../sim/growth.js';
import { systemClock } from '../../system/system-clock.js';
import { hasLargeHeap, largeHeap, runSelf } from './own-process.js';

const NODES_MAX_COUNT = 4096;
/** Number of nodes from which a cluster is worth a process of its own. */
const LARGE_NODES_COUNT = 50;
const HEAP_MB_PER_NODE = 12;

interface SimGrowthOptions {
  readonly nodes: readonly number[];
  readonly pages: number;
  readonly named: boolean;
  readonly discovery: GrowthDiscovery;
  readonly seed: number;
  readonly rest: number;
  readonly json: boolean;
}

/** The result, as `--json` prints it. */
interface SimGrowthResult {
  readonly seed: number;
  readonly pages_per_node: number;
  readonly named: boolean;
  readonly discovery: GrowthDiscovery;
  readonly clusters: readonly SimGrowthCluster[];
}

interface SimGrowthCluster {
  readonly nodes: number;
  readonly hash: string;
  readonly phases: readonly GrowthPhase[];
}

export function simGrowthCommand(context: CommandContext): Command {
  return new Command('growth')
    .description(
      'what each node of a cluster costs as there are more of them: joining, resting, losing a tenth, restarting',
    )
    .addOption(
      new Option('--nodes <counts>', 'numbers of nodes, comma-separated')
        .argParser(listOf(wholeNumber(4, NODES_MAX_COUNT)))
        .default([10, 100], '10,100'),
    )
    .option('--pages <count>', 'pages that each node sets', wholeNumber(1, 65_536), 64)
    .option('--named', 'set named entries, of one content each, instead of computed pages', false)
    .addOption(
      new Option('--discovery <kind>', 'where nodes find each other').choices(GROWTH_DISCOVERY).default('list'),
    )
    .option('--seed <number>', 'the same seed makes the same run', wholeNumber(0, 2 ** 32 - 1), 1)
    .option('--rest <seconds>', 'idle phase in virtual seconds', wholeNumber(1, 86_400), 60)
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache sim growth
  meshcache sim growth --nodes 10,100,1000

All nodes run in one process, on virtual time: 1,000 of them take some minutes and 10 GB of memory.
Messages and bytes are those of both directions, in the mean of all nodes and of the busiest one, a master.`,
    )
    .action(async (options: SimGrowthOptions) => {
      const mostNodes = Math.max(...options.nodes);
      if (mostNodes >= LARGE_NODES_COUNT && !hasLargeHeap()) {
        const run = runSelf(process.argv.slice(2), largeHeap(HEAP_MB_PER_NODE * mostNodes), context.signal);
        context.setExitStatus(await untilInterrupted(run, context));
        return;
      }
      const clusters: SimGrowthCluster[] = [];
      for (const nodes of options.nodes) clusters.push(await grow(nodes, options, context));
      const result: SimGrowthResult = {
        seed: options.seed,
        pages_per_node: options.pages,
        named: options.named,
        discovery: options.discovery,
        clusters,
      };
      printResult(context, result, { json: options.json, asText: formatGrowth });
    });
}

/** Simulates one cluster, and tells of its phases as they end. */
async function grow(nodes: number, options: SimGrowthOptions, context: CommandContext): Promise<SimGrowthCluster> {
  const parts = {
    nodes,
    seed: options.seed,
    pagesPerNode: options.pages,
    isNamed: options.named,
    discovery: options.discovery,
    restS: options.rest,
  };
  const onPhase = (phase: GrowthPhase) => {
    const columns = Object.entries(sourceColumns(phase)).map(([name, count]) => `, ${name} ${count} times`);
    context.tell(`${nodes} nodes, ${phase.name}: simulated in ${phase.realS.toFixed(1)} s${columns.join('')}`);
  };
  const machine = { realMs: () => systemClock.nowMs(), heapBytes: () => process.memoryUsage().heapUsed };
  const growth = new Growth({ ...parts, onPhase }, machine);
  const phases = await untilInterrupted(growth.run(), context);
  return { nodes, hash: growth.hash, phases };
}

/** Columns about the discovery source, summed over all nodes; none without requests, as with a list of addresses. */
function sourceColumns({ source }: GrowthPhase): Record<string, number> {
  const { event, ...requests } = source;
  const asked = Object.values(requests).reduce((sum, count) => sum + count, 0);
  if (asked === 0) return {};
  return event === undefined ? { 'source asked': asked } : { 'source asked': asked, 'source told': event };
}

function formatGrowth({ clusters }: SimGrowthResult): string {
  const seconds = (s: number | null): string => (s === null ? 'not in time' : s.toFixed(1));
  const rows = clusters.flatMap(({ nodes, phases }) =>
    phases.map((phase) => ({
      nodes,
      phase: phase.name,
      's known': seconds(phase.knownS),
      's found': seconds(phase.foundS),
      's in all': seconds(phase.seconds),
      'messages/node': Math.round(phase.messages.perNode),
      most: Math.round(phase.messages.most),
      'KB/node': Math.round(phase.bytes.perNode / 1000),
      'KB most': Math.round(phase.bytes.most / 1000),
      ...sourceColumns(phase),
      'events/node': Math.round(phase.eventsPerNode),
      'heap MB/node': phase.heapMbPerNode.toFixed(2),
      'real s': phase.realS.toFixed(1),
    })),
  );
  const hashes = clusters.map(({ nodes, hash }) => `${nodes} nodes: hash ${hash}`);
  return [formatTable(rows), '', ...hashes].join('\n');
}
