import { randomBytes } from 'node:crypto';
import { formatSize } from '../../base/sizes.js';
import { HostRegion } from '../../memory/host-region.js';
import { MeshCacheStore } from '../../node/meshcache-store.js';
import { findFreePort, LOOPBACK } from '../../processes/free-port.js';
import { stderrLogger } from '../../system/system-log.js';
import { systemRandom } from '../../system/system-random.js';
import { type ExecuteCommand, PeerProcess } from '../measuring/peer-process.js';
import {
  type BenchOptions,
  type BenchReport,
  type Contender,
  inRound,
  median,
  race,
  round3,
} from '../measuring/report.js';
import {
  awaitMembers,
  benchKeys,
  benchStorage,
  destinationPool,
  isStamped,
  publishPages,
} from '../measuring/store-pages.js';
import { BenchCertificate } from './certificates.js';
import { FLOOD_KINDS, Flood, type FloodKind, type FloodOptions, type FloodStats, type FloodTarget } from './flood.js';

const BATCH_PAGES = 128;
const PAGE_SIZES_BYTES = [4 * 2 ** 10, 64 * 2 ** 10, 2 ** 20] as const;
/** Size of the smallest pages that are read during floods. */
const FLOODED_MIN_BYTES = 64 * 2 ** 10;
/** Most pages of one size. */
const PAGES_MAX_COUNT = 4_096;
const FULL_WORK_BYTES = 256 * 2 ** 20;
const QUICK_WORK_BYTES = 16 * 2 ** 20;
const POOL_SLACK = 1.25;
const READER_POOL_BYTES = 2 ** 20;
const FLOOD_PER_S = 10_000;
/**
 * Milliseconds of a flood before and during the measurement of its effect. By the time the measurement starts, the
 * flood has used up the node's allowance for unauthenticated peers.
 */
const FULL_PHASES_MS = { before: 700, measured: 1_500 };
const QUICK_PHASES_MS = { before: 20, measured: 50 };

type Row = BenchReport['rows'][number];
type Peer = PeerProcess<AuthPeerCommand, AuthPeerAnswer>;

interface Cluster extends AuthCluster {
  readonly name: string;
  readonly store: MeshCacheStore;
  /** Ports of the peer's node. */
  readonly targets: readonly FloodTarget[];
}

interface Flooded {
  readonly gbPerS: number;
  readonly cpuMsPerS: number;
  /** Connections per second of the flood while processor time was measured. */
  readonly cpuRatePerS: number;
  readonly stats: FloodStats;
}

/** One flood and the ports that it is aimed at. */
interface FloodCase {
  readonly name: string;
  readonly kind: FloodKind;
  readonly targets: readonly FloodTarget[];
}

/**
 * Measures `batchGetV1` of pages in another process's pool without a secret, with one, over TLS, and with a secret
 * while a third process floods the node with unauthenticated connections. The same flood of a closed port shows what
 * the machine itself spends on it.
 */
export async function authBench(options: BenchOptions): Promise<BenchReport> {
  const certificate = await BenchCertificate.make();
  try {
    options.progress('starting three processes');
    const bench = await AuthBench.start(options, typeof certificate === 'string' ? undefined : certificate);
    try {
      const rows: Row[] = [];
      for (const pageBytes of PAGE_SIZES_BYTES) {
        await bench.publish(pageBytes);
        rows.push(...(await bench.measureSecurity(pageBytes)));
        if (pageBytes >= FLOODED_MIN_BYTES) rows.push(...(await bench.measureFloods(pageBytes)));
      }
      return {
        title: 'auth: cost of a secret, of TLS and of floods by unauthenticated peers, over loopback',
        rows,
        notes: notes(options, certificate),
      };
    } finally {
      await bench.close();
    }
  } finally {
    if (typeof certificate !== 'string') certificate.remove();
  }
}

function notes(options: BenchOptions, certificate: BenchCertificate | string): string[] {
  return [
    `Batches of ${BATCH_PAGES} pages, at most ${PAGES_MAX_COUNT} pages; pools and destination of ${formatSize(workBytesOf(options))}; medians of ${options.rounds} interleaved rounds.`,
    'cpu_us: processor time of both processes together for each page, lookups included.',
    'ratio: to no secret; of a flood: to the same reads without one, between the floods.',
    `Floods: ${options.floodPerS ?? FLOOD_PER_S} connections a second asked for, flood_per_s reached, half to the control and half to the data port of the serving process.`,
    'to_machine: ratio to the flood of a closed port: the flooding process and the kernel take that much, whatever a node does.',
    'node_cpu_ms_per_s: processor time of the serving process while nobody reads and idle_flood_per_s connections come in; other load on the machine does not change it much.',
    ...(typeof certificate === 'string' ? [`Without TLS: ${certificate}.`] : []),
  ];
}

