import { type ChildProcess, spawn } from 'node:child_process';
import { createWriteStream, type WriteStream } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { ownStalls } from './own-stalls.js';
import type { Ask, FromNode, NodeSetup, ToNode, Violation } from './protocol.js';

const PROGRAM = fileURLToPath(new URL('./faults-node-program.js', import.meta.url));
/** Nodes start at once, on a machine with few processors. */
const START_TIMEOUT_MS = 60_000;
/** A store ends within seconds; what it is asked for and the machine's load come on top. */
export const CLOSE_MAX_MS = 5_000;
const EXIT_MAX_MS = 3_000;
/** A turn of the event loop that was so late is not explained by the machine's load. */
const STALL_MAX_MS = 3_000;
const OUTPUT_KEPT_CHARACTERS = 4_000;

interface Waiting {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

export interface NodeProcessOptions {
  readonly namespace: string;
  /** Its output is added to the end of this file. */
  readonly outputPath: string;
  readonly onViolation: (violation: Violation) => void;
}

/** One process of a node, from its start to its end. Whatever ends it but its owner is a violation. */
export class NodeProcess {
  readonly node: number;
  readonly #child: ChildProcess;
  readonly #options: NodeProcessOptions;
  readonly #waiting = new Map<number, Waiting>();
  readonly #output: WriteStream;
  readonly #exited: Promise<void>;
  /** When it was stopped by its owner, and let run again: [from, to]. */
  readonly #stops: [number, number][] = [];
  #lastOutput = '';
  #lastId = 0;
  #mayEnd = false;
  #hasExited = false;
  readonly #startOutcome: Promise<FromNode | 'ended'>;
  #onStarted: (outcome: FromNode) => void = () => {};

  constructor(setup: NodeSetup, options: NodeProcessOptions) {
    this.node = setup.node;
    this.#options = options;
    this.#output = createWriteStream(options.outputPath, { flags: 'a' });
    this.#child = spawn('ip', ['netns', 'exec', options.namespace, process.execPath, '--enable-source-maps', PROGRAM], {
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.on('data', (chunk: Buffer) => {
        this.#output.write(chunk);
        this.#lastOutput = (this.#lastOutput + chunk.toString()).slice(-OUTPUT_KEPT_CHARACTERS);
      });
    }
    this.#child.on('message', (message: FromNode) => this.#take(message));
    this.#child.on('error', () => {});
    this.#exited = new Promise((resolve) => {
      this.#child.once('close', (code, signal) => {
        this.#ended(code, signal);
        resolve();
      });
    });
    const answered = new Promise<FromNode>((resolve) => {
      this.#onStarted = resolve;
    });
    this.#startOutcome = Promise.race([answered, this.#exited.then(() => 'ended' as const)]);
    const first: ToNode = { setup };
    this.#child.send(first);
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  get isRunning(): boolean {
    return !this.#hasExited;
  }

  get isStopped(): boolean {
    const last = this.#stops.at(-1);
    return last !== undefined && last[1] === Number.POSITIVE_INFINITY;
  }

  /** Resolves when the node has joined the cluster, or was killed; a node that does not start is a violation. */
  async started(): Promise<void> {
    const outcome = await Promise.race([this.#startOutcome, sleep(START_TIMEOUT_MS, 'late' as const, { ref: false })]);
    if (outcome === 'late' && !this.isStopped) this.#violation('start', `has not started after ${START_TIMEOUT_MS} ms`);
    if (typeof outcome === 'object' && outcome.kind === 'failed') {
      this.#violation('start', `${outcome.code} ${outcome.message}`);
      await this.kill();
    }
  }

  /** Rejects when the process ends before it answers, or does not answer in time. */
  async ask<T>(ask: Ask, timeoutMs = 30_000): Promise<T> {
    const id = ++this.#lastId;
    const answer = new Promise<unknown>((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      if (this.#hasExited) reject(new Error(`node ${this.node} has ended`));
      else this.#child.send({ id, ask } satisfies ToNode, () => {});
    });
    const late = sleep(timeoutMs, undefined, { ref: false }).then(() => {
      throw new Error(`node ${this.node} has not answered "${ask.what}" after ${timeoutMs} ms`);
    });
    try {
      return (await Promise.race([answer, late])) as T;
    } finally {
      this.#waiting.delete(id);
    }
  }

  async kill(): Promise<void> {
    this.#mayEnd = true;
    this.#child.kill('SIGKILL');
    await this.#exited;
  }

  stop(): void {
    this.#stops.push([performance.now(), Number.POSITIVE_INFINITY]);
    this.#child.kill('SIGSTOP');
  }

  continue(): void {
    const last = this.#stops.at(-1);
    if (last !== undefined) last[1] = performance.now();
    this.#child.kill('SIGCONT');
  }

  /** Has the node leave its cluster in good order, for as long as it is given, and closes it. */
  async drain(maxMs: number): Promise<void> {
    await this.#startOutcome;
    // A node that does not answer, or takes longer, is closed as it is.
    await this.ask({ what: 'drain', timeoutMs: maxMs / 2 }, maxMs).catch(() => {});
    await this.close();
  }

  /** Closes the store; the process must then end by itself. */
  async close(): Promise<void> {
    // On a slow machine it may be starting still.
    await this.#startOutcome;
    this.#mayEnd = true;
    if (this.#hasExited) return;
    try {
      const startMs = performance.now();
      const tookMs = await this.ask<number>({ what: 'close' }, CLOSE_MAX_MS + 10_000);
      if (tookMs - ownStalls.msWithin(startMs, performance.now()) > CLOSE_MAX_MS)
        this.#violation('close', `took ${Math.round(tookMs)} ms`);
      const isOver = await Promise.race([this.#exited.then(() => true), sleep(EXIT_MAX_MS, false, { ref: false })]);
      if (!isOver) this.#violation('close', `the process does not end: something is left behind`);
    } catch (error) {
      this.#violation('close', String((error as Error).message));
    }
    await this.kill();
  }

  #take(message: FromNode): void {
    if (message.kind === 'ready' || message.kind === 'failed') this.#onStarted(message);
    else if (message.kind === 'violation') this.#options.onViolation(message.violation);
    else if (message.kind === 'stall') this.#judgeStall(message.ms);
    else {
      const waiting = this.#waiting.get(message.id);
      if (message.error === undefined) waiting?.resolve(message.value);
      else waiting?.reject(new Error(message.error));
    }
  }

  /** What is not explained by the times for which the process was stopped, or the suite had no turn either. */
  #judgeStall(ms: number): void {
    const endMs = performance.now();
    const startMs = endMs - ms;
    const stoppedMs = this.#stops.reduce(
      (sum, [from, to]) => sum + Math.max(0, Math.min(to, endMs) - Math.max(from, startMs)),
      0,
    );
    if (ms - stoppedMs - ownStalls.msWithin(startMs, endMs) > STALL_MAX_MS)
      this.#violation('stall', `the event loop had no turn for ${ms} ms`);
  }

  #ended(code: number | null, signal: string | null): void {
    this.#hasExited = true;
    this.#output.end();
    const error = new Error(`node ${this.node} has ended`);
    for (const { reject } of this.#waiting.values()) reject(error);
    if (this.#mayEnd && (code === 0 || signal === 'SIGKILL')) return;
    this.#violation('crash', `ended with ${code ?? signal}:\n${this.#lastOutput}`);
  }

  #violation(kind: Violation['kind'], detail: string): void {
    this.#options.onViolation({ kind, node: this.node, detail });
  }
}
