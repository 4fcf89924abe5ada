import { MeshCacheStore } from '../../node/meshcache-store.js';
import { CheckedStore } from '../check/checked-store.js';
import type { Checker } from '../check/checker.js';
import type { ProcessId } from '../check/statements.js';
import type { Scenario } from '../scenario/scenario.js';
import { MixedCalls } from '../workload/mixed-calls.js';
import type { MixedKeys } from '../workload/mixed-keys.js';
import { type RequestOutcome, RequestServing } from '../workload/request-serving.js';
import { forkedRandom } from '../world/kernel/seeds.js';
import type { SimHost } from '../world/sim-host.js';
import type { SimProcess } from '../world/sim-process.js';
import type { World } from '../world/world.js';
import { nodeName, storageConfig } from './node-settings.js';

/** Pages of one call of a serving program, and pages that all calls of a node have at once. */
const BATCH_PAGES = 64;
const SLOTS_COUNT = 256;
/** A node that did not start, or ended by itself, is started again after this. */
const RESTART_AFTER_MS = 1_000;
/** So many starts fail one after the other, and should not have: then the node is given up, and the run with it. */
const FAILED_STARTS_MAX_COUNT = 10;
/** What a closed store has left is gone by then. */
const CLOSED_AFTER_MS = 100;

export interface SimNodeParts {
  readonly world: World;
  readonly host: SimHost;
  readonly scenario: Scenario;
  readonly node: number;
  readonly checker: Checker;
  /** Of the mixed workload. */
  readonly keys: MixedKeys | undefined;
  /** Whether it is to be expected that a start fails now: no memory, no disk. */
  readonly mayFail: () => boolean;
  /** What makes a store; default: `MeshCacheStore.create`. Tests plant faults here. */
  readonly createStore?:
    | ((config: ReturnType<typeof storageConfig>, process: SimProcess) => Promise<MeshCacheStore>)
    | undefined;
}

/** What runs while a node is up. */
export interface SimNodeRunning {
  readonly id: ProcessId;
  readonly process: SimProcess;
  readonly store: MeshCacheStore;
  readonly checked: CheckedStore;
  readonly calls: MixedCalls | undefined;
  readonly serving: RequestServing;
}

/** One node of a simulated cluster: a process on a host, with a store and what calls it, started again and again. */
export class SimNode {
  readonly number: number;
  readonly host: SimHost;
  /** Starts so far. */
  starts = 0;
  /** Of these, the last ones that failed and should not have. */
  #failedStarts = 0;
  readonly #parts: SimNodeParts;
  readonly #frozen: { readonly fromMs: number; toMs: number }[] = [];
  #process: SimProcess | undefined;
  #running: SimNodeRunning | undefined;
  #isWorking = false;
  /** Counts what makes the outcome of a start, or of anything else that takes time, one of an earlier life. */
  #life = 0;
  #starting: Promise<void> | undefined;
  /** Resolves when the process ends without a good-bye. */
  #ended = new Promise<undefined>(() => {});
  #end: () => void = () => {};

  constructor(parts: SimNodeParts) {
    this.#parts = parts;
    this.number = parts.node;
    this.host = parts.host;
  }

  get name(): string {
    return nodeName(this.number);
  }

  get process(): SimProcess | undefined {
    return this.#process;
  }

  /** Undefined: it is down, or on its way. */
  get store(): MeshCacheStore | undefined {
    return this.#running?.store;
  }

  get checked(): CheckedStore | undefined {
    return this.#running?.checked;
  }

  get isUp(): boolean {
    return this.#running !== undefined;
  }

  /** Starts it until it is up, again when that fails. Resolves then, or when it is killed meanwhile; rejects when it is given up. */
  start(): Promise<void> {
    this.#starting ??= this.#start(++this.#life);
    return this.#starting;
  }

  /** As SIGKILL. */
  kill(): void {
    this.#process?.kill();
    this.gone();
  }

