import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type FaultNetwork, HUB_HOST, hostOf, isSuite, PORTS } from './network.js';
import { NodeProcess } from './node-process.js';
import type { Canary, Violation } from './protocol.js';
import type { ProxyMode } from './proxy.js';
import type { Schedule } from './schedule.js';
import { SourceServer } from './source.js';

const PROXY_PROGRAM = fileURLToPath(new URL('./faults-proxy-program.js', import.meta.url));
const FOLDER = /^meshcache-faults-(\d+)$/;
const OWN_FOLDER = join(tmpdir(), `meshcache-faults-${process.pid}`);
const MIB = 2 ** 20;
/** Not all pages of a node have room in its pool; most have on its disk. */
const POOL_BYTES = 2 * MIB;
const DISK_BYTES = 12 * MIB;
const TMPFS_BYTES = 14 * MIB;
const JOIN_TIMEOUT_MS = 15_000;
const SECRET = 'the secret of the fault suite';

export interface ClusterOptions {
  readonly network: FaultNetwork;
  /** Of the run; the output of the nodes goes there. */
  readonly outputFolder: string;
  readonly onViolation: (violation: Violation) => void;
  /** Planted faults by node. */
  readonly canaries?: ReadonlyMap<number, readonly Canary[]>;
}

/** The processes of one run, in their namespaces, and what may be done to them. */
export class FaultCluster {
  readonly #schedule: Schedule;
  readonly #options: ClusterOptions;
  /** Logs of the workload and disks. */
  readonly folder = OWN_FOLDER;
  readonly #nodes = new Map<number, NodeProcess>();
  readonly #proxies = new Map<number, ChildProcess>();
  readonly #clockOffsetsMs = new Map<number, number>();
  readonly #unheard = new Map<number, Set<number>>();
  readonly #lossPercent = new Map<number, number>();
  /** Where the nodes find each other; undefined: by a list of addresses. */
  readonly source: SourceServer | undefined;
  isWorking = false;

  constructor(schedule: Schedule, options: ClusterOptions) {
    this.#schedule = schedule;
    this.#options = options;
    const { source: kind, nodes } = schedule;
    const place = { namespace: options.network.hub, host: HUB_HOST, folder: join(this.folder, 'source') };
    const hosts = Array.from({ length: nodes }, (_, i) => hostOf(i + 1));
    this.source = kind && new SourceServer({ kind, ...place, nodes: hosts, masterPort: PORTS.discovery });
  }

