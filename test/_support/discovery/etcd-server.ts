import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { ExecutionContext } from 'ava';
import { findProgram } from '../../../src/processes/programs.js';
import { freePort, freeze, until } from '../support.js';

const PROGRAM = await findProgram('etcd');
const CONTROL = await findProgram('etcdctl');
export const hasEtcd = PROGRAM !== undefined && CONTROL !== undefined;

/**
 * Servers of a cluster choose another leader after 3 s instead of 1: a busy machine and disk make them wait that long,
 * too.
 */
const PATIENT = ['--heartbeat-interval=300', '--election-timeout=3000'];

/** Characters of the end of a server's log that an error shows if the server does not start. */
const LOG_CHARS = 4_000;

/** Certificates of a server, PEM files. */
export interface EtcdTls {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

/** An etcd of a test, on loopback, with its data in a folder of its own. */
export class EtcdServer {
  readonly port: number;
  /** `name:password` for etcdctl, once users are asked for. */
  user: string | undefined;
  readonly #peerPort: number;
  readonly #folder: string;
  readonly #tls: EtcdTls | undefined;
  readonly #more: readonly string[];
  /** `name=peer` of all servers of its cluster, comma-separated. */
  #cluster: string;
  #data = 0;
  #process: ChildProcess | undefined;

  private constructor(
    port: number,
    peerPort: number,
    { tls, more = [] }: { tls?: EtcdTls | undefined; more?: readonly string[] },
  ) {
    this.port = port;
    this.#peerPort = peerPort;
    this.#tls = tls;
    this.#more = more;
    this.#cluster = this.#member;
    this.#folder = mkdtempSync(join(tmpdir(), 'meshcache-etcd-'));
  }

  /**
   * Starts one, which ends with the test. With `tls` it talks only to those who show a certificate of the same
   * authority.
   */
  static async start(t: ExecutionContext, tls?: EtcdTls, more: readonly string[] = []): Promise<EtcdServer> {
    const server = new EtcdServer(await freePort(), await freePort(), { tls, more });
    server.#endWith(t);
    await server.up();
    return server;
  }

  /** Starts a cluster of several, which end with the test. */
  static async startCluster(t: ExecutionContext, count: number): Promise<EtcdServer[]> {
    const servers: EtcdServer[] = [];
    for (let i = 0; i < count; i++) servers.push(new EtcdServer(await freePort(), await freePort(), { more: PATIENT }));
    const cluster = servers.map((server) => server.#member).join();
    for (const server of servers) {
      server.#cluster = cluster;
      server.#endWith(t);
    }
    await Promise.all(servers.map((server) => server.up()));
    return servers;
  }

  #endWith(t: ExecutionContext): void {
    t.teardown(async () => {
      await this.stop();
      rmSync(this.#folder, { recursive: true, force: true });
    });
  }

  get addr(): string {
    return `${this.#tls === undefined ? 'etcd' : 'etcds'}://127.0.0.1:${this.port}`;
  }

  /** Starts it again with the data that it has; resolves when it answers. */
  async up(): Promise<void> {
    const client = `${this.#tls === undefined ? 'http' : 'https'}://127.0.0.1:${this.port}`;
    const peer = `http://127.0.0.1:${this.#peerPort}`;
    const { ca, cert, key } = this.#tls ?? {};
    const secured =
      this.#tls === undefined
        ? []
        : [`--cert-file=${cert}`, `--key-file=${key}`, `--trusted-ca-file=${ca}`, '--client-cert-auth'];
    const urls = [`--listen-client-urls=${client}`, `--advertise-client-urls=${client}`];
    const peers = [`--listen-peer-urls=${peer}`, `--initial-advertise-peer-urls=${peer}`];
    const args = [
      `--data-dir=${this.#folderOfData}`,
      ...urls,
      ...peers,
      `--name=${this.#name}`,
      `--initial-cluster=${this.#cluster}`,
      ...secured,
      ...this.#more,
    ];
    const server = spawn(PROGRAM as string, args, { stdio: ['ignore', 'ignore', 'pipe'] });
    this.#process = server;
    let log = '';
    server.stderr.setEncoding('utf8').on('data', (text: string) => {
      log = (log + text).slice(-LOG_CHARS);
    });
    const isAnswering = () =>
      this.control('endpoint', 'health').then(
        () => true,
        () => {
          const end = server.exitCode ?? server.signalCode;
          if (end !== null) throw new Error(`etcd has ended with ${end}`);
          return false;
        },
      );
    await until(isAnswering).catch((cause: Error) => {
      throw new Error(`etcd does not start: ${cause.message}; its log ends with:\n${log}`, { cause });
    });
  }

  /** Runs etcdctl; resolves with what it prints. */
  async control(...args: string[]): Promise<string> {
    const { ca, cert, key } = this.#tls ?? {};
    const secured = this.#tls === undefined ? [] : [`--cacert=${ca}`, `--cert=${cert}`, `--key=${key}`];
    const env = { ...process.env, ETCDCTL_API: '3', ...(this.user === undefined ? {} : { ETCDCTL_USER: this.user }) };
    const place = [`--endpoints=127.0.0.1:${this.port}`, '--command-timeout=2s', ...secured];
    return (await promisify(execFile)(CONTROL as string, [...place, ...args], { env })).stdout;
  }

  /** Has it ask for users from now on: `node` with the password `node-password` may read and write below `prefix`. */
  async addUser(prefix: string): Promise<void> {
    await this.control('user', 'add', 'root:root-password');
    await this.control('user', 'grant-role', 'root', 'root').catch(async () => {
      await this.control('role', 'add', 'root');
      await this.control('user', 'grant-role', 'root', 'root');
    });
    await this.control('user', 'add', 'node:node-password');
    await this.control('role', 'add', 'nodes');
    await this.control('role', 'grant-permission', 'nodes', 'readwrite', '--prefix=true', prefix);
    await this.control('user', 'grant-role', 'node', 'nodes');
    await this.control('auth', 'enable');
    this.user = 'root:root-password';
  }

  freeze(): Promise<void> {
    return freeze(this.#process);
  }

  thaw(): void {
    this.#process?.kill('SIGCONT');
  }

  /** Kills it; its data stay. */
  async stop(): Promise<void> {
    const process = this.#process;
    this.#process = undefined;
    if (process === undefined || process.exitCode !== null) return;
    const ended = new Promise((resolve) => process.once('close', resolve));
    process.kill('SIGKILL');
    await ended;
  }

  /** Starts it again without any data. */
  async wipe(): Promise<void> {
    await this.stop();
    this.#data++;
    await this.up();
  }

  /** Saves a snapshot, and returns the path of its file. */
  async save(): Promise<string> {
    const path = join(this.#folder, 'snapshot');
    await this.control('snapshot', 'save', path);
    return path;
  }

  /** Starts it again with the data of a snapshot. */
  async restore(path: string): Promise<void> {
    await this.stop();
    this.#data++;
    const peer = `http://127.0.0.1:${this.#peerPort}`;
    const member = [
      `--name=${this.#name}`,
      `--initial-cluster=${this.#member}`,
      `--initial-advertise-peer-urls=${peer}`,
    ];
    await this.control('snapshot', 'restore', path, `--data-dir=${this.#folderOfData}`, ...member);
    await this.up();
  }

  get #name(): string {
    return `etcd-${this.port}`;
  }

  get #member(): string {
    return `${this.#name}=http://127.0.0.1:${this.#peerPort}`;
  }

  get #folderOfData(): string {
    return join(this.#folder, `data-${this.#data}`);
  }
}