function workBytesOf({ quick }: BenchOptions): number {
  return quick ? QUICK_WORK_BYTES : FULL_WORK_BYTES;
}

class AuthBench {
  readonly #options: BenchOptions;
  readonly #peer: Peer;
  readonly #flooding: Peer;
  readonly #secret: string;
  readonly #clusters: readonly Cluster[];
  readonly #destination: HostRegion;

  private constructor(parts: {
    options: BenchOptions;
    peer: Peer;
    flooding: Peer;
    secret: string;
    clusters: readonly Cluster[];
    destination: HostRegion;
  }) {
    this.#options = parts.options;
    this.#peer = parts.peer;
    this.#flooding = parts.flooding;
    this.#secret = parts.secret;
    this.#clusters = parts.clusters;
    this.#destination = parts.destination;
  }

  static async start(options: BenchOptions, certificate: BenchCertificate | undefined): Promise<AuthBench> {
    const secret = randomBytes(32).toString('hex');
    const kinds = [
      { name: 'no secret', security: {} },
      { name: 'secret', security: { cluster_secret: secret } },
      ...(certificate === undefined ? [] : [{ name: 'TLS', security: certificate.config }]),
    ];
    const clusters: (AuthCluster & { readonly name: string })[] = [];
    for (const kind of kinds) {
      clusters.push({ ...kind, discoveryAddr: `${LOOPBACK}:${await findFreePort(systemRandom)}` });
    }
    const peer: Peer = new PeerProcess('auth');
    const flooding: Peer = new PeerProcess('auth');
    const stores: MeshCacheStore[] = [];
    try {
      const poolBytes = Math.ceil(workBytesOf(options) * POOL_SLACK);
      const { nodeIds = [] } = await peer.call({ kind: 'start', clusters, poolBytes });
      const joined: Cluster[] = [];
      for (const [i, cluster] of clusters.entries()) {
        const storage = benchStorage(cluster.discoveryAddr, READER_POOL_BYTES, cluster.security);
        const store = await MeshCacheStore.create(storage);
        stores.push(store);
        await awaitMembers(store, 2);
        joined.push({ ...cluster, store, targets: targetsOf(store, nodeIds[i] as string) });
      }
      const destination = HostRegion.allocate(workBytesOf(options));
      await destination.prefault();
      return new AuthBench({ options, peer, flooding, secret, clusters: joined, destination });
    } catch (error) {
      for (const store of stores) await store.close();
      peer.end();
      flooding.end();
      throw error;
    }
  }

