import { type ChildProcess, fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type {
  NamedAsk,
  NamedContents,
  NamedCounts,
  NamedMessage,
  NamedSetup,
} from '../_programs/stress/named-agent.js';
import { freePort } from '../_support/support.js';
import { OrderJudge, type OrderOptions, orderEvents, sharedMs } from '../faults/order.js';
import { keyName } from '../faults/pages.js';

type Common = Pick<NamedSetup, 'config' | 'firstKey' | 'keys'>;

/** One process of a node. */
export class NamedNode {
  readonly #child: ChildProcess;
  readonly #ended: Promise<void>;
  /** Of the time when it was asked last. */
  counts: NamedCounts = { setsTrue: 0, setsFalse: 0, reads: 0, hits: 0, members: 0, problems: [] };
  isRunning = true;

  constructor(setup: NamedSetup) {
    this.#child = fork(new URL('./stress-named-agent.js', import.meta.url));
    this.#ended = new Promise((resolve) => {
      this.#child.once('exit', () => {
        this.isRunning = false;
        resolve();
      });
    });
    this.#child.send(setup);
  }

  ready(): Promise<void> {
    return this.#reply(({ kind }) => kind === 'ready').then(() => {});
  }

  async count(): Promise<NamedCounts> {
    this.counts = (await this.#ask('count')) as NamedCounts;
    return this.counts;
  }

  /** Resolves when no call is under way. */
  async rest(): Promise<void> {
    await this.#ask('rest');
  }

  async readAll(): Promise<NamedContents> {
    return (await this.#ask('readAll')) as NamedContents;
  }

  /** As a program closes it. */
  async close(): Promise<void> {
    await this.count();
    this.#child.send('close' satisfies NamedAsk);
    await this.#ended;
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#ended;
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#child.kill(signal);
  }

  async #ask(ask: NamedAsk): Promise<unknown> {
    const reply = this.#reply((message) => message.kind === 'reply' && message.ask === ask);
    this.#child.send(ask);
    const message = await reply;
    return message.kind === 'reply' ? message.value : undefined;
  }

  #reply(isIt: (message: NamedMessage) => boolean): Promise<NamedMessage> {
    return new Promise((resolve, reject) => {
      const onMessage = (message: NamedMessage) => {
        if (!isIt(message)) return;
        this.#child.off('message', onMessage);
        resolve(message);
      };
      this.#child.on('message', onMessage);
      void this.#ended.then(() => reject(new Error('the process has ended before it answered')));
    });
  }
}

/** Processes that set and read the same named keys, and what they have noted. */
export class NamedCluster {
  readonly folder = mkdtempSync(join(tmpdir(), 'meshcache-named-'));
  readonly #common: Common;
  readonly #port: number;
  readonly #all: NamedNode[] = [];

  private constructor(common: Common, port: number) {
    this.#common = common;
    this.#port = port;
  }

  static async create(common: Common): Promise<NamedCluster> {
    return new NamedCluster(common, await freePort());
  }

  /** Nodes that run now. */
  get nodes(): NamedNode[] {
    return this.#all.filter(({ isRunning }) => isRunning);
  }

  async start(node: number, setPercent: number): Promise<NamedNode> {
    const { folder } = this;
    const started = new NamedNode({ ...this.#common, node, setPercent, folder, seed: 5, discoveryPort: this.#port });
    this.#all.push(started);
    await started.ready();
    return started;
  }

  /** Sums over all processes, the ended ones included. */
  async totals(): Promise<NamedCounts> {
    await Promise.all(this.nodes.map((node) => node.count().catch(() => {})));
    const sum = (pick: (counts: NamedCounts) => number) =>
      this.#all.reduce((total, { counts }) => total + pick(counts), 0);
    return {
      setsTrue: sum((counts) => counts.setsTrue),
      setsFalse: sum((counts) => counts.setsFalse),
      reads: sum((counts) => counts.reads),
      hits: sum((counts) => counts.hits),
      members: this.nodes.length,
      problems: this.#all.flatMap(({ counts }) => counts.problems),
    };
  }

  /** What was read and was too old then; of all processes that have ended. */
  tooOld(options: OrderOptions): string[] {
    const judge = new OrderJudge(orderEvents(this.folder), { nameOf: keyName, ...options });
    const found: string[] = [];
    for (const event of orderEvents(this.folder)) {
      const problem = event.kind === 'read' ? judge.problemOf(event) : undefined;
      if (problem !== undefined) found.push(problem.detail);
    }
    return found;
  }

  async end(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.kill()));
    rmSync(this.folder, { recursive: true });
  }
}

/** Times of faults, for {@link OrderOptions}. */
export class FaultTimes {
  readonly all: [number, number][] = [];

  async during(fault: () => Promise<void>): Promise<void> {
    const time: [number, number] = [sharedMs(), Number.POSITIVE_INFINITY];
    this.all.push(time);
    await fault();
    time[1] = sharedMs();
  }
}
