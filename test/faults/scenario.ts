import { appendFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { DEADLINE_MS, GRACE_MS, longest } from './call-watch.js';
import { FaultCluster } from './cluster.js';
import type { FaultNetwork } from './network.js';
import type { NodeProcess } from './node-process.js';
import { disagreements, ORDER_BOUND_MS, OrderJudge, orderEvents, sharedMs } from './order.js';
import { sourceOutages } from './outages.js';
import { ownStalls } from './own-stalls.js';
import { keyName, keyText, NAMED, NAMED_KEYS_COUNT, OWN_KEYS_COUNT } from './pages.js';
import type { CallKind, Canary, Progress, Survivor, Violation } from './protocol.js';
import type { ProxyMode } from './proxy.js';
import type { Fault, FaultKind, Schedule, SourceFault } from './schedule.js';

/**
 * From the end of the last fault on, until every node has found every page. What the machine lets the node that fares
 * worst wait for a processor in this time does not count, nor what the suite itself could not run for: nothing on a
 * machine that is idle enough, which is what a figure needs.
 */
const RECOVERY_MAX_MS = 10_000;
/** Calls under way end within their deadlines, or never. */
const REST_MAX_MS = Math.max(...Object.values(DEADLINE_MS)) + 2 * GRACE_MS;
/** Between two attempts to find what was not found, and for one attempt. */
const FIND_PAUSE_MS = 100;
const FIND_MAX_MS = 60_000;
/** On top of the bound of old contents. */
const MARGIN_MS = 500;
/** Of one kind on one node, that are reported; the log has them all. */
const VIOLATIONS_MAX_COUNT = 10;

export interface Outcome {
  readonly seed: number;
  readonly violations: readonly Violation[];
  readonly faults: number;
  readonly recoveryMs: number;
  /** Pages that were still there, and had to be found from every node. */
  readonly survivors: number;
  /** Of pages that have an order; each was held against what had been set, deleted and cleared before it. */
  readonly readsJudged: number;
  readonly counts: Pick<
    Progress,
    'pagesSet' | 'setFailures' | 'hits' | 'misses' | 'remoteHits' | 'diskHits' | 'checksumFailures'
  >;
  readonly calls: number;
  /** Longest time until a node had joined after its source of addresses was back; 0 without a source. */
  readonly joinedMs: number;
  /** For so long the nodes waited for a processor, all together: what a busy machine has of a run's times. */
  readonly starvedMs: number;
  readonly longestMs: Readonly<Record<CallKind, number>>;
}

/** Faults after which the node is another process. */
const RESTARTS: ReadonlySet<FaultKind> = new Set(['kill', 'restart', 'drain']);

type Recovery = Pick<Outcome, 'survivors' | 'recoveryMs'> & { readonly allowedMs: number };

export interface ScenarioOptions {
  readonly network: FaultNetwork;
  /** For the schedule, the log and the nodes' output; emptied first. */
  readonly outputFolder: string;
  readonly canaries?: ReadonlyMap<number, readonly Canary[]>;
  /** Called again and again while faults happen. */
  readonly onTurn?: (cluster: FaultCluster, elapsedMs: number) => Promise<void>;
}

/** Runs a schedule from the start of the nodes to their end. */
export async function runScenario(schedule: Schedule, options: ScenarioOptions): Promise<Outcome> {
  const scenario = new Scenario(schedule, options);
  try {
    return await scenario.run();
  } finally {
    await scenario.end();
  }
}

class Scenario {
  readonly #schedule: Schedule;
  readonly #options: ScenarioOptions;
  readonly #cluster: FaultCluster;
  readonly #violations: Violation[] = [];
  /** Of processes that have ended: what they had counted when they were last asked. */
  readonly #progress = new Map<NodeProcess, Progress>();
  readonly #startMs = performance.now();
  /** From the begin to the end of each fault, by the clock that is shared. */
  readonly #faultTimes: [number, number][] = [];
  /** By node, the last fault that replaces its process. On a busy machine, the next one may be due before it has ended. */
  readonly #replacing = new Map<number, Promise<void>>();

  constructor(schedule: Schedule, options: ScenarioOptions) {
    this.#schedule = schedule;
    this.#options = options;
    const { outputFolder, network, canaries } = options;
    rmSync(outputFolder, { recursive: true, force: true });
    mkdirSync(outputFolder, { recursive: true });
    writeFileSync(join(outputFolder, 'schedule.json'), `${JSON.stringify(schedule, null, 1)}\n`);
    this.#cluster = new FaultCluster(schedule, {
      network,
      outputFolder,
      onViolation: (violation) => this.#violated(violation),
      ...(canaries === undefined ? {} : { canaries }),
    });
  }

  async run(): Promise<Outcome> {
    const cluster = this.#cluster;
    await cluster.start();
    await cluster.awaitMembers();
    cluster.isWorking = true;
    await this.#askAll({ what: 'work' });
    await this.#injectAll();
    const healedMs = performance.now();
    this.#log('healed');
    const { survivors, recoveryMs, allowedMs } = await this.#recover(healedMs);
    const boundMs = Math.max(ORDER_BOUND_MS, allowedMs);
    const readAgainMs = await this.#readAgain(boundMs);
    await this.#count();
    cluster.isWorking = false;
    const joinedMs = await this.#outages();
    await Promise.all(cluster.running().map((process) => process.close()));
    const readsJudged = this.#judgeOrder(readAgainMs, boundMs);
    return this.#outcome({ survivors, recoveryMs, readsJudged, joinedMs });
  }

  #outages(): Promise<number> {
    return sourceOutages({
      cluster: this.#cluster,
      nodes: this.#schedule.nodes,
      onViolation: (violation) => this.#violated(violation),
      onEvent: (what, fields) => this.#log(what, fields),
    });
  }

  async end(): Promise<void> {
    await this.#cluster.end();
  }

  /** Each fault from its time on for its duration; resolves when the last has ended and every node runs. */
  async #injectAll(): Promise<void> {
    const startMs = performance.now();
    const at = (atMs: number) => sleep(Math.max(0, startMs + atMs - performance.now()));
    const faults = [
      ...this.#schedule.faults.map((fault) => at(fault.atMs).then(() => this.#injectInTurn(fault))),
      this.#troubleSource(at),
    ];
    const endMs = startMs + this.#schedule.seconds * 1000;
    const ending = Promise.all([sleep(endMs - startMs), ...faults]).then(() => true);
    for (;;) {
      await this.#count();
      await this.#options.onTurn?.(this.#cluster, performance.now() - startMs);
      const isOver = await Promise.race([ending, sleep(1_000, false)]);
      if (isOver) return;
    }
  }

  /** The troubles of the source of addresses, one after the other. */
  async #troubleSource(at: (atMs: number) => Promise<unknown>): Promise<void> {
    for (const { trouble, atMs, durationMs } of this.#schedule.sourceFaults ?? []) {
      await at(atMs);
      this.#log('begin', { trouble, durationMs } satisfies Partial<SourceFault>);
      const end = await this.#cluster.source?.trouble(trouble);
      await sleep(durationMs);
      await end?.();
      this.#log('end', { trouble });
    }
  }

  /** Injects a fault. One that replaces the process of a node waits for the last such fault of that node to end. */
  #injectInTurn(fault: Fault): Promise<void> {
    if (!RESTARTS.has(fault.kind)) return this.#inject(fault);
    const earlier = Promise.all(fault.nodes.map((node) => this.#replacing.get(node)));
    const injected = earlier.then(() => this.#inject(fault));
    for (const node of fault.nodes) this.#replacing.set(node, injected);
    return injected;
  }

  async #inject(fault: Fault): Promise<void> {
    const { kind, nodes, peers, amount, durationMs } = fault;
    this.#log('begin', fault);
    const time: [number, number] = [sharedMs(), Number.POSITIVE_INFINITY];
    this.#faultTimes.push(time);
    for (const node of nodes) if (RESTARTS.has(kind)) await this.#take(node);
    await Promise.all(nodes.map((node) => this.#begin(fault, node)));
    if (kind === 'partition') for (const peer of peers) this.#cluster.setHears(peer, nodes, false);
    await sleep(durationMs);
    if (kind === 'partition') for (const peer of peers) this.#cluster.setHears(peer, nodes, true);
    await Promise.all(nodes.map((node) => this.#finish(fault, node)));
    time[1] = sharedMs();
    this.#log('end', { kind, nodes, amount });
  }

  async #begin({ kind, peers, amount, durationMs }: Fault, node: number): Promise<void> {
    const cluster = this.#cluster;
    const process = cluster.node(node);
    if (kind === 'kill') await process.kill();
    else if (kind === 'restart') await process.close();
    else if (kind === 'drain') await process.drain(durationMs);
    else if (kind === 'stop') process.stop();
    else if (kind === 'isolate') cluster.setLink(node, false);
    else if (kind === 'partition' || kind === 'oneway') cluster.setHears(node, peers, false);
    else if (kind === 'loss') cluster.setLoss(node, amount);
    else if (kind === 'diskfull') cluster.setDiskFull(node, true);
    else if (kind === 'clock') await cluster.jumpClock(node, amount);
    else await cluster.setProxyMode(node, proxyMode(kind, amount));
  }

  async #finish({ kind, peers }: Fault, node: number): Promise<void> {
    const cluster = this.#cluster;
    if (RESTARTS.has(kind)) await cluster.startNode(node);
    else if (kind === 'stop') cluster.node(node).continue();
    else if (kind === 'isolate') cluster.setLink(node, true);
    else if (kind === 'partition' || kind === 'oneway') cluster.setHears(node, peers, true);
    else if (kind === 'loss') cluster.setLoss(node, 0);
    else if (kind === 'diskfull') cluster.setDiskFull(node, false);
    else if (kind !== 'clock') await cluster.setProxyMode(node, { kind: 'pass' });
  }

  /**
   * What the nodes have is found from every node, or it is a violation. What they give up meanwhile need not be found.
   */
  async #recover(healedMs: number): Promise<Recovery> {
    const cluster = this.#cluster;
    await this.#count();
    const starvedBefore = new Map([...this.#progress].map(([process, { starvedMs }]) => [process, starvedMs]));
    let allowedMs = RECOVERY_MAX_MS;
    const leftMs = () => allowedMs - (performance.now() - healedMs);
    const allowForStarving = async () => {
      await this.#count();
      const starved = cluster.running().map((process) => {
        return (this.#progress.get(process)?.starvedMs ?? 0) - (starvedBefore.get(process) ?? 0);
      });
      allowedMs = RECOVERY_MAX_MS + Math.max(0, ...starved) + ownStalls.msWithin(healedMs, performance.now());
    };
    await this.#askAll({ what: 'rest' });
    await allowForStarving();
    await cluster.awaitMembers(Math.max(0, leftMs()));
    const first = await this.#survivors();
    let there = first;
    const missing = new Map(cluster.running().map((process) => [process, new Set(first.keys())]));
    for (;;) {
      await Promise.all([...missing].map(([process, keys]) => this.#find(process, keys)));
      await allowForStarving();
      const isComplete = [...missing.values()].every((keys) => keys.size === 0);
      if (isComplete) break;
      there = await this.#survivors();
      for (const keys of missing.values()) for (const key of keys) if (!there.has(key)) keys.delete(key);
      if (leftMs() <= 0) break;
      await sleep(FIND_PAUSE_MS);
    }
    const recoveryMs = Math.round(performance.now() - healedMs);
    for (const [{ node }, keys] of missing) {
      if (keys.size === 0) continue;
      const shown = [...keys].slice(0, 10).map((key) => `${key} of ${there.get(key)?.join(' and ')}`);
      const detail = `${keys.size} pages that are there were not found within ${Math.round(allowedMs)} ms: ${shown.join(', ')}`;
      this.#violated({ kind: 'lost', node, detail });
    }
    if (recoveryMs > allowedMs && [...missing.values()].every((keys) => keys.size === 0)) {
      this.#violated({ kind: 'lost', node: 0, detail: `all pages were found, but only after ${recoveryMs} ms` });
    }
    const gone = [...first]
      .filter(([key]) => !there.has(key))
      .map(([key, owners]) => `${key} of ${owners.join(' and ')}`);
    this.#log('recovered', { pages: first.size, recoveryMs, allowedMs: Math.round(allowedMs), gone });
    return { survivors: first.size, recoveryMs, allowedMs };
  }

  /**
   * Every node reads every key that has an order once more, when so much time has passed since the last statement;
   * returns when that began.
   */
  async #readAgain(boundMs: number): Promise<number> {
    await sleep(boundMs + MARGIN_MS);
    const writers = Array.from({ length: this.#schedule.nodes }, (_, i) => i + 1);
    const keys = [
      ...Array.from({ length: NAMED_KEYS_COUNT }, (_, index) => ({ writer: NAMED, index })),
      ...writers.flatMap((writer) => Array.from({ length: OWN_KEYS_COUNT }, (_, index) => ({ writer, index }))),
    ].map(keyText);
    const sinceMs = sharedMs();
    await Promise.all(this.#cluster.running().map((process) => this.#find(process, new Set(keys))));
    return sinceMs;
  }

  /** Holds each read against everything that was set, deleted and cleared; returns how many there were. */
  #judgeOrder(readAgainMs: number, boundMs: number): number {
    const { faults, promotesHotReads } = this.#schedule;
    const folder = this.#cluster.folder;
    const judge = new OrderJudge(orderEvents(folder), {
      faults: this.#faultTimes,
      hasClockFaults: faults.some(({ kind }) => kind === 'clock'),
      hasNoCopies: !promotesHotReads && !faults.some(({ kind }) => kind === 'drain'),
      boundMs,
      nameOf: keyName,
    });
    let count = 0;
    const troubled = new Set<number>();
    for (const event of orderEvents(folder)) {
      if (event.kind !== 'read') continue;
      count++;
      const problem = judge.problemOf(event);
      if (problem === undefined) continue;
      const kind = problem.rule === 'freed' ? 'freed' : 'order';
      this.#violated({ kind, node: event.node, detail: problem.detail });
      troubled.add(event.key);
    }
    for (const [key, contents] of disagreements(orderEvents(folder), readAgainMs)) {
      const detail = `in the end, nodes read different contents of ${keyName(key)}: ${[...contents].join(', ')}`;
      this.#violated({ kind: 'order', node: 0, detail });
      troubled.add(key);
    }
    for (const event of orderEvents(folder)) if (troubled.has(event.key)) this.#log('event', event);
    return count;
  }

  /** Takes out of `keys` what the node finds. */
  async #find(process: NodeProcess, keys: Set<string>): Promise<void> {
    if (keys.size === 0) return;
    try {
      const left = new Set(await process.ask<string[]>({ what: 'find', keys: [...keys] }, FIND_MAX_MS));
      for (const key of keys) if (!left.has(key)) keys.delete(key);
    } catch (error) {
      this.#violated({ kind: 'hang', node: process.node, detail: (error as Error).message });
      keys.clear();
    }
  }

  /** Keys of what the nodes have, and who has them where. */
  async #survivors(): Promise<Map<string, string[]>> {
    const owners = new Map<string, string[]>();
    await Promise.all(
      this.#cluster.running().map(async ({ node }) => {
        const pages = await this.#cluster
          .node(node)
          .ask<Survivor[]>({ what: 'survivors' })
          .catch(() => []);
        for (const { key, tier } of pages) owners.set(key, [...(owners.get(key) ?? []), `node ${node} (${tier})`]);
      }),
    );
    return owners;
  }

  async #askAll(ask: { what: 'work' } | { what: 'rest' }): Promise<void> {
    await Promise.all(
      this.#cluster.running().map((process) =>
        process.ask(ask, REST_MAX_MS).catch((error: Error) => {
          if (process.isRunning) this.#violated({ kind: 'hang', node: process.node, detail: error.message });
        }),
      ),
    );
  }

  /** What a process has counted until now; nothing when it is not able to say. */
  async #take(node: number): Promise<void> {
    const process = this.#cluster.node(node);
    if (!process.isRunning || process.isStopped) return;
    const progress = await process.ask<Progress>({ what: 'progress' }, 500).catch(() => undefined);
    if (progress !== undefined) this.#progress.set(process, progress);
  }

  async #count(): Promise<void> {
    await Promise.all(this.#cluster.running().map(({ node }) => this.#take(node)));
  }

  #outcome(results: Pick<Outcome, 'survivors' | 'recoveryMs' | 'readsJudged' | 'joinedMs'>): Outcome {
    const all = [...this.#progress.values()];
    const sum = (pick: (progress: Progress) => number) => all.reduce((total, each) => total + pick(each), 0);
    const counts = {
      pagesSet: sum((each) => each.pagesSet),
      setFailures: sum((each) => each.setFailures),
      hits: sum((each) => each.hits),
      misses: sum((each) => each.misses),
      remoteHits: sum((each) => each.remoteHits),
      diskHits: sum((each) => each.diskHits),
      checksumFailures: sum((each) => each.checksumFailures),
    };
    if (counts.pagesSet === 0 || counts.remoteHits === 0) {
      this.#violated({ kind: 'idle', node: 0, detail: `the workload did nothing: ${JSON.stringify(counts)}` });
    }
    const outcome = {
      seed: this.#schedule.seed,
      violations: this.#violations,
      faults: this.#schedule.faults.length,
      ...results,
      counts,
      calls: sum(({ calls }) => Object.values(calls).reduce((total, each) => total + each, 0)),
      starvedMs: sum((each) => each.starvedMs),
      longestMs: longest(all.map(({ longestMs }) => longestMs)),
    };
    writeFileSync(join(this.#options.outputFolder, 'outcome.json'), `${JSON.stringify(outcome, null, 1)}\n`);
    return outcome;
  }

  #violated(violation: Violation): void {
    this.#log('violation', violation);
    const alike = this.#violations.filter(({ kind, node }) => kind === violation.kind && node === violation.node);
    if (alike.length < VIOLATIONS_MAX_COUNT) this.#violations.push(violation);
  }

  #log(what: string, fields: object = {}): void {
    const line = { ms: Math.round(performance.now() - this.#startMs), time: new Date().toISOString(), what, ...fields };
    appendFileSync(join(this.#options.outputFolder, 'log.jsonl'), `${JSON.stringify(line)}\n`);
  }
}

function proxyMode(kind: Fault['kind'], amount: number): ProxyMode {
  if (kind === 'delay') return { kind, delayMs: amount };
  if (kind === 'drip') return { kind, bytesPerS: amount };
  if (kind === 'reset') return { kind, afterBytes: amount };
  return { kind: 'halfopen' };
}