  async publish(pageBytes: number): Promise<void> {
    this.#options.progress(`publishing pages of ${formatSize(pageBytes)}`);
    await this.#peer.call({ kind: 'publish', pageBytes, pages: this.#pages(pageBytes) });
    for (const { store } of this.#clusters)
      await store.registerMemPoolHost(destinationPool(this.#destination, pageBytes));
  }

  async measureSecurity(pageBytes: number): Promise<Row[]> {
    const { rounds, progress } = this.#options;
    const page = formatSize(pageBytes);
    const rows = await race(
      this.#clusters.map((cluster) => this.#contender(cluster, pageBytes)),
      {
        rounds,
        totalBytes: this.#pages(pageBytes) * pageBytes,
        clear: () => this.#destination.bytes().fill(0),
        progress: (round, name) => progress(`${page}: round ${round} of ${rounds}, ${name}`),
      },
    );
    const costsUs = await this.#costsUs(pageBytes);
    return rows.map((row, c) => ({ page, ...row, cpu_us: round3(costsUs[c] as number) }));
  }

  /** Microseconds of processor time per page, of both processes together, for each cluster. */
  async #costsUs(pageBytes: number): Promise<number[]> {
    const { rounds, progress } = this.#options;
    const contenders = this.#clusters.map((cluster) => this.#contender(cluster, pageBytes));
    const costs = contenders.map((): number[] => []);
    for (let round = 1; round <= rounds; round++) {
      for (const [c, { name, read }] of inRound(contenders, round)) {
        progress(`${formatSize(pageBytes)}: round ${round} of ${rounds}, processor time, ${name}`);
        const before = await this.#cpuMs();
        const startMs = performance.now();
        let pages = 0;
        do {
          await read();
          pages += this.#pages(pageBytes);
        } while (performance.now() - startMs < this.#phasesMs.measured / 3);
        costs[c]?.push((((await this.#cpuMs()) - before) * 1000) / pages);
      }
    }
    return costs.map(median);
  }

  /** Milliseconds of processor time of both processes since they started. */
  async #cpuMs(): Promise<number> {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000 + ((await this.#peer.call({ kind: 'cpu' })).cpuMs ?? 0);
  }

  /** Measures each flood in turn, round after round, each time after reads without a flood. */
  async measureFloods(pageBytes: number): Promise<Row[]> {
    const { rounds, progress } = this.#options;
    const page = formatSize(pageBytes);
    const cases = await this.#floodCases();
    const results = cases.map(() => ({
      calm: [] as number[],
      flooded: [] as number[],
      ratePerS: [] as number[],
      cpu: [] as number[],
      cpuRatePerS: [] as number[],
    }));
    for (let round = 1; round <= rounds; round++) {
      for (const [c, flood] of cases.entries()) {
        progress(`${page}: round ${round} of ${rounds}, flood: ${flood.name}`);
        const calm = await this.#speed(pageBytes);
        const { gbPerS, stats, cpuMsPerS, cpuRatePerS } = await this.#speedWithin(flood, pageBytes);
        if (stats.answered > 0)
          throw new Error(`flood: ${flood.name}: ${stats.answered} unauthenticated peers were answered`);
        const result = results[c] as (typeof results)[number];
        result.calm.push(calm);
        result.flooded.push(gbPerS);
        result.cpu.push(cpuMsPerS);
        result.cpuRatePerS.push(cpuRatePerS);
        result.ratePerS.push((stats.attempts / stats.elapsedMs) * 1000);
      }
    }
    const ratios = results.map(({ calm, flooded }) => median(flooded.map((gbPerS, i) => gbPerS / (calm[i] as number))));
    const machine = ratios[0] as number;
    return cases.map(({ name }, c) => {
      const { flooded, ratePerS, cpu, cpuRatePerS } = results[c] as (typeof results)[number];
      const ratio = ratios[c] as number;
      return {
        page,
        contender: `flood: ${name}`,
        gb_per_s: round3(median(flooded)),
        min_gb_per_s: round3(Math.min(...flooded)),
        max_gb_per_s: round3(Math.max(...flooded)),
        ratio: round3(ratio),
        to_machine: round3(ratio / machine),
        flood_per_s: Math.round(median(ratePerS)),
        idle_flood_per_s: Math.round(median(cpuRatePerS)),
        node_cpu_ms_per_s: Math.round(median(cpu)),
      };
    });
  }

  async close(): Promise<void> {
    for (const { store } of this.#clusters) await store.close();
    this.#destination.free();
    this.#peer.end();
    this.#flooding.end();
  }

  /** The floods to measure. The first one hits a closed port and shows what the machine itself spends on it. */
  async #floodCases(): Promise<FloodCase[]> {
    const closed: FloodTarget = { plane: 'data', port: await findFreePort(systemRandom) };
    const { targets } = this.#secured;
    return [
      { name: 'a closed port', kind: 'silent', targets: [closed] },
      ...FLOOD_KINDS.map((kind) => ({ name: kind, kind, targets })),
    ];
  }

  get #secured(): Cluster {
    return this.#clusters[1] as Cluster;
  }

  async #speedWithin(flood: FloodCase, pageBytes: number): Promise<Flooded> {
    const { kind, targets } = flood;
    const ratePerS = this.#options.floodPerS ?? FLOOD_PER_S;
    await this.#flooding.call({ kind: 'flood', options: { kind, targets, ratePerS, secret: this.#secret } });
    await new Promise((resolve) => setTimeout(resolve, this.#phasesMs.before));
    const gbPerS = await this.#speed(pageBytes);
    const cpu = await this.#cpuWithin();
    const { flood: stats } = await this.#flooding.call({ kind: 'calm' });
    return { gbPerS, stats: stats as FloodStats, ...cpu };
  }

  /** Measures the processor time of the serving process during a flood while no pages are read. */
  async #cpuWithin(): Promise<{ cpuMsPerS: number; cpuRatePerS: number }> {
    const startMs = performance.now();
    const first = await this.#sample();
    await new Promise((resolve) => setTimeout(resolve, this.#phasesMs.measured));
    const last = await this.#sample();
    const elapsedS = (performance.now() - startMs) / 1000;
    return {
      cpuMsPerS: (last.cpuMs - first.cpuMs) / elapsedS,
      cpuRatePerS: (last.attempts - first.attempts) / elapsedS,
    };
  }

  async #sample(): Promise<{ cpuMs: number; attempts: number }> {
    const { cpuMs = 0 } = await this.#peer.call({ kind: 'cpu' });
    const { flood } = await this.#flooding.call({ kind: 'count' });
    return { cpuMs, attempts: flood?.attempts ?? 0 };
  }

  /** Reads all pages again and again; resolves with GB/s. */
  async #speed(pageBytes: number): Promise<number> {
    const { read } = this.#contender(this.#secured, pageBytes);
    const startMs = performance.now();
    for (let passes = 1; ; passes++) {
      await read();
      const elapsedMs = performance.now() - startMs;
      if (elapsedMs >= this.#phasesMs.measured) return (passes * this.#pages(pageBytes) * pageBytes) / elapsedMs / 1e6;
    }
  }

  #contender({ name, store }: Cluster, pageBytes: number): Contender {
    const keys = benchKeys(pageBytes, this.#pages(pageBytes));
    return {
      name,
      isRight: () => keys.every((_, page) => isStamped(this.#destination.bytes(page * pageBytes, pageBytes), page)),
      async read() {
        for (let first = 0; first < keys.length; first += BATCH_PAGES) {
          const part = keys.slice(first, first + BATCH_PAGES);
          const results = await store.batchGetV1(
            part,
            part.map((_, i) => first + i),
          );
          if (!results.every((isRead) => isRead))
            throw new Error(`${name}: pages of ${formatSize(pageBytes)} did not come`);
        }
      },
    };
  }

  get #phasesMs(): typeof FULL_PHASES_MS {
    return this.#options.quick ? QUICK_PHASES_MS : FULL_PHASES_MS;
  }

  #pages(pageBytes: number): number {
    return Math.min(PAGES_MAX_COUNT, Math.floor(this.#destination.length / pageBytes));
  }
}

function targetsOf(store: MeshCacheStore, nodeId: string): FloodTarget[] {
  const node = store.runtime.members().get(nodeId);
  if (node === undefined) throw new Error(`${nodeId} is no member`);
  return [
    { plane: 'rpc', port: node.controlPort },
    { plane: 'data', port: node.tcpPort },
  ];
}

/** A cluster of two nodes: one in the peer, and one that reads from it. */
interface AuthCluster {
  readonly discoveryAddr: string;
  /** Configuration keys of the cluster's secret and certificates. */
  readonly security: Readonly<Record<string, unknown>>;
}

type AuthPeerCommand =
  | { readonly kind: 'start'; readonly clusters: readonly AuthCluster[]; readonly poolBytes: number }
  /** Drops the pages of the previous `publish`, then sets new ones. */
  | { readonly kind: 'publish'; readonly pageBytes: number; readonly pages: number }
  | { readonly kind: 'flood'; readonly options: FloodOptions }
  | { readonly kind: 'calm' }
  | { readonly kind: 'count' }
  | { readonly kind: 'cpu' };

interface AuthPeerAnswer {
  readonly error?: string;
  /** Identifiers of the nodes, in the order of the clusters. */
  readonly nodeIds?: readonly string[];
  readonly flood?: FloodStats;
  /** Milliseconds of processor time since the process started. */
  readonly cpuMs?: number;
}

/**
 * Either peer process of the authentication benchmark: one runs nodes with pages in their pools, the other floods them.
 */
export function authPeer(): ExecuteCommand<AuthPeerCommand, AuthPeerAnswer> {
  const stores: MeshCacheStore[] = [];
  let flood: Flood | undefined;
  return async (command) => {
    if (command.kind === 'start') {
      for (const { discoveryAddr, security } of command.clusters) {
        const storage = benchStorage(discoveryAddr, command.poolBytes, security);
        // Nodes would log warnings during floods.
        stores.push(await MeshCacheStore.create(storage, { log: stderrLogger('error') }));
      }
      return { nodeIds: stores.map((store) => store.runtime.nodeId) };
    }
    if (command.kind === 'publish') {
      const { pageBytes, pages } = command;
      for (const store of stores) {
        await store.clear();
        await publishPages(store, benchKeys(pageBytes, pages), pageBytes);
      }
      return {};
    }
    if (command.kind === 'flood') {
      flood = await Flood.start(command.options);
      return {};
    }
    if (command.kind === 'cpu') {
      const { user, system } = process.cpuUsage();
      return { cpuMs: (user + system) / 1000 };
    }
    const stats = flood?.stats();
    if (command.kind === 'calm') {
      flood?.stop();
      flood = undefined;
    }
    return stats === undefined ? {} : { flood: stats };
  };
}
