import { setTimeout as sleep } from 'node:timers/promises';
import { noMetrics } from '../../base/environment/metrics-sink.js';
import type { Connection, Network } from '../../base/environment/network.js';
import { HostRegion } from '../../memory/host-region.js';
import { MeshCacheStore } from '../../node/meshcache-store.js';
import { findFreePort } from '../../processes/free-port.js';
import { FRAME_HEADER_BYTES, type Frame, FrameReader, FrameType } from '../../rpc/frame.js';
import { MessageCodec } from '../../rpc/message.js';
import { systemNetwork } from '../../system/system-network.js';
import { systemRandom } from '../../system/system-random.js';
import { type ExecuteCommand, PeerProcess } from '../measuring/peer-process.js';
import { benchKeys, isStamped, plainStorage, stampPage } from '../measuring/store-pages.js';

/** A process with one node, on a loopback address of its own, so that other nodes see it as another host. */
interface ClusterNode {
  readonly index: number;
  readonly process: PeerProcess<ClusterCommand, ClusterAnswer>;
}

/** Number of masters whose addresses are configured; nodes find further masters by their usual rule. */
const LISTED_COUNT = 2;
/** Processes that load the program at the same time. */
const LOADING_COUNT = 4;

/** The processes of one cluster. The caller must call `end`. */
export class ClusterNodes {
  readonly #discoveryAddr: string;
  readonly #pages: number;
  readonly #live = new Map<number, ClusterNode>();

  private constructor(discoveryAddr: string, pages: number) {
    this.#discoveryAddr = discoveryAddr;
    this.#pages = pages;
  }

  static async make(pages: number): Promise<ClusterNodes> {
    const port = await findFreePort(systemRandom);
    const listed = Array.from({ length: LISTED_COUNT }, (_, i) => `${clusterHost(i)}:${port}`);
    return new ClusterNodes(listed.join(), pages);
  }

