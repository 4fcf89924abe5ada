import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type CommandContext, CommandFailure, EXIT_FAILURE, wrongUsage } from '../../command/context.js';
import { formatCount, formatShare, formatTable } from '../../command/table.js';
import { findPython } from '../../processes/programs.js';
import { PythonEngine } from '../../processes/python-engine.js';
import { commandPoolBytes } from '../../system/memory-limit.js';
import { Cluster } from '../cluster/cluster.js';
import { joinLoads, type LoadResult, runLoad } from '../load/load.js';
import { formatLoadReport, type LoadReport, loadReport, printLoadReport } from '../load/load-report.js';
import type { TurnRequest } from '../load/workload.js';
import { type EngineReport, EngineTarget } from './engine-target.js';

/** The phases of a demo: before the fault, while the node is away, and after. */
const PHASES = 3;
/** Fewest turns of each engine in each phase. */
const TURNS_MIN_COUNT = 2;
const PROBE_PAGES = 2;
const PROBE_INTERVAL_MS = 10;
/** How long a restarted node may take to serve its engine again on a busy machine, in milliseconds. */
const BACK_TIMEOUT_MS = 60_000;

interface EngineDemoOptions {
  readonly nodes: number;
  readonly seconds: number;
  readonly pageBytes: number;
}

/** Effect of the node's loss on its engine; counts are in pages of that engine's turns. */
interface FaultReport {
  readonly node: string;
  readonly pages_hit_before: number;
  /** Pages looked up while the node was away. None of them can be hits. */
  readonly pages_asked_while_away: number;
  readonly pages_hit_while_away: number;
  readonly pages_hit_after: number;
  /** Seconds from the start of the node's new process until its engine had stored and read pages again. */
  readonly back_s: number;
  /**
   * Seconds from the end of the node's process until its engine was served again, including the turns played meanwhile.
   */
  readonly away_s: number;
}

/** Results of engines and nodes. For the turn in which the node is lost, it is unknown where pages were found. */
export interface EngineDemoResult extends LoadReport {
  readonly engines: readonly (EngineReport & { readonly node: string })[];
  /** Share of all prompts' pages that were read instead of computed. */
  readonly prefill_saved: number;
  readonly fault: FaultReport;
}

/**
 * Plays conversations on engines in Python, one per node, that use the cache as SGLang does. In the middle, one node is
 * killed under its engine and restarted. Every byte of every page that is read is checked.
 */
export async function runEngineDemo(
  requests: readonly TurnRequest[],
  options: EngineDemoOptions,
  context: CommandContext,
): Promise<EngineDemoResult> {
  const { nodes, pageBytes } = options;
  checkSizes(requests, nodes);
  const python = await pythonOfEngines();
  const progress = context.progress();
  const folder = await mkdtemp(join(tmpdir(), 'meshcache-demo-'));
  const socketOf = (index: number): string => join(folder, `node-${index}.sock`);
  const engines: EngineTarget[] = [];
  let cluster: Cluster | undefined;
  try {
    progress.update(`starting ${nodes} nodes, and an engine in Python for each`);
    const running = await Cluster.start({
      nodes,
      pageBytes,
      components: 2,
      config: { global_segment_size: commandPoolBytes() },
      nodeConfig: (index) => ({ node_id: nodeName(index), client_socket: socketOf(index) }),
      isLogShown: process.env.MESHCACHE_LOG !== undefined,
      signal: context.signal,
    });
    cluster = running;
    for (let index = 0; index < nodes; index++) {
      engines.push(
        new EngineTarget(new PythonEngine(python, 'meshcache._demo'), {
          pageBytes,
          nodeStatus: async () => (running.agents[index] as Cluster['agents'][number]).status(),
        }),
      );
    }
    const slots = Math.max(PROBE_PAGES, ...requests.map(({ keys }) => keys.length));
    await Promise.all(engines.map((engine, index) => engine.start(socketOf(index), slots)));
    const { load, fault } = await new EnginePlay(running, engines, options, context).run(requests, (text) =>
      progress.update(text),
    );
    const statuses = await Promise.all(running.agents.map((agent) => agent.status()));
    const reports = await Promise.all(engines.map((engine) => engine.report()));
    await Promise.all(engines.map((engine) => engine.close()));
    const report = loadReport(load, { statuses, pageBytes });
    return {
      ...report,
      wrong_bytes: reports.reduce((sum, { wrong_bytes }) => sum + wrong_bytes, 0),
      engines: reports.map((each, index) => ({ node: nodeName(index), ...each })),
      prefill_saved: report.prefix_hit_rate,
      fault,
    };
  } finally {
    progress.end();
    await Promise.all(engines.map((engine) => engine.kill()));
    await cluster?.close();
    await rm(folder, { recursive: true, force: true });
  }
}

