import { shuffled } from '../../base/environment/random.js';
import { MeshCacheStore } from '../../node/meshcache-store.js';
import { CheckedStore } from '../check/checked-store.js';
import { FollowedPages } from '../check/followed-pages.js';
import type { ProcessId } from '../check/statements.js';
import { isLong } from '../scenario/scenario.js';
import { forkedRandom } from '../world/kernel/seeds.js';
import type { SimHost } from '../world/sim-host.js';
import type { SimProcess } from '../world/sim-process.js';
import { MixedCalls } from './mixed-calls.js';
import { nodeName, storageConfig } from './node-settings.js';
import { type RequestOutcome, RequestServing } from './requests.js';
import type { SimCluster } from './sim-cluster.js';

/** Most pages in all calls of a node at a time. */
const SLOTS_COUNT = 256;
/** Milliseconds between two attempts to start a node. */
const RESTART_AFTER_MS = 1_000;
/** Number of consecutive starts that may fail without an explaining fault before the run is given up. */
const FAILED_STARTS_MAX_COUNT = 10;
/** Milliseconds after which nothing may be left of a closed store. */
const CLOSED_AFTER_MS = 100;

/** The parts that exist while a node is up. */
export interface SimNodeRunning {
  readonly id: ProcessId;
  readonly process: SimProcess;
  readonly store: MeshCacheStore;
  readonly checked: CheckedStore;
  readonly calls: MixedCalls | undefined;
  readonly serving: RequestServing;
  /** A router's list of the node's pages; undefined for long workloads, which have too many pages. */
  readonly followed: FollowedPages | undefined;
}

/** One node of a simulated cluster: a process on a host, with a store and its callers. It may be started many times. */
export class SimNode {
  readonly number: number;
  readonly host: SimHost;
  /** Number of starts so far. */
  starts = 0;
  /** Number of consecutive starts that failed without an explaining fault. */
  #failedStarts = 0;
  readonly #cluster: SimCluster;
  readonly #frozen: { readonly fromMs: number; toMs: number }[] = [];
  #process: SimProcess | undefined;
  #running: SimNodeRunning | undefined;
  #isWorking = false;
  /** Number of the node's current life. An outcome with another number belongs to an earlier life. */
  #life = 0;
  #starting: Promise<void> | undefined;
  /** Resolves when a close in progress is over: true if the process was killed meanwhile. */
  #closing: Promise<boolean> | undefined;
  /** Resolves when the process ends without leaving the cluster. */
  #ended = new Promise<undefined>(() => {});
  #end: () => void = () => {};

  /** @internal Node `number` of a cluster, from 1. */
  constructor(cluster: SimCluster, host: SimHost, number: number) {
    this.#cluster = cluster;
    this.number = number;
    this.host = host;
  }

  get name(): string {
    return nodeName(this.number);
  }

  get process(): SimProcess | undefined {
    return this.#process;
  }

  /** The store; undefined while the node is down or starting. */
  get store(): MeshCacheStore | undefined {
    return this.#running?.store;
  }

  get checked(): CheckedStore | undefined {
    return this.#running?.checked;
  }

  get isUp(): boolean {
    return this.#running !== undefined;
  }

  /** Number of its process; undefined while the node is down. */
  get processNumber(): number | undefined {
    return this.#running?.id.process;
  }

  /**
   * Starts the node, if necessary repeatedly. Resolves when it is up, or has been killed meanwhile; rejects after too
   * many failed starts.
   */
  start(): Promise<void> {
    // A closing node keeps its ports until its process has ended.
    if (this.#closing !== undefined) {
      return this.#closing.then((wasKilled) => (wasKilled ? undefined : this.start()));
    }
    this.#starting ??= this.#start(++this.#life);
    return this.#starting;
  }

  /** Kills the process, as SIGKILL does. */
  kill(): void {
    this.#process?.kill();
    this.gone();
  }

  /** Notes that the process has ended without leaving the cluster. */
  gone(): void {
    this.#life++;
    const { checker } = this.#cluster;
    if (this.#process !== undefined) checker.cut({ node: this.number, process: this.#process.id });
    this.#running?.checked.free();
    this.goesOn();
    this.#process = undefined;
    this.#running = undefined;
    this.#starting = undefined;
    this.#end();
  }

  /** Closes the store as a program does, checks that nothing is left of it, and ends the process. */
  async close(): Promise<void> {
    const running = this.#running;
    if (running === undefined) return this.kill();
    this.#running = undefined;
    this.#closing = this.#close(running);
    await this.#closing;
  }

  /** Freezes the process until {@link thaw}; virtual time continues. */
  freeze(): void {
    this.#process?.stop();
    this.stands();
  }

  /** Lets the process run again. */
  thaw(): void {
    this.#process?.continue();
    this.goesOn();
  }

  /** Notes that the process is frozen: the time of its calls does not count from now on. */
  stands(): void {
    this.#frozen.push({ fromMs: this.#cluster.nowMs, toMs: Number.POSITIVE_INFINITY });
  }

  /** Notes that the process runs again. */
  goesOn(): void {
    const last = this.#frozen.at(-1);
    if (last !== undefined) last.toMs = Math.min(last.toMs, this.#cluster.nowMs);
  }

  /** Milliseconds since `sinceMs` for which the process was frozen. */
  frozenMs(sinceMs: number): number {
    const { nowMs } = this.#cluster;
    return this.#frozen.reduce((sum, { fromMs, toMs }) => {
      return sum + Math.max(0, Math.min(toMs, nowMs) - Math.max(fromMs, sinceMs));
    }, 0);
  }