  get live(): readonly ClusterNode[] {
    return [...this.#live.values()];
  }

  /** Starts processes. Resolves when all of them have loaded the program; none has joined yet. */
  async load(indices: readonly number[]): Promise<void> {
    const left = [...indices];
    const worker = async (): Promise<void> => {
      for (let index = left.shift(); index !== undefined; index = left.shift()) {
        const process = new PeerProcess<ClusterCommand, ClusterAnswer>('cluster');
        this.#live.set(index, { index, process });
        await process.call({ kind: 'load' });
      }
    };
    await Promise.all(Array.from({ length: LOADING_COUNT }, worker));
  }

  /** Lets a node join. Resolves when it knows `peers`, itself included, and finds their pages. */
  join(index: number, peers: readonly number[]): Promise<ClusterAnswer> {
    const [discoveryAddr, pages] = [this.#discoveryAddr, this.#pages];
    return this.#node(index).call({ kind: 'join', discoveryAddr, host: clusterHost(index), index, pages, peers });
  }

  call(index: number, command: ClusterCommand): Promise<ClusterAnswer> {
    return this.#node(index).call(command);
  }

  /** Sends a command to all live nodes, and resolves with their answers by index. */
  async callAll(command: ClusterCommand): Promise<Map<number, ClusterAnswer>> {
    const answers = this.live.map(async ({ index, process }) => [index, await process.call(command)] as const);
    return new Map(await Promise.all(answers));
  }

  /** Kills a node's process and forgets the node. Resolves when the process is gone. */
  async kill(index: number): Promise<void> {
    const node = this.#node(index);
    this.#live.delete(index);
    await node.kill();
  }

  /** Lets a node leave the cluster, then ends its process and forgets the node. */
  async leave(index: number): Promise<void> {
    await this.call(index, { kind: 'leave' });
    await this.kill(index);
  }

  end(): void {
    for (const { process } of this.live) process.end();
    this.#live.clear();
  }

  #node(index: number): PeerProcess<ClusterCommand, ClusterAnswer> {
    const node = this.#live.get(index);
    if (node === undefined) throw new Error(`no node ${index}`);
    return node.process;
  }
}

/** The loopback address of one node, which the other nodes see as a host of its own. */
export function clusterHost(index: number): string {
  return `127.0.0.${index + 1}`;
}

const CLUSTER_PAGE_BYTES = 16 * 1024;
const POOL_BYTES = 8 * 2 ** 20;
/** How many pages of every other node a node looks up; of the next node it looks up all pages. */
const SAMPLE_PAGES = 4;
const LOOK_INTERVAL_MS = 100;
const WATCH_INTERVAL_MS = 10;
const READS_AT_ONCE = 4;
const SETTLE_TIMEOUT_MS = 120_000;

type ClusterCommand =
  /** Answers when the program is loaded, so that later times do not include process start-up. */
  | { readonly kind: 'load' }
  | {
      readonly kind: 'join';
      readonly discoveryAddr: string;
      readonly host: string;
      readonly index: number;
      readonly pages: number;
      readonly peers: readonly number[];
    }
  /** Answers when exactly these nodes are members and their pages are found. */
  | { readonly kind: 'settle'; readonly peers: readonly number[] }
  | { readonly kind: 'usage' }
  /** Reads pages of these nodes one after the other until `endReading`, and records each read. */
  | { readonly kind: 'read'; readonly peers: readonly number[] }
  | { readonly kind: 'endReading' }
  /** Answers when a node on that host is a member, or, without `isMember`, when none is. */
  | { readonly kind: 'watch'; readonly host: string; readonly isMember: boolean }
  /** Answers when this node runs a master. */
  | { readonly kind: 'awaitMaster' }
  | { readonly kind: 'leave' };

export interface ClusterAnswer {
  readonly error?: string;
  /** Wall clock time at which the node had started. */
  readonly createdAtMs?: number;
  /** Wall clock time at which every member was known, or the watched change had happened. */
  readonly knownAtMs?: number;
  /** Wall clock time at which the directory found all pages of one other node, and some pages of each. */
  readonly foundAtMs?: number;
  readonly isMaster: boolean;
  /** Milliseconds of processor time of all threads since the process started. */
  readonly cpuMs: number;
  readonly traffic: NodeTraffic;
  readonly reannouncedKeys: number;
  readonly rssBytes: number;
  readonly reads?: readonly ClusterRead[];
}

export interface ClusterRead {
  /** Wall clock time at the start of the read. */
  readonly atMs: number;
  readonly tookMs: number;
  readonly isFound: boolean;
}

interface Setup {
  readonly index: number;
  readonly pages: number;
}

/** The process of one node of the cluster benchmark. */
export function clusterPeer(): ExecuteCommand<ClusterCommand, ClusterAnswer> {
  const node = new BenchNode();
  return (command) => node.execute(command);
}

/**
 * One node of the cluster benchmark. It joins on command, sets its pages, and reports when it knows all other nodes and
 * finds their pages.
 */
class BenchNode {
  readonly #traffic = new TrafficCount();
  readonly #counts = new Map<string, number>();
  #store: MeshCacheStore | undefined;
  #setup: Setup = { index: 0, pages: 0 };
  #reading: { isOver: boolean; readonly reads: Promise<ClusterRead[]> } | undefined;