  /** Nodes that run now, stopped ones included. */
  running(): NodeProcess[] {
    return [...this.#nodes.values()].filter(({ isRunning }) => isRunning);
  }

  node(node: number): NodeProcess {
    return this.#nodes.get(node) as NodeProcess;
  }

  async start(): Promise<void> {
    const { network } = this.#options;
    rmSync(this.folder, { recursive: true, force: true });
    mkdirSync(this.folder, { recursive: true });
    for (const node of this.#schedule.disks) this.#mountDisk(node);
    network.heal();
    await this.source?.start();
    network.setProxied(this.#schedule.proxied);
    await Promise.all(this.#schedule.proxied.map((node) => this.#startProxy(node)));
    await Promise.all(Array.from({ length: this.#schedule.nodes }, (_, i) => this.startNode(i + 1)));
  }

  /** Until every node sees every node; a violation when they do not. */
  async awaitMembers(timeoutMs = JOIN_TIMEOUT_MS): Promise<void> {
    const giveUpAt = performance.now() + timeoutMs;
    const wanted = Array.from({ length: this.#schedule.nodes }, (_, i) => nodeId(i + 1)).join();
    for (;;) {
      const processes = this.running();
      const seen = await Promise.all(
        processes.map((process) => process.ask<string[]>({ what: 'members' }).catch(() => [] as string[])),
      );
      if (seen.length === this.#schedule.nodes && seen.every((members) => members.join() === wanted)) return;
      if (performance.now() > giveUpAt) {
        seen.forEach((members, i) => {
          if (members.join() === wanted) return;
          const { node } = processes[i] as NodeProcess;
          this.#options.onViolation({ kind: 'membership', node, detail: `sees ${members.join() || 'nobody'}` });
        });
        return;
      }
      await sleep(50);
    }
  }

  /** Resolves when the node has joined; it works when the others do. */
  async startNode(node: number): Promise<void> {
    const { network, outputFolder, onViolation, canaries } = this.#options;
    const started = new NodeProcess(
      {
        node,
        nodes: this.#schedule.nodes,
        seed: this.#schedule.seed,
        folder: this.folder,
        extraConfig: this.#configOf(node),
        clockOffsetMs: this.#clockOffsetsMs.get(node) ?? 0,
        canaries: canaries?.get(node) ?? [],
      },
      { namespace: network.nameOf(node), outputPath: join(outputFolder, `node-${node}.log`), onViolation },
    );
    this.#nodes.set(node, started);
    await started.started();
    if (this.isWorking && started.isRunning) await started.ask({ what: 'work' }).catch(() => {});
  }

  /** Packets of `peers` do not reach the node any more, or do again. */
  setHears(node: number, peers: readonly number[], hears: boolean): void {
    const unheard = this.#unheard.get(node) ?? new Set();
    for (const peer of peers) {
      if (hears) unheard.delete(peer);
      else unheard.add(peer);
    }
    this.#unheard.set(node, unheard);
    this.#setBarrier(node);
  }

  setLoss(node: number, percent: number): void {
    this.#lossPercent.set(node, percent);
    this.#setBarrier(node);
  }

  setLink(node: number, isUp: boolean): void {
    this.#options.network.setLink(node, isUp);
  }

  async setProxyMode(node: number, mode: ProxyMode): Promise<void> {
    const proxy = this.#proxies.get(node);
    if (proxy === undefined) return;
    const isSet = once(proxy, 'message');
    proxy.send(mode);
    await isSet;
  }

  /** Takes what is left of the node's disk, or gives it back. */
  setDiskFull(node: number, isFull: boolean): void {
    const path = join(this.#diskOf(node), 'others');
    if (!isFull) {
      rmSync(path, { force: true });
      return;
    }
    const block = new Uint8Array(64 * 1024);
    const fd = openSync(path, 'w');
    try {
      for (let size = block.length; size >= 4096; size /= 16) fillWith(fd, block.subarray(0, size));
    } finally {
      closeSync(fd);
    }
  }

  async jumpClock(node: number, ms: number): Promise<void> {
    this.#clockOffsetsMs.set(node, (this.#clockOffsetsMs.get(node) ?? 0) + ms);
    const process = this.node(node);
    if (process.isRunning && !process.isStopped) await process.ask({ what: 'jump', ms }).catch(() => {});
  }

  /** Ends everything, by force what does not end by itself. */
  async end(): Promise<void> {
    for (const process of this.running()) await process.kill();
    for (const proxy of this.#proxies.values()) proxy.kill('SIGKILL');
    await this.source?.stop();
    this.#options.network.heal();
    removeFolder(this.folder);
  }

  #setBarrier(node: number): void {
    const unheard = this.#unheard.get(node) ?? new Set<number>();
    this.#options.network.setBarrier(node, { unheard, lossPercent: this.#lossPercent.get(node) ?? 0 });
  }

  #configOf(node: number): Record<string, unknown> {
    const { listedMasters, replicas, evictionPolicy, isAuthenticated, promotesHotReads, disks } = this.#schedule;
    const masters = Array.from({ length: listedMasters }, (_, i) => `${hostOf(i + 1)}:${PORTS.discovery}`);
    return {
      discovery_addr: this.source?.addr ?? masters.join(),
      discovery_port: PORTS.discovery,
      protocol: 'tcp',
      local_hostname: hostOf(node),
      node_id: nodeId(node),
      control_port: PORTS.control,
      tcp_port: PORTS.data,
      global_segment_size: POOL_BYTES,
      directory_replicas: replicas,
      eviction_policy: evictionPolicy,
      heartbeat_interval: 0.4,
      member_ttl: 2,
      metrics_port: 0,
      promote_hot_reads: promotesHotReads,
      ...(isAuthenticated ? { cluster_secret: SECRET } : { allow_unauthenticated: true }),
      ...(disks.includes(node)
        ? { disk_enabled: true, disk_path: join(this.#diskOf(node), 'store'), disk_size: DISK_BYTES }
        : {}),
    };
  }

  #diskOf(node: number): string {
    return join(this.folder, `disk-${node}`);
  }

  #mountDisk(node: number): void {
    const path = this.#diskOf(node);
    mkdirSync(path);
    const mount = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${TMPFS_BYTES},mode=0700`, 'tmpfs', path], {
      encoding: 'utf8',
    });
    if (mount.status !== 0) throw new Error(`no tmpfs for a disk: ${mount.stderr}`);
  }

  async #startProxy(node: number): Promise<void> {
    const command = [
      'netns',
      'exec',
      this.#options.network.nameOf(node),
      process.execPath,
      PROXY_PROGRAM,
      hostOf(node),
    ];
    const proxy = spawn('ip', command, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    this.#proxies.set(node, proxy);
    await once(proxy, 'message');
  }
}

function nodeId(node: number): string {
  return `node-${node}`;
}

function fillWith(fd: number, block: Uint8Array): void {
  try {
    for (;;) writeSync(fd, block);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  }
}

/** Removes what suites that run no more have left, or this one when it ends early. */
export function removeLeftFolders(isOver = false): void {
  if (isOver) removeFolder(OWN_FOLDER);
  for (const name of readdirSync(tmpdir())) {
    const pid = FOLDER.exec(name)?.[1];
    if (pid !== undefined && !isSuite(Number(pid))) removeFolder(join(tmpdir(), name));
  }
}

function removeFolder(path: string): void {
  const mounts = readFileSync('/proc/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[1] as string);
  for (const mount of mounts.filter((each) => each?.startsWith(`${path}/`))) spawnSync('umount', ['-l', mount]);
  rmSync(path, { recursive: true, force: true });
}
