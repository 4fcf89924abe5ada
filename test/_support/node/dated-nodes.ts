import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import type { MeshCacheClient } from '../../../src/client/meshcache-client.js';
import { type CliRun, collect, firstLine, runCli, startCli } from '../cli/run-cli.js';
import { attach } from '../client/attached-nodes.js';
import { temporaryFolder } from '../disk/mounts.js';
import { content, freePort, until } from '../support.js';
import type { OtherDate } from './other-date.js';

const PAGE_BYTES = 4096;

export interface DatedNodeOptions {
  /** The date of the node's machine; left out: the right one. */
  readonly date?: OtherDate;
  readonly settings?: readonly string[];
  /** Environment variables, for settings that are secret. */
  readonly env?: Readonly<Record<string, string>>;
}

/** A node in a process of its own, on a machine with a date of its own. */
export class DatedNode {
  readonly nodeId: string;
  readonly #t: ExecutionContext;
  readonly #cluster: DatedCluster;
  readonly #options: DatedNodeOptions;
  readonly #socket: string;
  #child: ChildProcess | undefined;
  #client: MeshCacheClient | undefined;
  /** `host:port` of its metrics server, and of its door for Redis clients. */
  #metrics = '';
  #resp = '';
  #log = '';

  constructor(t: ExecutionContext, cluster: DatedCluster, nodeId: string, options: DatedNodeOptions) {
    this.#t = t;
    this.#cluster = cluster;
    this.nodeId = nodeId;
    this.#options = options;
    this.#socket = join(temporaryFolder(t), 'socket');
    t.teardown(() => void this.#child?.kill('SIGKILL'));
  }

  /** Starts the process; resolves with its end if it ends before it is ready. */
  async start(): Promise<CliRun | undefined> {
    const settings = [
      ...[`node_id=${this.nodeId}`, `client_socket=${this.#socket}`, 'metrics_port=0'],
      ...['protocol=tcp', 'local_hostname=127.0.0.1', ...(this.#options.settings ?? [])],
    ];
    const args = ['node', '--discovery-addr', this.#cluster.address, '--pool', '4mb', '--json'];
    const child = startCli([...args, ...settings.flatMap((setting) => ['-o', setting])], {
      env: { ...this.#options.env, ...this.#options.date?.env, MESHCACHE_LOG: 'info' },
    });
    this.#child = child;
    child.stderr?.on('data', (text: Buffer) => {
      this.#log += text.toString();
    });
    const ended = collect(child);
    const started = await firstLine(child).catch(() => undefined);
    if (started === undefined) return ended;
    const said = JSON.parse(started) as { metrics_endpoint: string; resp_endpoint: string };
    [this.#metrics, this.#resp] = [said.metrics_endpoint, said.resp_endpoint];
    this.#client = await attach(this.#t, this.#socket);
    return undefined;
  }

  /** Ends the process as a supervisor does. */
  async stop(): Promise<void> {
    const child = this.#child;
    await this.#client?.close();
    this.#client = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGTERM');
    await ended;
  }

  get client(): MeshCacheClient {
    if (this.#client === undefined) throw new Error(`${this.nodeId} does not run`);
    return this.#client;
  }

  /** `host:port` of its door for Redis clients; empty without one. */
  get respEndpoint(): string {
    return this.#resp;
  }

  /** What it has logged, also before it was started again. */
  get log(): string {
    return this.#log;
  }

  /** The sum of a metric over all its samples, or over those with a label such as `reason="clock"`. */
  async metric(name: string, label = ''): Promise<number> {
    const text = await (await fetch(`http://${this.#metrics}/metrics`)).text();
    const samples = text.split('\n').filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `));
    const lines = samples.filter((line) => line.includes(label));
    return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
  }

  async health(): Promise<string> {
    return (await fetch(`http://${this.#metrics}/healthz`)).text();
  }

  /** Sets pages whose bytes follow from their keys; all must be taken. */
  async setAll(keys: readonly string[], expiresInMs?: number): Promise<void> {
    const options = expiresInMs === undefined ? {} : { expiresInMs };
    const results = await Promise.all(keys.map((key) => this.client.set(key, pageOf(key), options)));
    if (results.includes(false)) throw new Error(`${this.nodeId} has not set ${keys[results.indexOf(false)]}`);
  }

  /** Sets pages until all are taken: a busy machine may not take some at first. */
  sets(keys: readonly string[], expiresInMs?: number): Promise<void> {
    const isTaken = () =>
      this.setAll(keys, expiresInMs).then(
        () => true,
        () => false,
      );
    return until(isTaken);
  }

  /** The keys whose pages cannot be read; a page that is read has its bytes. */
  async missing(keys: readonly string[]): Promise<string[]> {
    const pages = await Promise.all(keys.map((key) => this.client.get(key)));
    return keys.filter((key, i) => {
      const page = pages[i];
      if (page === null || page === undefined) return true;
      if (Buffer.compare(page, pageOf(key)) !== 0) throw new Error(`${key}: wrong bytes`);
      return false;
    });
  }
}

/** A cluster of real processes, of which some have other dates. */
export class DatedCluster {
  readonly address: string;
  readonly nodes: readonly DatedNode[];
  readonly #t: ExecutionContext;

  /** Starts nodes with the right date. */
  static async start(t: ExecutionContext, count: number, options: DatedNodeOptions = {}): Promise<DatedCluster> {
    const cluster = new DatedCluster(t, `127.0.0.1:${await freePort()}`, count, options);
    for (const node of cluster.nodes) {
      const end = await node.start();
      if (end !== undefined) throw new Error(`${node.nodeId} has ended: ${end.stderr}`);
    }
    await cluster.hasMembers(count);
    return cluster;
  }

  private constructor(t: ExecutionContext, address: string, count: number, options: DatedNodeOptions) {
    this.#t = t;
    this.address = address;
    this.nodes = Array.from({ length: count }, (_, i) => new DatedNode(t, this, `honest-${i}`, options));
  }

  /** One more node, which is not started yet. */
  node(nodeId: string, options: DatedNodeOptions): DatedNode {
    return new DatedNode(this.#t, this, nodeId, options);
  }

  /** Waits until all honest nodes know so many members. */
  async hasMembers(count: number): Promise<void> {
    await until(async () => {
      const members = await Promise.all(this.nodes.map((node) => node.metric('meshcache_members')));
      return members.every((known) => known === count);
    });
  }

  /** What `meshcache status` prints. */
  async status(): Promise<string> {
    const { stdout, stderr } = await runCli(['status', '--discovery-addr', this.address]);
    return stdout + stderr;
  }

  /** Waits until `meshcache status` says this: on a busy machine a node may answer too late at first. */
  says(expected: RegExp): Promise<void> {
    return until(async () => expected.test(await this.status()));
  }

  /**
   * Waits until all honest nodes read these pages: a busy machine may miss some at first, and what is lost is never
   * read.
   */
  reads(keys: readonly string[]): Promise<void> {
    return until(async () => (await this.missing(keys)).length === 0);
  }

  /** The keys that some honest node cannot read. */
  async missing(keys: readonly string[]): Promise<string[]> {
    const missing = await Promise.all(this.nodes.map((node) => node.missing(keys)));
    return [...new Set(missing.flat())];
  }
}

/** The page of a key. */
function pageOf(key: string): Uint8Array {
  return content(
    Buffer.from(key).reduce((sum, byte) => (sum * 31 + byte) >>> 0, 0),
    PAGE_BYTES,
  );
}