  async execute(command: ClusterCommand): Promise<ClusterAnswer> {
    const more = await this.#carryOut(command);
    const answer = { ...this.#usage(), ...more };
    if (command.kind === 'leave') await this.#running().close();
    return answer;
  }

  async #carryOut(command: ClusterCommand): Promise<Partial<ClusterAnswer>> {
    switch (command.kind) {
      case 'join': {
        this.#setup = command;
        this.#store = await MeshCacheStore.create(
          plainStorage(command.discoveryAddr, POOL_BYTES, { local_hostname: command.host }),
          {
            network: this.#traffic.network(systemNetwork),
            metrics: {
              ...noMetrics,
              count: (name, amount = 1) => void this.#counts.set(name, (this.#counts.get(name) ?? 0) + amount),
            },
          },
        );
        const createdAtMs = Date.now();
        await this.#publish(this.#store, this.#setup);
        return { createdAtMs, ...(await this.#settle(this.#store, command.peers)) };
      }
      case 'settle':
        return this.#settle(this.#running(), command.peers);
      case 'watch': {
        const hosts = () => [...this.#running().runtime.members().values()].map(({ controlHost }) => controlHost);
        await until(() => hosts().includes(command.host) === command.isMember);
        return { knownAtMs: Date.now() };
      }
      case 'awaitMaster':
        await until(() => this.#running().runtime.isMeta);
        return {};
      case 'read': {
        const flag = { isOver: false };
        const loops = Array.from({ length: READS_AT_ONCE }, (_, i) =>
          this.#readOn(this.#running(), command.peers, i, flag),
        );
        this.#reading = Object.assign(flag, { reads: Promise.all(loops).then((reads) => reads.flat()) });
        return {};
      }
      case 'endReading':
        if (this.#reading === undefined) throw new Error('nothing is being read');
        this.#reading.isOver = true;
        return { reads: await this.#reading.reads };
      default:
        return {};
    }
  }

  #running(): MeshCacheStore {
    if (this.#store === undefined) throw new Error('no node has joined');
    return this.#store;
  }

  #keysOf(index: number): string[] {
    return benchKeys(index, this.#setup.pages);
  }

  /**
   * Sets this node's pages. Pages that no owner accepted are set again, because an owner may not be up yet during a
   * join storm.
   */
  async #publish(node: MeshCacheStore, { index, pages }: Setup): Promise<void> {
    using source = HostRegion.allocate(pages * CLUSTER_PAGE_BYTES);
    for (let i = 0; i < pages; i++) stampPage(source.bytes(i * CLUSTER_PAGE_BYTES, CLUSTER_PAGE_BYTES), i);
    let left = this.#keysOf(index).map((key, i) => ({ key, ptr: source.addr + BigInt(i * CLUSTER_PAGE_BYTES) }));
    const untilMs = performance.now() + SETTLE_TIMEOUT_MS;
    while (left.length > 0) {
      const sizes = left.map(() => CLUSTER_PAGE_BYTES);
      const results = await node.batchSet(
        left.map(({ key }) => key),
        left.map(({ ptr }) => ptr),
        sizes,
      );
      left = left.filter((_, i) => !results[i]);
      if (left.length > 0 && performance.now() > untilMs) throw new Error(`${left.length} pages could not be set`);
      if (left.length > 0) await sleep(LOOK_INTERVAL_MS);
    }
  }

  async #settle(node: MeshCacheStore, peers: readonly number[]): Promise<{ knownAtMs: number; foundAtMs: number }> {
    const untilMs = performance.now() + SETTLE_TIMEOUT_MS;
    const again = async (what: string): Promise<void> => {
      if (performance.now() > untilMs) throw new Error(`${what} after ${SETTLE_TIMEOUT_MS / 1000} s`);
      await sleep(LOOK_INTERVAL_MS);
    };
    while (node.runtime.members().size !== peers.length) {
      await again(`${node.runtime.members().size} members of ${peers.length}`);
    }
    const knownAtMs = Date.now();
    const next = peers[(peers.indexOf(this.#setup.index) + 1) % peers.length];
    let left = peers.map((index) =>
      index === next ? this.#keysOf(index) : this.#keysOf(index).slice(0, SAMPLE_PAGES),
    );
    for (;;) {
      const found = await Promise.all(left.map((keys) => node.batchExists(keys)));
      left = left.filter((keys, i) => (found[i] as number) < keys.length);
      if (left.length === 0) return { knownAtMs, foundAtMs: Date.now() };
      await again(`pages of ${left.length} nodes are not found`);
    }
  }

  /** Reads one page after the other until the flag says that reading is over. Wrong bytes end the benchmark. */
  async #readOn(
    node: MeshCacheStore,
    peers: readonly number[],
    first: number,
    flag: { readonly isOver: boolean },
  ): Promise<ClusterRead[]> {
    const reads: ClusterRead[] = [];
    const pages = peers.flatMap((index) => this.#keysOf(index).map((key, page) => ({ key, page })));
    for (let i = first; !flag.isOver; i = (i + READS_AT_ONCE) % pages.length) {
      const { key, page } = pages[i] as (typeof pages)[number];
      const [atMs, startMs] = [Date.now(), performance.now()];
      const bytes = await node.get(key);
      if (bytes !== null && !isStamped(bytes, page)) throw new Error(`${key}: wrong bytes`);
      reads.push({ atMs, tookMs: performance.now() - startMs, isFound: bytes !== null });
      // The pause keeps the rate far below the machine's limit, as reads should observe the cluster, not slow it down.
      await sleep(1);
    }
    return reads;
  }

  #usage(): ClusterAnswer {
    const { user, system } = process.cpuUsage();
    return {
      isMaster: this.#store?.runtime.isMeta ?? false,
      cpuMs: (user + system) / 1000,
      traffic: this.#traffic.read(),
      reannouncedKeys: this.#counts.get('meshcache_reannounced_keys_total') ?? 0,
      rssBytes: process.memoryUsage.rss(),
    };
  }
}

async function until(holds: () => boolean): Promise<void> {
  const untilMs = performance.now() + SETTLE_TIMEOUT_MS;
  while (!holds()) {
    if (performance.now() > untilMs) throw new Error(`waited for ${SETTLE_TIMEOUT_MS / 1000} s in vain`);
    await sleep(WATCH_INTERVAL_MS);
  }
}

/**
 * Control-plane traffic of one kind: calls, and bytes in both directions, with frame headers but without TCP and IP.
 */
export interface Traffic {
  readonly calls: number;
  readonly bytes: number;
}

const TRAFFIC_KINDS = ['discovery', 'announcing', 'lookups', 'other'] as const;
export type TrafficKind = (typeof TRAFFIC_KINDS)[number];

/** A node's traffic by kind, on connections that it opened and on those that it accepted. */
interface NodeTraffic {
  readonly client: Readonly<Record<TrafficKind, Traffic>>;
  readonly server: Readonly<Record<TrafficKind, Traffic>>;
}

const KIND_OF: Readonly<Record<string, TrafficKind>> = {
  'directory.put': 'announcing',
  'directory.delete': 'announcing',
  'directory.note': 'announcing',
  'directory.renounce': 'announcing',
  'directory.get': 'lookups',
  'directory.exists': 'lookups',
};

type Sums = Record<TrafficKind, { calls: number; bytes: number }>;

/** Counts the calls and bytes on the control connections of one node without a secret. */
class TrafficCount {
  readonly #codec = new MessageCodec();
  readonly #client = noTraffic();
  readonly #server = noTraffic();

  /** Wraps `base` and counts control connections; data connections pass unchanged. */
  network(base: Network): Network {
    return {
      connect: (options) => {
        const socket = base.connect(options);
        if (!('onread' in options)) this.#readAlong(socket, this.#client);
        return socket;
      },
      createServer: (options, onConnection) =>
        base.createServer(options, (socket) => {
          this.#readAlong(socket, this.#server);
          onConnection(socket);
        }),
    };
  }

  /** Traffic since the start. */
  read(): NodeTraffic {
    return structuredClone({ client: this.#client, server: this.#server });
  }

  #readAlong(socket: Connection, sums: Sums): void {
    const kindOf = new Map<number, TrafficKind>();
    const frame = (seen: Frame): void => {
      if (seen.type === FrameType.call) kindOf.set(seen.requestId, this.#kindOf(seen.message));
      const sum = sums[kindOf.get(seen.requestId) ?? 'other'];
      if (seen.type === FrameType.call) sum.calls++;
      sum.bytes += FRAME_HEADER_BYTES + seen.message.length;
      if (seen.type === FrameType.answer || seen.type === FrameType.error) kindOf.delete(seen.requestId);
    };
    const sink = { opening: () => 0, frame };
    const received = new FrameReader(sink);
    const sent = new FrameReader(sink);
    socket.on('data', (chunk: Buffer) => received.push(chunk));
    const write = socket.write.bind(socket);
    socket.write = (bytes: Buffer) => {
      sent.push(bytes);
      return write(bytes);
    };
  }

  #kindOf(message: Uint8Array): TrafficKind {
    const [method] = this.#codec.decode(message) as [string];
    return KIND_OF[method] ?? (method.startsWith('discovery.') ? 'discovery' : 'other');
  }
}

function noTraffic(): Sums {
  return {
    discovery: { calls: 0, bytes: 0 },
    announcing: { calls: 0, bytes: 0 },
    lookups: { calls: 0, bytes: 0 },
    other: { calls: 0, bytes: 0 },
  };
}

/** The difference between two readings. */
export function trafficSince(before: Traffic, after: Traffic): Traffic {
  return { calls: after.calls - before.calls, bytes: after.bytes - before.bytes };
}
