import { dateOf } from '../../base/concurrency/hybrid-clock.js';
import { MeshCacheConfig, type StorageConfig } from '../../config.js';
import type { DISTANCES } from '../../net/distance.js';
import type { MeshCacheStore } from '../../node/meshcache-store.js';
import type { PrefetchedPages } from '../../store/holding/prefetching.js';
import type { CallKind } from '../check/call-watch.js';
import { type Violation, Violations } from '../check/violations.js';
import { FAULT_KINDS, type FaultKind } from '../scenario/faults.js';
import { isLong, nodesOfHosts, type Scenario, scenarioOf } from '../scenario/scenario.js';
import { formatJournalLine, type JournalLine } from '../world/journal.js';
import { SimulatedFailure } from '../world/kernel/scheduler.js';
import type { SimProcess } from '../world/sim-process.js';
import { World } from '../world/world.js';
import { networkScale, nodeName, objectStoreShape, storageConfig } from './node-settings.js';
import { Recovery, type RecoveryTimes } from './recovery.js';
import type { Sample } from './series.js';
import { type Route, SimCluster, type SimProgram } from './sim-cluster.js';
import type { SimNode } from './sim-node.js';

/** Options of {@link runScenario} besides the scenario. */
export interface RunOptions {
  /** Virtual time at which the run stops, for inspection: see {@link ScenarioResult.log}. */
  readonly untilMs?: number;
  /** Chooses the node that serves a request of a workload with requests; default: its `routing`. */
  readonly route?: Route;
  /** A program that uses the stores in addition to the workload, which may be of kind `none`. */
  readonly program?: SimProgram;
  /** Milliseconds between two samples of the series; default: a 60th of the duration. */
  readonly sampleMs?: number;
  /** Number of log records to keep; default: 200. */
  readonly logMaxLines?: number;
  /** Whether to stop at the first violation. */
  readonly stopsAtViolation?: boolean;
  /** Creates the stores instead of `MeshCacheStore.create`. */
  readonly createStore?: (config: StorageConfig, process: SimProcess) => Promise<MeshCacheStore>;
  /** Called with each event as a line. */
  readonly onEvent?: (line: string) => void;
}

/** Messages and bytes that a host has sent on one plane. */
export interface HostTraffic {
  readonly host: string;
  readonly plane: string;
  readonly messages: number;
  readonly bytes: number;
}

/** The result of a run. */
export interface ScenarioResult {
  readonly seed: number;
  /** Hash of the event log; runs with the same hash did the same. */
  readonly hash: string;
  readonly events: number;
  readonly virtualMs: number;
  readonly violations: readonly Violation[];
  /** Number of all violations, including those that `violations` leaves out. */
  readonly violationsCount: number;
  readonly counts: {
    readonly calls: Readonly<Record<CallKind, number>>;
    readonly longestMs: Readonly<Record<CallKind, number>>;
    /** Number of reads that delivered a page; each was checked. */
    readonly readsChecked: number;
    readonly hits: Readonly<Record<'local' | 'remote' | 'disk' | 'object', number>>;
    readonly misses: number;
    readonly evictions: number;
    readonly starts: number;
    readonly requests: {
      readonly count: number;
      readonly asked: number;
      readonly found: number;
      readonly lost: number;
      /** Found pages that were in the pool of their node when they were asked for. */
      readonly local: number;
      /** Milliseconds until the found pages of a request were in the memory of its program; null without requests. */
      readonly waitMs: { readonly mean: number; readonly p50: number; readonly p99: number } | null;
    };
    /** Pages that nodes have brought into their pools before they were read, until the workload ended. */
    readonly prefetched: PrefetchedPages;
  };
  /** Pages read from other nodes, and keys looked up at directory owners, by distance; null without zones. */
  readonly distances: Readonly<Record<'pages' | 'keys', Readonly<Record<(typeof DISTANCES)[number], number>>>> | null;
  /** Times of the recovery; null if the run ended earlier. */
  readonly recovery: RecoveryTimes | null;
  readonly traffic: readonly HostTraffic[];
  readonly series: readonly Sample[];
  /** The sets, deletes and clears of each entry with a violation. */
  readonly stories: Readonly<Record<string, readonly string[]>>;
  /** The last log records of all nodes, one text each. */
  readonly log: readonly string[];
}

const SAMPLES_COUNT = 60;
const LOG_MAX_LINES = 200;
/** Milliseconds between two checks of calls in progress. */
const LOOK_MS = 1_000;
/** Milliseconds between two checks of the stores' structures. */
const VERIFY_MS = 5_000;
/** Milliseconds within which page events must report a change. */
const EVENTS_TOLD_AFTER_MS = 1_000;
/** Most differences of a list to show. */
const SHOWN_COUNT = 10;
/**
 * Number of pages above which the structures are checked less often in workloads that are long: the time of a check is
 * proportional to the number of pages.
 */
const VERIFIED_PAGES_COUNT = 2_048;

/**
 * Runs a scenario from the start of its nodes to their end. The same scenario gives the same result. Rejects with
 * `ArgumentError` for an invalid scenario, with `ConfigError` for settings that nodes reject, and if another run is in
 * progress in this process.
 */