  /** Its process has ended without a good-bye. */
  gone(): void {
    this.#life++;
    const { checker } = this.#parts;
    if (this.#process !== undefined) checker.cut({ node: this.number, process: this.#process.id });
    this.#running?.checked.free();
    this.goesOn();
    this.#process = undefined;
    this.#running = undefined;
    this.#starting = undefined;
    this.#end();
  }

  /** Closed as a program closes its store, and ends. Checks what is left then. */
  async close(): Promise<void> {
    const running = this.#running;
    if (running === undefined) return this.kill();
    this.#running = undefined;
    try {
      if (await this.#closed(running)) this.kill();
    } finally {
      running.checked.free();
    }
  }

  /** Its process stands still until {@link thaw}; time goes on. */
  freeze(): void {
    this.#process?.stop();
    this.stands();
  }

  /** Its process runs again. */
  thaw(): void {
    this.#process?.continue();
    this.goesOn();
  }

  /** From now on its time does not count. */
  stands(): void {
    this.#frozen.push({ fromMs: this.#parts.world.nowMs, toMs: Number.POSITIVE_INFINITY });
  }

  /** Its calls go on. */
  goesOn(): void {
    const last = this.#frozen.at(-1);
    if (last !== undefined) last.toMs = Math.min(last.toMs, this.#parts.world.nowMs);
  }

  /** For how long it has stood still since then. */
  frozenMs(sinceMs: number): number {
    const { nowMs } = this.#parts.world;
    return this.#frozen.reduce((sum, { fromMs, toMs }) => {
      return sum + Math.max(0, Math.min(toMs, nowMs) - Math.max(fromMs, sinceMs));
    }, 0);
  }

  /** From now on, and after each start, its workload runs. */
  work(): void {
    this.#isWorking = true;
    const { process, calls } = this.#running ?? {};
    if (calls !== undefined) void process?.run(() => calls.start());
  }

  /** Resolves when no call of its workload is under way. */
  async rest(): Promise<void> {
    this.#isWorking = false;
    const running = this.#running;
    if (running?.calls === undefined) return;
    await Promise.race([running.process.run(() => running.calls?.rest()), this.#ended]);
  }

  /** Undefined: it went away meanwhile, or is down. */
  async serve(keys: readonly string[]): Promise<RequestOutcome | undefined> {
    return this.run(({ serving }) => serving.serve(keys));
  }

  /** Runs `fn` as a part of its program; undefined when it is down, or goes down meanwhile. */
  async run<T>(fn: (running: SimNodeRunning) => Promise<T>): Promise<T | undefined> {
    const running = this.#running;
    if (running === undefined) return undefined;
    return Promise.race([running.process.run(() => fn(running)), this.#ended]);
  }

  /** Closes the store, and looks at what is left then. False: the process was killed meanwhile. */
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
    await this.#sleep(CLOSED_AFTER_MS);
    if (life !== this.#life) return false;
    const [rule] = Object.entries(process.counts).find(([, count]) => count > 0) ?? [];
    if (rule !== undefined) {
      const detail = `closed, and there are left: ${JSON.stringify(process.counts)}`;
      this.#parts.checker.violated('leak', this.number, { rule, detail });
    }
    return true;
  }

  async #start(life: number): Promise<void> {
    while (life === this.#life && !this.isUp) {
      await this.#startOnce(life);
      if (life === this.#life && !this.isUp) await this.#sleep(RESTART_AFTER_MS);
    }
    if (life === this.#life) this.#starting = undefined;
  }

  async #startOnce(life: number): Promise<void> {
    const { scenario, checker, mayFail, node } = this.#parts;
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
      this.#failedStarts = 0;
      if (this.#isWorking) this.work();
    } catch (error) {
      if (life !== this.#life) return;
      const { name, stack } = error as Error;
      process.kill();
      if (mayFail()) return;
      checker.violated('start', node, { rule: name, detail: `${scenario.seed}: ${stack}` });
      if (++this.#failedStarts === FAILED_STARTS_MAX_COUNT) throw error;
    }
  }

  async #create(process: SimProcess): Promise<SimNodeRunning> {
    const { scenario, node, checker, keys, createStore } = this.#parts;
    const { shape, workload, seed, nodes } = scenario;
    const config = storageConfig(scenario, node);
    const store = await (createStore?.(config, process) ?? MeshCacheStore.create(config, process.environment));
    const id = { node, process: process.id };
    const checked = new CheckedStore(store, id, checker, {
      slots: SLOTS_COUNT,
      slotBytes: Math.ceil(shape.pageBytes / 8) * 8,
      pageBytes: shape.pageBytes,
      components: node % 2 === 0 ? 2 : 1,
    });
    const scopes = workload.kind === 'mixed' ? ['', ...workload.namespaces] : [''];
    for (const scope of scopes) await checked.open(scope);
    const { clock } = process;
    const random = forkedRandom(seed, 'calls', node, this.starts);
    const calls =
      workload.kind === 'mixed' && keys !== undefined
        ? new MixedCalls({ workload, keys, store: checked, node, nodes, clock, random })
        : undefined;
    const computeMsPerPage = 'computeMsPerPage' in workload ? workload.computeMsPerPage : 0;
    const serving = new RequestServing({ store: checked, clock, computeMsPerPage, batchPages: BATCH_PAGES });
    return { id, process, store, checked, calls, serving };
  }

  /** What `work` throws is a violation; resolves in any case. */
  async #whileAlive(work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (error) {
      const { name, stack } = error as Error;
      this.#parts.checker.violated('threw', this.number, { rule: `close: ${name}`, detail: String(stack) });
    }
  }

  #sleep(ms: number): Promise<void> {
    const { world } = this.#parts;
    return new Promise((resolve) => world.at(world.nowMs + ms, resolve));
  }
}
