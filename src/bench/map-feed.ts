import { setTimeout as sleep } from 'node:timers/promises';
import type { Connection, Network } from '../base/environment/network.js';
import { MARK_SURE } from '../core/map/page-map.js';
import { ClusterMap } from '../node/map/cluster-map.js';
import { MapFeed } from '../node/map/map-feed.js';
import { LOOPBACK } from '../processes/free-port.js';
import { RpcClient } from '../rpc/client.js';
import { RpcServer } from '../rpc/server.js';
import { systemClock } from '../system/system-clock.js';
import { systemEnvironment } from '../system/system-environment.js';
import { systemNetwork } from '../system/system-network.js';
import { NodeInfo } from '../types.js';
import type { Benchmark, BenchReport } from './measuring/report.js';

const FULL_NODES = [3, 16, 64] as const;
const QUICK_NODES = [3] as const;
const SETS_PER_S = 1_000;
const STEP_MS = 20;
/** Uncounted time at the start, in which connections are opened and lists of all pages are told. */
const SETTLE_MS = 1_000;
const FULL_MS = 5_000;
const QUICK_MS = 300;
const MAP_BYTES = 2 ** 28;
/** Longest wait for a map that has all pages. */
const LATE_LIMIT_MS = 30_000;

/**
 * Measures what the nodes of a cluster tell each other of their pages: the connections of a node that follows all
 * others, while each of them sets SETS_PER_S pages a second. All nodes do the same, so a node sends as much as it gets.
 */
export const mapFeedBench: Benchmark = async ({ quick, progress }) => {
  const rows: BenchReport['rows'][number][] = [];
  for (const nodes of quick ? QUICK_NODES : FULL_NODES) {
    progress(`feeds of ${nodes} nodes`);
    rows.push(await measure(nodes, quick ? QUICK_MS : FULL_MS));
  }
  return {
    title: 'map-feed: what nodes tell each other of their pages',
    rows,
    notes: [
      `${SETS_PER_S} new pages a second on every node. Where each of them evicts another page, that is told as well.`,
      'out_kb_per_s: bytes that a node writes to all others, answers and questions; without the headers of TCP.',
      'late_ms: from the last set until the map has all pages.',
    ],
  };
};

async function measure(nodes: number, measuredMs: number): Promise<BenchReport['rows'][number]> {
  const network = new CountedNetwork();
  const env = systemEnvironment({ network: network.network });
  const others = await Promise.all(Array.from({ length: nodes - 1 }, (_, i) => FedNode.start(i + 1, env)));
  const rpc = new RpcClient({ env });
  let knownPages = (): number => 0;
  const metrics = {
    ...env.metrics,
    setGaugeProvider(name: string, provider: () => number) {
      if (name === 'meshcache_map_pages') knownPages = provider;
    },
  };
  const distances = (): undefined => undefined;
  const map = new ClusterMap({ nodeId: 'node-0', rpc, env: { ...env, metrics }, distances, maxBytes: MAP_BYTES });
  try {
    map.membersChanged(new Map(others.map(({ info }) => [info.nodeId, info])));
    await setPages(others, SETTLE_MS);
    const before = network.bytes();
    const startMs = performance.now();
    await setPages(others, measuredMs);
    const endMs = performance.now();
    const bytes = network.bytes() - before;
    const pages = others.reduce((sum, { keys }) => sum + keys.length, 0);
    while (knownPages() < pages) {
      if (performance.now() - endMs > LATE_LIMIT_MS) throw new Error('the map of the cluster does not fill');
      await sleep(1);
    }
    const lateMs = performance.now() - endMs;
    const outKbPerS = bytes / (endMs - startMs);
    return { nodes, out_kb_per_s: Number(outKbPerS.toFixed(1)), late_ms: Math.round(lateMs) };
  } finally {
    map.close();
    await rpc.close();
    for (const other of others) await other.close();
  }
}

/** Has each node set SETS_PER_S pages a second, in steps, as engines set the pages of a prompt at once. */
async function setPages(nodes: readonly FedNode[], durationMs: number): Promise<void> {
  const startMs = performance.now();
  for (let done = 0, elapsedMs = 0; elapsedMs < durationMs; ) {
    await sleep(STEP_MS);
    elapsedMs = Math.min(performance.now() - startMs, durationMs);
    const due = Math.floor((elapsedMs * SETS_PER_S) / 1e3);
    for (const node of nodes) node.set(due - done);
    done = due;
  }
}

/** A node that sets pages and tells others of them. */
class FedNode {
  readonly keys: string[] = [];
  readonly info: NodeInfo;
  readonly #server: RpcServer;
  readonly #feed: MapFeed;

  private constructor(number: number, port: number, server: RpcServer) {
    this.info = new NodeInfo({ nodeId: `node-${number}`, controlHost: LOOPBACK, controlPort: port, incarnation: 1 });
    this.#server = server;
    const { keys } = this;
    const pages = {
      start: () => number,
      marksOf: (some: readonly string[]) => some.map(() => MARK_SURE as typeof MARK_SURE),
      *keysInSlices() {
        yield keys.slice();
      },
    };
    this.#feed = new MapFeed(pages, systemClock);
    this.#feed.attach(server);
  }

  static async start(number: number, env: ReturnType<typeof systemEnvironment>): Promise<FedNode> {
    const server = new RpcServer({ host: LOOPBACK, env });
    return new FedNode(number, await server.start(), server);
  }

  set(count: number): void {
    const { nodeId } = this.info;
    const keys = Array.from({ length: count }, (_, i) => `${nodeId} ${this.keys.length + i}`);
    this.keys.push(...keys);
    this.#feed.note(keys);
  }

  async close(): Promise<void> {
    this.#feed.close();
    await this.#server.stop();
  }
}

/** The network of this machine, which counts what is written on both sides of its connections. */
class CountedNetwork {
  readonly network: Network;
  readonly #connections: Connection[] = [];

  constructor() {
    const counted = (connection: Connection): Connection => {
      this.#connections.push(connection);
      return connection;
    };
    this.network = {
      ...systemNetwork,
      connect: (options) => counted(systemNetwork.connect(options)),
      createServer: (options, onConnection) =>
        systemNetwork.createServer(options, (connection) => onConnection(counted(connection))),
    };
  }

  bytes(): number {
    return this.#connections.reduce((sum, { bytesWritten }) => sum + bytesWritten, 0);
  }
}