export async function runScenario(scenario: Scenario, options: RunOptions = {}): Promise<ScenarioResult> {
  const whole = scenarioOf(scenario);
  MeshCacheConfig.fromExtraConfig(storageConfig(whole, 1).extraConfig);
  return new ScenarioRun(whole, options).run();
}

class ScenarioRun {
  readonly #scenario: Scenario;
  readonly #options: RunOptions;
  readonly #world: World;
  readonly #violations: Violations;
  readonly #expected: ExpectedErrors;
  readonly #cluster: SimCluster;
  #recovery: RecoveryTimes | null = null;
  #prefetched: PrefetchedPages = { brought: 0, used: 0, wasted: 0 };
  #isOver = false;

  constructor(scenario: Scenario, options: RunOptions) {
    this.#scenario = scenario;
    this.#options = options;
    const { seed, network } = scenario;
    this.#expected = new ExpectedErrors(scenario, () => this.#cluster.workSinceMs);
    this.#world = new World({
      seed,
      network: { ...network, ...networkScale(scenario) },
      objectStore: objectStoreShape(scenario),
      logMaxLines: options.logMaxLines ?? LOG_MAX_LINES,
      onLog: (line) => this.#logged(line),
      ...(options.onEvent === undefined ? {} : { onEvent: options.onEvent }),
    });
    this.#violations = new Violations(() => {
      if (options.stopsAtViolation) this.#world.stop();
    });
    this.#cluster = new SimCluster(this.#world, scenario, this.#violations, options);
  }

  async run(): Promise<ScenarioResult> {
    const world = this.#world;
    const isOver = (): void => {
      this.#isOver = true;
    };
    const over = this.#main();
    over.then(isOver, isOver);
    this.#repeat(this.#options.sampleMs ?? this.#scenario.durationMs / SAMPLES_COUNT, () =>
      this.#cluster.series.sample(),
    );
    this.#repeat(LOOK_MS, () => this.#cluster.checker.watch.look());
    this.#repeat(this.#verifyMs, () => this.#verify());
    // An exception while another world runs is not a failure of this run.
    const running = world.run({ until: () => this.#isOver, untilMs: this.#options.untilMs });
    try {
      const end = await running;
      if (end === 'idle') this.#failed('hang', 'nothing is left to do, and the run is not over');
      if (this.#isOver) await over;
    } catch (error) {
      const cause = error instanceof SimulatedFailure ? (error.cause ?? error) : error;
      this.#failed((cause as Error).name, String((cause as Error).stack ?? cause));
    }
    const result = this.#result();
    world.close();
    return result;
  }

  async #main(): Promise<void> {
    const cluster = this.#cluster;
    const world = this.#world;
    const started = cluster.checker.faults.begin(world.nowMs);
    await cluster.start();
    started(world.nowMs);
    await cluster.work();
    this.#prefetched = prefetchedBy(cluster.nodes);
    const healedMs = world.nowMs;
    await cluster.rest();
    const recovery = new Recovery(cluster);
    this.#recovery = await recovery.run(healedMs);
    await recovery.readAgain();
    await this.#checkEvents();
    cluster.series.sample();
    this.#verify();
    await cluster.close();
  }

  #logged(line: JournalLine): void {
    const { level, message, atMs, process } = line;
    if (level !== 'error' || this.#expected.has(line)) return;
    const node = Number(process.replace(/\D/g, ''));
    this.#violations.add({ kind: 'logged', rule: message, atMs, node, detail: formatJournalLine(line) });
  }

  /**
   * Compares the lists built from page events with the pages of the nodes. A difference counts only if it remains when
   * its event must have arrived, because the change may be recent.
   */
  async #checkEvents(): Promise<void> {
    const { checker, nodes } = this.#cluster;
    for (const node of nodes) {
      const early = await eventDifferences(node);
      if (early.length === 0) continue;
      await new Promise<void>((resolve) => this.#world.at(this.#world.nowMs + EVENTS_TOLD_AFTER_MS, resolve));
      const late = new Set(await eventDifferences(node));
      const lasting = early.filter((difference) => late.has(difference));
      if (lasting.length === 0) continue;
      checker.violated('events', node.number, { rule: '', detail: lasting.slice(0, SHOWN_COUNT).join('; ') });
    }
  }

  #verify(): void {
    const { checker, nodes } = this.#cluster;
    const hasOneDate = !this.#scenario.faults.some(({ kind }) => FAULT_KINDS[kind].group === 'clock');
    for (const { store, number } of nodes) {
      const { versions } = store?.runtime ?? {};
      const aheadMs = versions === undefined ? 0 : dateOf(versions.present()) - versions.wallMs();
      if (hasOneDate && aheadMs > 1) checker.violated('clock', number, { rule: '', detail: `by ${aheadMs} ms` });
      try {
        store?.verify();
      } catch (error) {
        const { message, stack } = error as Error;
        checker.violated('invariant', number, { rule: message.slice(0, 60), detail: String(stack) });
      }
    }
  }

  #repeat(ms: number, act: () => void): void {
    const turn = (): void => {
      if (this.#isOver) return;
      act();
      this.#world.at(this.#world.nowMs + ms, turn);
    };
    this.#world.at(this.#world.nowMs + ms, turn);
  }

  get #verifyMs(): number {
    const { nodes, shape } = this.#scenario;
    if (!isLong(this.#scenario)) return VERIFY_MS;
    const pages = nodes * (shape.poolPages + (shape.diskPages ?? 0));
    return VERIFY_MS * Math.max(1, Math.ceil(pages / VERIFIED_PAGES_COUNT));
  }

  #failed(rule: string, detail: string): void {
    this.#violations.add({ kind: 'threw', rule, atMs: this.#world.nowMs, node: 0, detail });
  }

  #result(): ScenarioResult {
    const { checker, nodes, series, requests } = this.#cluster;
    const { count, asked, found, lost, local: localFound, waitsMs } = requests;
    const { local, remote, disk, object, misses, evictions } = series.totals();
    return {
      seed: this.#scenario.seed,
      hash: this.#world.hash,
      events: this.#world.eventsCount,
      virtualMs: this.#world.nowMs,
      violations: this.#violations.kept,
      violationsCount: this.#violations.count,
      counts: {
        calls: { ...checker.watch.counts },
        longestMs: { ...checker.watch.longestMs },
        readsChecked: checker.readsCount,
        hits: { local, remote, disk, object },
        misses,
        evictions,
        starts: nodes.reduce((sum, { starts }) => sum + starts, 0),
        requests: { count, asked, found, lost, local: localFound, waitMs: spread(waitsMs) },
        prefetched: this.#prefetched,
      },
      distances: this.#scenario.shape.zones === undefined ? null : series.distances(),
      recovery: this.#recovery,
      traffic: this.#traffic(),
      series: series.samples,
      stories: Object.fromEntries(
        this.#violations.kept.flatMap(({ key }) => (key === undefined ? [] : [[key, checker.statements.storyOf(key)]])),
      ),
      log: this.#world.journal.lines.map(formatJournalLine),
    };
  }

  #traffic(): HostTraffic[] {
    return [...this.#world.hosts.values()].flatMap(({ name: host, network }) =>
      [...network.traffic].map(([plane, { sentMessages: messages, sentBytes: bytes }]) => {
        return { host, plane, messages, bytes };
      }),
    );
  }
}