/** The three phases of one demo. */
class EnginePlay {
  readonly #cluster: Cluster;
  readonly #engines: readonly EngineTarget[];
  readonly #options: EngineDemoOptions;
  readonly #context: CommandContext;

  constructor(cluster: Cluster, engines: readonly EngineTarget[], options: EngineDemoOptions, context: CommandContext) {
    this.#cluster = cluster;
    this.#engines = engines;
    this.#options = options;
    this.#context = context;
  }

  async run(
    requests: readonly TurnRequest[],
    say: (text: string) => void,
  ): Promise<{ readonly load: LoadResult; readonly fault: FaultReport }> {
    const { clock } = this.#context;
    const victim = this.#victim();
    const engine = this.#engines[victim] as EngineTarget;
    const third = Math.floor(requests.length / PHASES);

    const before = await this.#play(requests.slice(0, third), say, 'all nodes are there');
    const { hits: hitsBefore } = engine.pages;

    let killedMs = 0;
    let atKill = engine.pages;
    const kill = async (): Promise<void> => {
      await this.#cluster.kill(victim);
      killedMs = clock.nowMs();
    };
    void engine.duringNextTurn(kill).then(() => {
      atKill = engine.pages;
    });
    const fewest = third + this.#engines.length * TURNS_MIN_COUNT;
    const without = `${nodeName(victim)} was killed`;
    const away = [
      await this.#play(requests.slice(third, fewest), say, without, { isTimed: false }),
      await this.#play(requests.slice(fewest, 2 * third), say, without),
    ];
    const atRestart = engine.pages;

    say(`starting ${nodeName(victim)} again`);
    const restartMs = clock.nowMs();
    await this.#cluster.restart(victim);
    await this.#untilServed(engine);
    const backMs = clock.nowMs();

    const after = await this.#play(requests.slice(2 * third), say, `${nodeName(victim)} is back`);
    return {
      load: joinLoads([before, ...away, after]),
      fault: {
        node: nodeName(victim),
        pages_hit_before: hitsBefore,
        pages_asked_while_away: atRestart.asked - atKill.asked,
        pages_hit_while_away: atRestart.hits - atKill.hits,
        pages_hit_after: engine.pages.hits - atRestart.hits,
        back_s: seconds(backMs - restartMs),
        away_s: seconds(backMs - killedMs),
      },
    };
  }

  /** The last node that does not run discovery, like most nodes in practice. */
  #victim(): number {
    return Math.max(0, ...this.#cluster.agents.filter((agent) => !agent.isMeta).map((agent) => agent.index));
  }

  /** With `isTimed`, turns that would start after the phase's third of the demo's time are skipped. */
  #play(
    requests: readonly TurnRequest[],
    say: (text: string) => void,
    when: string,
    { isTimed = true } = {},
  ): Promise<LoadResult> {
    const { clock, signal } = this.#context;
    return runLoad(this.#engines, requests, {
      concurrency: this.#engines.length,
      clock,
      signal,
      ...(isTimed && { maxMs: (this.#options.seconds * 1000) / PHASES }),
      onProgress: (counts) => {
        const done = `${formatCount(counts.requests)} of ${formatCount(requests.length)} turns`;
        say(`${when}: ${done}, ${formatCount(counts.prefixHits)} pages read, ${counts.wrongBytes} bytes wrong`);
      },
    });
  }

  async #untilServed(engine: EngineTarget): Promise<void> {
    const { clock, signal } = this.#context;
    const endMs = clock.nowMs() + BACK_TIMEOUT_MS;
    for (let attempt = 0; !(await engine.isServed(probeKeys(attempt))); attempt++) {
      signal.throwIfAborted();
      if (clock.nowMs() > endMs) {
        throw new CommandFailure(
          `the engine's node was restarted and did not serve the engine within ${BACK_TIMEOUT_MS / 1000} s; run again with MESHCACHE_LOG=info to see the logs of the nodes`,
        );
      }
      await new Promise<void>((resolve) => clock.after(PROBE_INTERVAL_MS, resolve, { keepAlive: true }));
    }
  }
}