  /** Runs the workload from now on, and after each start. */
  work(): void {
    this.#isWorking = true;
    const { process, calls } = this.#running ?? {};
    if (calls !== undefined) void process?.run(() => calls.start());
  }

  /** Stops the workload. Resolves when none of its calls is in progress. */
  async rest(): Promise<void> {
    this.#isWorking = false;
    const running = this.#running;
    if (running?.calls === undefined) return;
    await Promise.race([running.process.run(() => running.calls?.rest()), this.#ended]);
  }

  /** Serves a request; undefined if the node is down, or went down meanwhile. */
  async serve(keys: readonly string[]): Promise<RequestOutcome | undefined> {
    return this.run(({ serving }) => serving.serve(keys));
  }

  /** Runs `fn` as a part of the node's program; undefined if the node is down, or goes down meanwhile. */
  async run<T>(fn: (running: SimNodeRunning) => Promise<T>): Promise<T | undefined> {
    const running = this.#running;
    if (running === undefined) return undefined;
    return Promise.race([running.process.run(() => fn(running)), this.#ended]);
  }

  /** Closes the store, then ends the process. True if the process was killed meanwhile. */
  async #close(running: SimNodeRunning): Promise<boolean> {
    try {
      const isClosed = await this.#closed(running);
      if (isClosed) this.kill();
      return !isClosed;
    } finally {
      this.#closing = undefined;
      running.checked.free();
    }
  }

  /** Closes the store and checks what is left. False if the process was killed meanwhile. */
  async #closed({ process, store, checked, calls }: SimNodeRunning): Promise<boolean> {
    const life = this.#life;
    const closed = process.run(async () => {
      checked.closing();
      const rested = calls?.rest();
      await store.close();
      await rested;
    });
    await Promise.race([this.#whileAlive(closed), this.#ended]);
    if (life !== this.#life) return false;
    await this.#cluster.sleep(CLOSED_AFTER_MS);
    if (life !== this.#life) return false;
    const [rule] = Object.entries(process.counts).find(([, count]) => count > 0) ?? [];
    if (rule !== undefined) {
      const detail = `closed, and there are left: ${JSON.stringify(process.counts)}`;
      this.#cluster.checker.violated('leak', this.number, { rule, detail });
    }
    return true;
  }

  async #start(life: number): Promise<void> {
    while (life === this.#life && !this.isUp) {
      await this.#startOnce(life);
      if (life === this.#life && !this.isUp) await this.#cluster.sleep(RESTART_AFTER_MS);
    }
    if (life === this.#life) this.#starting = undefined;
  }

  async #startOnce(life: number): Promise<void> {
    const { scenario, checker, faults } = this.#cluster;
    if (!this.host.isUp) return;
    const process = this.host.start(this.name);
    this.#process = process;
    this.starts++;
    this.#ended = new Promise((resolve) => {
      this.#end = () => resolve(undefined);
    });
    const running = process.run(() => this.#create(process));
    try {
      const created = await Promise.race([running, this.#ended]);
      if (life !== this.#life || created === undefined) return;
      this.#running = created;
      checker.faults.started(process.id, this.#cluster.world.nowMs);
      this.#failedStarts = 0;
      if (this.#isWorking) this.work();
    } catch (error) {
      if (life !== this.#life) return;
      const { name, stack } = error as Error;
      process.kill();
      if (faults.isTroubled(this.host)) return;
      checker.violated('start', this.number, { rule: name, detail: `${scenario.seed}: ${stack}` });
      if (++this.#failedStarts === FAILED_STARTS_MAX_COUNT) throw error;
    }
  }

  async #create(process: SimProcess): Promise<SimNodeRunning> {
    const { scenario, checker, keys, createStore } = this.#cluster;
    const { shape, workload } = scenario;
    const node = this.number;
    const config = storageConfig(scenario, node);
    const { removalsMaxKeys } = shape;
    const order = forkedRandom(scenario.seed, 'order', process.id);
    const simulated = { removalsMaxKeys, shuffled: <T>(parts: readonly T[]) => shuffled(parts, order) };
    const env = { ...process.environment, simulated };
    const store = await (createStore?.(config, process) ?? MeshCacheStore.create(config, env));
    const id = { node, process: process.id };
    const checked = new CheckedStore(store, id, checker, {
      slots: SLOTS_COUNT,
      slotBytes: Math.ceil(shape.pageBytes / 8) * 8,
      pageBytes: shape.pageBytes,
      components: node % 2 === 0 ? 2 : 1,
    });
    for (const scope of this.#cluster.scopes) await checked.open(scope);
    const clock = process.programClock;
    const calls = keys === undefined ? undefined : new MixedCalls(keys, checked, { clock, start: this.starts });
    const computeMsPerPage = 'computeMsPerPage' in workload ? workload.computeMsPerPage : 0;
    const serving = new RequestServing(checked, clock, computeMsPerPage);
    const followed = isLong(scenario) ? undefined : new FollowedPages();
    followed?.follow(store);
    return { id, process, store, checked, calls, serving, followed };
  }

  /** Waits for `work`, and reports an error of it as a violation. Never rejects. */
  async #whileAlive(work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (error) {
      const { name, stack } = error as Error;
      this.#cluster.checker.violated('threw', this.number, { rule: `close: ${name}`, detail: String(stack) });
    }
  }
}