/** What the present processes of the nodes have prefetched. */
function prefetchedBy(nodes: readonly SimNode[]): PrefetchedPages {
  const sum = { brought: 0, used: 0, wasted: 0 };
  for (const { store } of nodes) {
    const { brought = 0, used = 0, wasted = 0 } = store?.stats().prefetched ?? {};
    [sum.brought, sum.used, sum.wasted] = [sum.brought + brought, sum.used + used, sum.wasted + wasted];
  }
  return sum;
}

/** Mean and percentiles; null without values. */
function spread(values: readonly number[]): { mean: number; p50: number; p99: number } | null {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share: number) => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] as number;
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return { mean, p50: at(0.5), p99: at(0.99) };
}

/** How a node's list built from page events differs from the node's pages; empty for a node that does not run. */
async function eventDifferences(node: SimNode): Promise<readonly string[]> {
  return (await node.run(async ({ store, followed }) => (await followed?.differences(store)) ?? [])) ?? [];
}

/** Messages of errors that nodes are expected to log if their host has had one of these faults. */
const EXPECTED: readonly (readonly [message: RegExp, kinds: readonly FaultKind[], reason?: RegExp])[] = [
  [/^disk tier: reading or writing fails/, ['diskfull', 'diskerror', 'diskreadonly', 'bitrot', 'diskslow']],
  [/^disk tier: .* set aside/, ['bitrot', 'diskerror', 'diskreadonly', 'diskfull']],
  // A power failure may lose index blocks that were not flushed, although later blocks survive.
  [/^disk tier: .* set aside/, ['power', 'rack'], /^the index is damaged/],
  // A node whose clock went back looks older than its own last start, until that start is forgotten.
  [/^another node with the same node_id has started later/, ['clockjump', 'clockdrift', 'clockstop']],
];

/** Tells which logged errors of a run are expected because of its faults. */
class ExpectedErrors {
  readonly #scenario: Scenario;
  readonly #startMs: () => number;

  /** `startMs` returns the virtual time at which the times of the scenario begin. */
  constructor(scenario: Scenario, startMs: () => number) {
    this.#scenario = scenario;
    this.#startMs = startMs;
  }

  has({ process, message, fields, atMs }: JournalLine): boolean {
    return EXPECTED.some(
      ([pattern, kinds, reason = /^/]) =>
        pattern.test(message) &&
        reason.test(String(fields.reason)) &&
        this.#scenario.faults.some(
          (fault) =>
            kinds.includes(fault.kind) &&
            fault.atMs + this.#startMs() <= atMs &&
            nodesOfHosts(this.#scenario, fault.nodes).some((node) => nodeName(node) === process),
        ),
    );
  }
}
