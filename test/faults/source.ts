import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** A server outside of the cluster by which nodes find each other. */
export type SourceKind = 'dns' | 'etcd';

/**
 * What happens to it. `stop`: it is killed and started again; `freeze`: SIGSTOP, then SIGCONT; `wipe`: it has no data
 * at all; `old`: it has those of before: DNS the addresses of dead hosts while it lasts, etcd at the end the snapshot
 * of the beginning.
 */
export const SOURCE_TROUBLES = ['stop', 'freeze', 'wipe', 'old'] as const;
export type SourceTrouble = (typeof SOURCE_TROUBLES)[number];

export interface SourceOptions {
  readonly kind: SourceKind;
  /** Network namespace in which it runs, and its address there. */
  readonly namespace: string;
  readonly host: string;
  /** Folder of its data. */
  readonly folder: string;
  /** Addresses of the nodes, and port of their masters. */
  readonly nodes: readonly string[];
  readonly masterPort: number;
}

const PORTS = { dns: 53, etcd: 2379 } as const;
const PEER_PORT = 2380;
const NAME = 'nodes.test';
const START_TIMEOUT_MS = 15_000;
const DEAD_ADDRESSES = ['10.89.0.241', '10.89.0.242', '10.89.0.243', '10.89.0.244'];
const PROGRAMS = { dns: ['dnsmasq'], etcd: ['etcd', 'etcdctl'] } as const;

/** Why there cannot be such a server here; undefined: there can. */
export function whyNoSource(kind: SourceKind): string | undefined {
  const missing = PROGRAMS[kind].find((program) => spawnSync(program, ['--version']).error !== undefined);
  return missing && `needs ${missing} (Debian: apt install dnsmasq-base etcd-server etcd-client)`;
}

/** A real dnsmasq or etcd for the nodes of one run. */
export class SourceServer {
  readonly #options: SourceOptions;
  #process: ChildProcess | undefined;
  #addresses: readonly string[];
  #data = 0;

  constructor(options: SourceOptions) {
    this.#options = options;
    this.#addresses = options.nodes;
  }

  /** The `discovery_addr` of all nodes. */
  get addr(): string {
    const { kind, host, masterPort } = this.#options;
    return kind === 'dns' ? `dns://${host}/${NAME}:${masterPort}` : `etcd://${host}:${PORTS.etcd}/faults`;
  }

  /** Resolves when it listens. */
  async start(): Promise<void> {
    const { kind, namespace, folder } = this.#options;
    mkdirSync(folder, { recursive: true });
    const [program, args] = kind === 'dns' ? this.#dnsmasq() : this.#etcd();
    const child = spawn('ip', ['netns', 'exec', namespace, program, ...args], { stdio: 'ignore' });
    this.#process = child;
    const giveUpAt = performance.now() + START_TIMEOUT_MS;
    while (!this.#isListening(child)) {
      if (child.exitCode !== null) throw new Error(`${program} has ended with ${child.exitCode}`);
      if (performance.now() > giveUpAt) throw new Error(`${program} does not listen after ${START_TIMEOUT_MS} ms`);
      await sleep(20);
    }
  }

  async stop(): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'close');
    child.kill('SIGKILL');
    await ended;
  }

  /** Begins a trouble. The result ends it, and resolves when the server is as it was. */
  async trouble(trouble: SourceTrouble): Promise<() => Promise<void>> {
    if (trouble === 'freeze') {
      const child = this.#process;
      child?.kill('SIGSTOP');
      return async () => void child?.kill('SIGCONT');
    }
    if (trouble === 'stop') {
      await this.stop();
      return () => this.start();
    }
    if (this.#options.kind === 'dns') {
      await this.#serve(trouble === 'wipe' ? [] : DEAD_ADDRESSES);
      return () => this.#serve(this.#options.nodes);
    }
    if (trouble === 'old') {
      const snapshot = join(this.#options.folder, `snapshot-${this.#data}`);
      this.#control('snapshot', 'save', snapshot);
      return () => this.#restart(snapshot);
    }
    await this.#restart();
    return async () => {};
  }

  async #serve(addresses: readonly string[]): Promise<void> {
    this.#addresses = addresses;
    await this.stop();
    await this.start();
  }

  /** Starts etcd again, with the data of a snapshot or none. */
  async #restart(snapshot?: string): Promise<void> {
    await this.stop();
    this.#data++;
    if (snapshot !== undefined) {
      this.#control('snapshot', 'restore', snapshot, `--data-dir=${this.#dataFolder}`, ...this.#member());
    }
    await this.start();
  }

  #dnsmasq(): [string, string[]] {
    const { folder, host } = this.#options;
    const hosts = join(folder, 'hosts');
    writeFileSync(hosts, this.#addresses.map((address) => `${address} ${NAME}\n`).join(''));
    const fixed = ['--keep-in-foreground', '--conf-file=/dev/null', '--no-hosts', '--no-resolv', '--pid-file='];
    const data = [`--listen-address=${host}`, '--bind-interfaces', '--user=root', '--local=/test/', '--local-ttl=1'];
    return ['dnsmasq', [...fixed, ...data, `--addn-hosts=${hosts}`]];
  }

  #etcd(): [string, string[]] {
    const { host } = this.#options;
    const client = `http://${host}:${PORTS.etcd}`;
    const urls = [`--listen-client-urls=${client}`, `--advertise-client-urls=${client}`];
    const peer = `--listen-peer-urls=http://${host}:${PEER_PORT}`;
    return ['etcd', [`--data-dir=${this.#dataFolder}`, ...urls, peer, ...this.#member()]];
  }

  #member(): string[] {
    const peer = `http://${this.#options.host}:${PEER_PORT}`;
    return [`--initial-advertise-peer-urls=${peer}`, `--initial-cluster=default=${peer}`];
  }

  #control(...args: readonly string[]): void {
    const { namespace, host } = this.#options;
    const command = ['netns', 'exec', namespace, 'etcdctl', `--endpoints=${host}:${PORTS.etcd}`, ...args];
    const { status, stderr } = spawnSync('ip', command, {
      env: { ...process.env, ETCDCTL_API: '3' },
      encoding: 'utf8',
    });
    if (status !== 0) throw new Error(`etcdctl ${args.join(' ')}: ${stderr}`);
  }

  get #dataFolder(): string {
    return join(this.#options.folder, `data-${this.#data}`);
  }

  /** Whether a socket in the namespace of the process listens on the port. */
  #isListening({ pid }: ChildProcess): boolean {
    const { kind } = this.#options;
    const port = `:${PORTS[kind].toString(16).toUpperCase().padStart(4, '0')} `;
    // Until the program runs, the process is in the namespace of this one.
    const isThere = readText(`/proc/${pid}/comm`).trim() !== 'ip';
    const sockets = readText(`/proc/${pid}/net/${kind === 'dns' ? 'udp' : 'tcp'}`).split('\n');
    const states = kind === 'dns' ? sockets : sockets.filter((line) => line.split(/\s+/)[4] === '0A');
    return isThere && states.some((line) => line.includes(port));
  }
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
