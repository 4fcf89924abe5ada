import { type ChildProcess, execFile, fork, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { ExecutionContext } from 'ava';
import type { RandomSource } from '../../src/base/environment/random.js';
import type {
  LateWritesNodeAsk,
  LateWritesNodeMessage,
  LateWritesNodeSetup,
} from '../_programs/stress/late-writes-node.js';
import { freePort, freeze, PATIENCE_MS, until } from '../_support/support.js';
import { Valve } from '../_support/transport/valve.js';

const NODE_PROGRAM = fileURLToPath(new URL('./stress-late-writes-node.js', import.meta.url));
const ENGINE_PROGRAM = 'test/python/late_writes.py';
/** Of what the valve holds, about a page. */
const PART_MAX_BYTES = 100_000;
const PAUSE_MAX_MS = 15;
/** Longer than a node waits for the next bytes of a read that was aborted. */
const LONG_PAUSE_MS = 200;

/** A node in a process of its own, which is started anew as often as a test wants. */
export class NodeProcess {
  readonly #setup: LateWritesNodeSetup;
  #child: ChildProcess;
  #hasEnded = false;
  dataPort = 0;

  static async start(t: ExecutionContext, setup: LateWritesNodeSetup): Promise<NodeProcess> {
    const node = new NodeProcess(setup);
    t.teardown(() => void node.#child.kill('SIGKILL'));
    await node.#ready();
    return node;
  }

  private constructor(setup: LateWritesNodeSetup) {
    this.#setup = setup;
    this.#child = this.#fork();
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** A stopped process stays so until {@link thaw}, or until it is killed. */
  freeze(): Promise<void> {
    return freeze(this.#child);
  }

  thaw(): void {
    this.#child.kill('SIGCONT');
  }

  /** Ends the connections of its clients. */
  cut(): void {
    this.#child.send({ cut: true } satisfies LateWritesNodeAsk);
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await until(() => this.#hasEnded);
  }

  /** After its end. */
  async restart(): Promise<void> {
    this.#child = this.#fork();
    await this.#ready();
  }

  #fork(): ChildProcess {
    this.#hasEnded = false;
    const child = fork(NODE_PROGRAM);
    child.once('exit', () => {
      this.#hasEnded = true;
    });
    child.on('error', () => {});
    child.send(this.#setup);
    return child;
  }

  async #ready(): Promise<void> {
    const child = this.#child;
    const message = await new Promise<LateWritesNodeMessage>((resolve, reject) => {
      child.once('message', resolve);
      child.once('exit', (code, signal) => reject(new Error(`the node has ended with ${code ?? signal}`)));
    });
    if (message.kind === 'failed') throw new Error(message.error);
    this.dataPort = message.dataPort;
  }
}

/** What `late_writes.py` takes. */
export interface EngineOptions {
  readonly seed: number;
  readonly rounds: number;
  readonly threads: number;
  readonly maxTimeoutMs: number;
  readonly endFrozenNode: boolean;
  readonly fenceTimeoutMs: number;
  readonly withoutFence: boolean;
}

/** What it says; times in seconds. */
export interface EngineReport {
  readonly rounds: number;
  readonly whole: number;
  readonly part: number;
  readonly none: number;
  readonly hits: number;
  readonly expired: number;
  readonly absent: number;
  readonly wrong_pages: number;
  readonly changed_bytes: number;
  readonly changed_slots: number;
  readonly longest_overrun: number;
  /** Calls that should have ended by now. */
  readonly overdue: number;
  readonly errors: readonly string[];
  /** Of the last report alone. */
  readonly fences?: number;
  readonly nodes_ended?: number;
  readonly connections_lost?: number;
  readonly reconnects?: number;
  readonly done?: true;
}

/** A process with threads that read pages and use their memory again. */
export class Engine {
  readonly #child: ChildProcess;
  readonly #ended: Promise<void>;
  #hasEnded = false;
  #stderr = '';
  latest: EngineReport | undefined;

  constructor(t: ExecutionContext, socket: string, options: EngineOptions) {
    this.#child = spawn('python3', [ENGINE_PROGRAM, JSON.stringify({ socket, ...options })], {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' },
    });
    t.teardown(() => void this.#child.kill('SIGKILL'));
    this.#child.stdin?.on('error', () => {});
    this.#child.stderr?.on('data', (chunk: Buffer) => {
      this.#stderr += chunk;
    });
    const lines = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream });
    lines.on('line', (line) => {
      this.latest = JSON.parse(line) as EngineReport;
    });
    const closed = new Promise<void>((resolve) => lines.once('close', resolve));
    const exited = new Promise<void>((resolve) => this.#child.once('close', () => resolve()));
    this.#ended = Promise.all([closed, exited]).then(() => {
      this.#hasEnded = true;
    });
  }

  /** Waits until what it has said last fulfils a condition. Rejects when it has ended before, or it takes too long. */
  async until(condition: (report: EngineReport) => boolean): Promise<EngineReport> {
    await until(() => {
      if (this.#hasEnded && this.latest?.done !== true) throw new Error(`the engine has failed: ${this.#stderr}`);
      return this.latest !== undefined && condition(this.latest);
    });
    return this.latest as EngineReport;
  }

  /** Waits until it has read so many pages more. */
  async served(pages = 1): Promise<void> {
    const { hits } = this.latest ?? { hits: 0 };
    await this.until((report) => report.hits >= hits + pages);
  }

  /** Lets it end when its rounds are played. */
  async finish(patienceMs: number): Promise<EngineReport> {
    this.#child.stdin?.end();
    const giveUp = AbortSignal.timeout(patienceMs);
    await Promise.race([this.#ended, new Promise((resolve) => giveUp.addEventListener('abort', resolve))]);
    if (this.latest?.done !== true) {
      throw new Error(`the engine has not come to its end: ${JSON.stringify(this.latest)} ${this.#stderr}`);
    }
    return this.latest;
  }
}

/** What lets bytes through. */
export interface Throttle {
  /** Nothing gets through. */
  isShut: boolean;
}

/** The owner of the pages, a valve, and the node that engines are attached to. */
export interface LateWritesCluster {
  readonly valve: Valve;
  readonly throttle: Throttle;
  readonly node: NodeProcess;
  readonly clientSocket: string;
}

/**
 * Lets bytes through in bursts, with pauses of random length: most bursts are a part of what is held, so that a read is
 * in the midst of its bytes, and every few let all of it through, so that reads succeed too.
 */
function startThrottle(t: ExecutionContext, valve: Valve, random: RandomSource): Throttle {
  const state: Throttle = { isShut: false };
  let timer: NodeJS.Timeout;
  const burst = (): void => {
    timer = setTimeout(burst, random.u32() % 60 === 0 ? LONG_PAUSE_MS : 1 + (random.u32() % PAUSE_MAX_MS));
    if (state.isShut) return;
    const isAll = random.u32() % 3 === 0;
    for (const connection of valve.connections) {
      const bytes = isAll ? connection.heldBytes : Math.min(connection.heldBytes, random.u32() % PART_MAX_BYTES);
      if (!connection.isClosed && bytes > 0) connection.pass(bytes);
    }
  };
  timer = setTimeout(burst, 0);
  t.teardown(() => clearTimeout(timer));
  return state;
}

function fillByPython(ownerSocket: string): Promise<unknown> {
  const args = [ENGINE_PROGRAM, JSON.stringify({ fill: ownerSocket })];
  return promisify(execFile)('python3', args, { timeout: 2 * PATIENCE_MS });
}

/** `fill` sets pages at the owner; by default those that an {@link Engine} reads. */
export async function startLateWritesCluster(
  t: ExecutionContext,
  random: RandomSource,
  fill: (ownerSocket: string) => Promise<unknown> = fillByPython,
): Promise<LateWritesCluster> {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-late-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const discoveryPort = await freePort();
  const ownerSocket = join(folder, 'owner.sock');
  const clientSocket = join(folder, 'node.sock');
  const owner = await NodeProcess.start(t, { discoveryPort, clientSocket: ownerSocket });
  await fill(ownerSocket);
  const valve = await Valve.open(t, `127.0.0.1:${owner.dataPort}`);
  valve.budgetBytes = 4096;
  const detour = { from: owner.dataPort, to: Number(valve.endpoint.split(':')[1]) };
  const node = await NodeProcess.start(t, { discoveryPort, clientSocket, detour });
  return { valve, throttle: startThrottle(t, valve, random), node, clientSocket };
}
