import { setTimeout as sleep } from 'node:timers/promises';
import { noMetrics } from '../../base/environment/metrics-sink.js';
import { HostRegion } from '../../memory/host-region.js';
import { MeshCacheStore } from '../../node/meshcache-store.js';
import { systemNetwork } from '../../system/system-network.js';
import type { ExecuteCommand } from '../measuring/peer-process.js';
import { benchKeys, isStamped, plainStorage, stampPage } from '../measuring/store-pages.js';
import { type NodeTraffic, TrafficCount } from './cluster-traffic.js';

const CLUSTER_PAGE_BYTES = 16 * 1024;
const POOL_BYTES = 8 * 2 ** 20;
/** Pages of every other node that a node looks up; of the next node it looks up all. */
const SAMPLE_PAGES = 4;
const LOOK_INTERVAL_MS = 100;
const WATCH_INTERVAL_MS = 10;
const READS_AT_ONCE = 4;
const SETTLE_TIMEOUT_MS = 120_000;

export type ClusterCommand =
  /** Answers when the program is loaded, so that later times do not include the start of the process. */
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
  /** Reads pages of these nodes one after the other until `endReading`, and keeps how each read went. */
  | { readonly kind: 'read'; readonly peers: readonly number[] }
  | { readonly kind: 'endReading' }
  /** Answers when a node on that host is a member, or when none is. */
  | { readonly kind: 'watch'; readonly host: string; readonly isMember: boolean }
  /** Answers when this node runs a master. */
  | { readonly kind: 'awaitMaster' }
  | { readonly kind: 'leave' };

export interface ClusterAnswer {
  readonly error?: string;
  /** Wall clock: the node has started. */
  readonly createdAtMs?: number;
  /** Wall clock: every member is known, or the watched change has happened. */
  readonly knownAtMs?: number;
  /** Wall clock: the directory finds all pages of one other node, and some pages of each. */
  readonly foundAtMs?: number;
  readonly isMaster: boolean;
  /** Processor time since the program was loaded, all threads. */
  readonly cpuMs: number;
  readonly traffic: NodeTraffic;
  readonly reannouncedKeys: number;
  readonly rssBytes: number;
  readonly reads?: readonly ClusterRead[];
}

export interface ClusterRead {
  /** Wall clock at the start of the read. */
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
 * One node of the cluster benchmark: joins when it is told to, sets its pages, and says when it knows all others and
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
   * Sets this node's pages. Pages that no owner accepted are set again: during a join storm an owner may not be there
   * yet.
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
      // The pause keeps the rate far below what the machine can do: reads shall observe the cluster, not slow it down.
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