/** Prints the result. A wrong byte or an exception in Python makes the program end with a failure. */
export function printEngineDemo(context: CommandContext, result: EngineDemoResult, json: boolean): void {
  printLoadReport(context, result, { json, asText: formatEngineDemo });
  if (result.engines.some(({ exceptions }) => exceptions.length > 0)) context.setExitStatus(EXIT_FAILURE);
}

function formatEngineDemo(result: EngineDemoResult): string {
  const { engines, fault } = result;
  const table = formatTable(
    engines.map((engine) => ({
      engine: engine.node,
      mode: engine.mode,
      turns: engine.turns,
      asked: engine.pages_asked,
      read: engine.pages_read,
      hit: engine.pages_hit,
      missed: engine.pages_missed,
      computed: engine.pages_computed,
      'wrong bytes': engine.wrong_bytes,
      exceptions: engine.exceptions.length,
    })),
  );
  const exceptions = engines.flatMap((engine) => engine.exceptions.map((text) => `${engine.node}: ${text}`));
  const asked = formatCount(fault.pages_asked_while_away);
  return `${formatLoadReport(result)}

Engines in Python, by the SGLang backend; counts are of pages
${table}

prefill saved: ${formatShare(result.prefix_hits, result.pages_asked)} of the pages of all prompts were read and not computed
pages go:      ${modes(engines)}
node killed:   ${fault.node}, in the middle of a turn of its engine: ${formatCount(fault.pages_hit_before)} hits before, ${formatCount(fault.pages_hit_while_away)} of ${asked} pages while it was away, ${formatCount(fault.pages_hit_after)} after
service back:  ${fault.back_s.toFixed(1)} s after the start of its new process
${exceptions.map((text) => `exception in Python: ${text}\n`).join('')}`;
}

const WAYS: Readonly<Record<string, string>> = {
  direct: 'direct: the nodes have mapped the memory of the engines',
  staged: 'staged: by memory of the nodes and one copy',
  file: 'file: without the native addon, the nodes read and write the files behind the memory of the engines',
  bytes: 'bytes: on the socket, as the nodes can neither map nor open the memory of the engines',
};

function modes(engines: readonly { readonly mode: string }[]): string {
  return [...new Set(engines.map(({ mode }) => WAYS[mode] ?? mode))].join('; ');
}

async function pythonOfEngines(): Promise<string> {
  const python = await findPython();
  if (python !== undefined) return python;
  throw new CommandFailure(
    'the engines need Python 3.10 or newer, and there is no python3 on PATH: install it (Debian: apt install python3), or run the demo without --engines',
  );
}

function checkSizes(requests: readonly TurnRequest[], nodes: number): void {
  if (nodes < 2) {
    throw wrongUsage(`--engines: --nodes must be 2 or more, got ${nodes}: one node is killed, and the others go on`);
  }
  const needed = PHASES * nodes * TURNS_MIN_COUNT;
  if (requests.length < needed) {
    throw wrongUsage(
      `--engines: these --conversations have ${requests.length} turns and ${nodes} nodes need ${needed}: choose more --conversations`,
    );
  }
}

function nodeName(index: number): string {
  return `node-${index + 1}`;
}

/** Keys that no conversation and no other attempt uses. */
function probeKeys(attempt: number): string[] {
  return Array.from({ length: PROBE_PAGES }, (_, page) =>
    createHash('sha256').update(`probe ${attempt} page ${page}`).digest('hex'),
  );
}

function seconds(ms: number): number {
  return Number((ms / 1000).toFixed(3));
}
