import { type ChildProcess, fork } from 'node:child_process';
import { mkdir, mkdtemp, rm, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../../base/environment/clock.js';
import { formatSize } from '../../base/sizes.js';
import { CommandFailure } from '../../command/context.js';
import type { DiskSizes } from '../../disk/disk-store.js';
import { findFreePort, LOOPBACK } from '../../processes/free-port.js';
import { systemClock } from '../../system/system-clock.js';
import { systemRandom } from '../../system/system-random.js';
import type {
  AgentCommand,
  AgentReply,
  AgentSetup,
  AgentStarted,
  AgentStatus,
  KeptLoad,
  RunResult,
} from './agent-protocol.js';

/**
 * How long nodes may take to start, in milliseconds. A busy emulated machine needs most of a minute; a process that
 * dies is noticed at once.
 */
const START_TIMEOUT_MS = 120_000;
/** How long a process may take to end before it is killed, in milliseconds; longer than it waits for its node. */
const PROCESS_END_TIMEOUT_MS = 10_000;
/** Characters kept from the end of a process's stderr, for the error message if it dies. */
const STDERR_TAIL_CHARS = 8_192;

interface ClusterOptions {
  readonly nodes: number;
  readonly pageBytes: number;
  readonly components: 1 | 2;
  /** Configuration of every node except the discovery address; snake_case keys. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Further configuration of one node, by its index from 0. */
  readonly nodeConfig?: (index: number) => Readonly<Record<string, unknown>>;
  /** Whether the processes may outlive this one ({@link Cluster.keep}). */
  readonly mayBeKept?: boolean;
  /** Whether node logs go to stderr at once. Without it, only the end of a dead node's log is shown. */
  readonly isLogShown?: boolean;
  /** Address of a cluster that the nodes join. Default: one of their own on loopback. */
  readonly discoveryAddr?: string;
  /** A program, with its first arguments, that starts the process of a node. */
  readonly under?: (index: number) => readonly string[];
  /** Aborting closes the cluster and fails pending calls. */
  readonly signal?: AbortSignal;
}

/** Node processes on loopback that find each other through a discovery address of their own. */
export class Cluster {
  readonly discoveryAddr: string;
  readonly #options: ClusterOptions;
  readonly #agents: ClusterAgent[];

  private constructor(discoveryAddr: string, options: ClusterOptions) {
    this.discoveryAddr = discoveryAddr;
    this.#options = options;
    this.#agents = Array.from({ length: options.nodes }, (_, index) => new ClusterAgent(index, options));
  }

  /** The agents in order of their index; a restarted node has a new agent. */
  get agents(): readonly ClusterAgent[] {
    return this.#agents;
  }

  /**
   * Starts the cluster. Resolves when every node sees all nodes. Throws {@link CommandFailure}, and then leaves nothing
   * behind.
   */
  static async start(options: ClusterOptions): Promise<Cluster> {
    options.signal?.throwIfAborted();
    const discoveryAddr = options.discoveryAddr ?? `${LOOPBACK}:${await findFreePort(systemRandom)}`;
    const cluster = new Cluster(discoveryAddr, options);
    options.signal?.addEventListener('abort', () => void cluster.close(), { once: true });
    try {
      await withDeadline(systemClock, START_TIMEOUT_MS, 'the nodes did not come up', async () => {
        await Promise.all(cluster.agents.map((agent) => agent.start(cluster.#setupOf(agent.index))));
        await Promise.all(cluster.agents.map((agent) => agent.awaitMembers(options.nodes)));
      });
    } catch (error) {
      await cluster.close();
      throw error;
    }
    return cluster;
  }

  /** Kills a node as a crash would. Resolves when its process is gone; later calls of its agent fail. */
  async kill(index: number): Promise<void> {
    await (this.#agents[index] as ClusterAgent).kill();
  }

  /** Starts a killed node again with its former configuration. Resolves when it sees all nodes. */
  async restart(index: number): Promise<void> {
    this.#options.signal?.throwIfAborted();
    const agent = new ClusterAgent(index, this.#options);
    this.#agents[index] = agent;
    await withDeadline(systemClock, START_TIMEOUT_MS, `node ${index} did not come up again`, async () => {
      await agent.start(this.#setupOf(index));
      await agent.awaitMembers(this.#options.nodes);
    });
  }

  /**
   * Lets the nodes run on when this process ends; they stop on SIGTERM. The requests of `load` are distributed
   * round-robin; each node repeats its share at its own pace.
   */
  async keep({ requests, pauseMs }: KeptLoad): Promise<void> {
    const ofNode = (index: number) => requests.filter((_, i) => i % this.agents.length === index);
    await Promise.all(this.agents.map((agent) => agent.keep({ requests: ofNode(agent.index), pauseMs })));
  }

  /**
   * Ends all processes except kept ones; a process that takes too long is killed. Resolves when all have ended.
   * Idempotent.
   */
  async close(): Promise<void> {
    await Promise.all(this.agents.map((agent) => agent.close()));
  }

  #setupOf(index: number): AgentSetup {
    const { pageBytes, components, config, nodeConfig } = this.#options;
    // With RDMA, nodes are reachable at the address of a device, not only on loopback. They need no authentication:
    // they run briefly, with made-up pages.
    const first = { local_hostname: LOOPBACK, allow_unauthenticated: true };
    const all = { ...first, ...config, discovery_addr: this.discoveryAddr, ...nodeConfig?.(index) };
    return { config: all, pageBytes, components };
  }
}

interface PendingCall {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

/**
 * One node process, seen from the program that started it. If the process dies, every call fails with the end of its
 * stderr.
 */
export class ClusterAgent {
  /** Position in the cluster, from 0. */
  readonly index: number;
  readonly #child: ChildProcess;
  readonly #pending = new Map<number, PendingCall>();
  readonly #exited: Promise<void>;
  #nextId = 1;
  #metricsEndpoint = '';
  #isMeta = false;
  #protocol = '';
  #transportReason = '';
  #stderrTail = '';
  #death: CommandFailure | undefined;
  #isKept = false;

  constructor(index: number, options: Pick<ClusterOptions, 'mayBeKept' | 'isLogShown' | 'under'>) {
    this.index = index;
    const [program = process.execPath, ...words] = [...(options.under?.(index) ?? []), process.execPath];
    this.#child = fork(fileURLToPath(new URL('./cluster-agent.js', import.meta.url)), {
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      detached: options.mayBeKept === true,
      execPath: program,
      execArgv: [...words, ...process.execArgv],
    });
    this.#child.on('message', (reply: AgentReply) => this.#onReply(reply));
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#stderrTail = (this.#stderrTail + text).slice(-STDERR_TAIL_CHARS);
      if (options.isLogShown) process.stderr.write(text);
    });
    this.#exited = this.#awaitEnd();
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** `host:port` of the node's metrics server; empty before `start` and when it has none. */
  get metricsEndpoint(): string {
    return this.#metricsEndpoint;
  }

  /** Whether discovery runs in this node. */
  get isMeta(): boolean {
    return this.#isMeta;
  }

  /** Transport of the node's reads; empty before `start`. */
  get protocol(): string {
    return this.#protocol;
  }

  /** Why the node does not use the transport that it was configured for; `as configured` if it does. */
  get transportReason(): string {
    return this.#transportReason;
  }

  async start(setup: AgentSetup): Promise<AgentStarted> {
    const started = (await this.#call({ kind: 'start', setup })) as AgentStarted;
    this.#metricsEndpoint = started.metricsEndpoint;
    this.#isMeta = started.isMeta;
    this.#protocol = started.protocol;
    this.#transportReason = started.transportReason;
    return started;
  }

  async awaitMembers(count: number): Promise<void> {
    await this.#call({ kind: 'await-members', count });
  }

  /**
   * Executes requests in order. Runs of one agent must not overlap. With `atMs`, their time in a trace, other nodes hear
   * of the reads of their pages by {@link tellReads} only.
   */
  async run(requests: readonly (readonly string[])[], atMs?: number): Promise<RunResult> {
    return (await this.#call({ kind: 'run', requests, atMs })) as RunResult;
  }

  /** Tells other nodes of the reads of requests up to this time of the trace. Resolves when they know. */
  async tellReads(untilMs: number): Promise<void> {
    await this.#call({ kind: 'tell-reads', untilMs });
  }

  async status(): Promise<AgentStatus> {
    return (await this.#call({ kind: 'status' })) as AgentStatus;
  }

  async keep(load: KeptLoad): Promise<void> {
    await this.#call({ kind: 'keep', load });
    this.#isKept = true;
    this.#child.disconnect();
    this.#child.stderr?.destroy();
    this.#child.unref();
  }

  /** Ends the process with SIGKILL; resolves when it is gone. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#exited;
  }

  async close(): Promise<void> {
    if (this.#isKept) return;
    if (this.#death !== undefined || !this.#child.connected) return this.#exited;
    const cancel = systemClock.after(PROCESS_END_TIMEOUT_MS, () => this.#child.kill('SIGKILL'), { keepAlive: true });
    this.#call({ kind: 'close' }).then(
      () => this.#child.disconnect(),
      () => this.#child.kill('SIGKILL'),
    );
    await this.#exited;
    cancel();
  }

  #call(command: DistributiveOmit<AgentCommand, 'id'>): Promise<unknown> {
    if (this.#death !== undefined) return Promise.reject(this.#death);
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject });
      this.#child.send({ ...command, id } as AgentCommand, (error) => {
        // If the process dies, `#awaitEnd` rejects its calls with the reason; this is for a message that cannot be
        // sent.
        if (error !== null && this.#child.connected) this.#settle(id, (call) => call.reject(error));
      });
    });
  }

  /** Resolves when the process has ended and its output is complete. (No `close` event comes after `disconnect()`.) */
  async #awaitEnd(): Promise<void> {
    const outputEnded = new Promise((resolve) => this.#child.stderr?.once('close', resolve));
    const how = await new Promise<string>((resolve) => {
      this.#child.once('error', (error) => resolve(`could not be started: ${error.message}`));
      this.#child.once('exit', (status, signal) => {
        resolve(signal === null ? `ended with status ${status}` : `was ended by ${signal}`);
      });
    });
    await outputEnded;
    const words = this.#stderrTail.trim();
    const tail = words === '' ? '' : `; it wrote last:\n${words}`;
    this.#death = new CommandFailure(`node ${this.index} (process ${this.pid}) ${how}${tail}`);
    for (const id of [...this.#pending.keys()]) this.#settle(id, (call) => call.reject(this.#death as Error));
  }

  #onReply(reply: AgentReply): void {
    this.#settle(reply.id, (call) => {
      if (!('error' in reply)) return call.resolve(reply.value);
      const failure = new CommandFailure(`node ${this.index}: ${reply.error.message}`);
      if (reply.error.stack !== undefined) failure.stack = reply.error.stack;
      call.reject(failure);
    });
  }

  #settle(id: number, settle: (call: PendingCall) => void): void {
    const call = this.#pending.get(id);
    if (call === undefined) return;
    this.#pending.delete(id);
    settle(call);
  }
}

type DistributiveOmit<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never;

async function withDeadline<T>(clock: Clock, timeoutMs: number, failure: string, work: () => Promise<T>): Promise<T> {
  let cancel = (): void => {};
  const timeout = new Promise<never>((_, reject) => {
    const onTimeout = (): void => reject(new CommandFailure(`${failure} within ${timeoutMs / 1000} s`));
    cancel = clock.after(timeoutMs, onTimeout, { keepAlive: true });
  });
  try {
    return await Promise.race([work(), timeout]);
  } finally {
    cancel();
  }
}

/** Temporary folders for the disk tiers of a cluster's nodes. */
export class NodeFolders {
  /** Parent of the folders of all nodes. */
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  /**
   * Creates a folder in `parent` (default: the system's temporary folder), which is created if missing. Throws {@link
   * CommandFailure} if `parent` is not writable or lacks room for `totalBytes`.
   */
  static async create(parent: string | undefined, totalBytes: number): Promise<NodeFolders> {
    const path = parent ?? tmpdir();
    let folder: string;
    try {
      await mkdir(path, { recursive: true });
      folder = await mkdtemp(join(path, 'meshcache-'));
    } catch (cause) {
      throw new CommandFailure(
        `cannot make folders for the disks below ${path}: ${(cause as Error).message}`,
        undefined,
        {
          cause,
        },
      );
    }
    const folders = new NodeFolders(folder);
    const { bavail, bsize } = await statfs(folder);
    if (bavail * bsize >= totalBytes) return folders;
    await folders.remove();
    throw new CommandFailure(
      `the disks will take ${formatSize(totalBytes)} and ${formatSize(bavail * bsize)} are free below ${path}: ` +
        'choose another folder (--disk-path), smaller pages or smaller disks',
    );
  }

  /** Configuration (snake_case keys) of node `index`, counted from 0, with a disk tier of this size. */
  config(index: number, { maxBytes, indexBytes }: DiskSizes): Record<string, unknown> {
    const path = join(this.path, `node-${index}`);
    const indexSize = indexBytes === undefined ? {} : { disk_index_size: indexBytes };
    return { disk_enabled: true, disk_path: path, disk_size: maxBytes, ...indexSize };
  }

  /** Removes all folders with their content. The nodes must have ended. */
  async remove(): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
  }
}
