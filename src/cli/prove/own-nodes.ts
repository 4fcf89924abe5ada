import { createHash } from 'node:crypto';
import { formatSize } from '../../base/sizes.js';
import { systemRandom } from '../../system/system-random.js';
import { Cluster, type ClusterAgent } from '../cluster/cluster.js';
import { failed, type Verdict } from './proof.js';

/** Pool of each node that a check starts. */
const POOL_BYTES = 256 * 2 ** 20;
/** Most bytes of one round of a check; two rounds fit into a pool. */
const ROUND_MAX_BYTES = 96 * 2 ** 20;
const ROUND_MAX_PAGES = 2_000;
const QUICK_DIVISOR = 10;
/** Keys of the configuration that say how pages travel. */
const TRANSPORT_KEYS = ['protocol', 'device_name', 'device_names', 'ib_port', 'gid_index'] as const;
/** A heartbeat that notices a lost node in seconds. */
const QUICK_TIMES = { heartbeat_interval: 0.2, member_ttl: 3 };
/** Rounds with fresh pages until one is complete: a machine that stalls for a second makes misses, which are allowed. */
const ROUNDS_MAX_COUNT = 3;

export interface OwnNodes {
  readonly nodes: number;
  readonly pageBytes: number;
  readonly config: Readonly<Record<string, unknown>>;
  readonly nodeConfig?: (index: number) => Readonly<Record<string, unknown>>;
  /** Address of a cluster that the nodes join; without it they know each other only. */
  readonly discoveryAddr?: string;
  /** A program, with its first arguments, that starts the process of a node. */
  readonly under?: (index: number) => readonly string[];
  readonly signal: AbortSignal;
}

/** Starts nodes on this machine, and ends them when `use` has ended. */
export async function withNodes<T>(options: OwnNodes, use: (cluster: Cluster) => Promise<T>): Promise<T> {
  const config = { global_segment_size: POOL_BYTES, metrics_enabled: false, ...QUICK_TIMES, ...options.config };
  const cluster = await Cluster.start({ ...options, config, components: 2 });
  try {
    return await use(cluster);
  } finally {
    await cluster.close();
  }
}

/** The settings of the user's node that say how pages travel. */
export function transportSettings(mapping: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(TRANSPORT_KEYS.flatMap((key) => (key in mapping ? [[key, mapping[key]]] : [])));
}

/** Pages of one round of a check with pages of this size. */
export function roundPages(pageBytes: number, isQuick: boolean): number {
  const pages = Math.min(ROUND_MAX_PAGES, Math.floor(ROUND_MAX_BYTES / pageBytes));
  return isQuick ? Math.ceil(pages / QUICK_DIVISOR) : pages;
}

/** Keys that no run has used before. */
export function freshKeys(count: number): string[] {
  const start = `${systemRandom.u32()} ${systemRandom.u32()}`;
  return Array.from({ length: count }, (_, i) => createHash('sha256').update(`${start} ${i}`).digest('hex'));
}

/** What a pair of nodes has done with a set of pages. */
export interface Trip {
  readonly pages: number;
  readonly set: number;
  /** Pages that the reader got from another node. */
  readonly read: number;
  readonly wrongBytes: number;
  readonly checksumFailures: number;
  readonly readBytesPerS: number;
}

/** One node sets pages and the other reads them; every byte is compared with what the key says. */
export async function trip(writer: ClusterAgent, reader: ClusterAgent, keys: readonly string[]): Promise<Trip> {
  const { counts: set } = await writer.run([keys]);
  const before = await reader.status();
  const { counts: got } = await reader.run([keys]);
  const after = await reader.status();
  return {
    pages: keys.length,
    set: set.set,
    read: got.remoteHits,
    wrongBytes: set.wrongBytes + got.wrongBytes,
    checksumFailures: after.checksumFailures - before.checksumFailures,
    readBytesPerS: got.readUs === 0 ? 0 : got.readBytes / (got.readUs / 1e6),
  };
}

/** Trips in both directions, until one of each is complete. A wrong byte ends them at once. */
export async function provenTrips(
  cluster: Cluster,
  count: number,
): Promise<{ readonly trip: Trip; readonly isComplete: boolean }> {
  const [a, b] = cluster.agents as [ClusterAgent, ClusterAgent];
  const trips: Trip[] = [];
  for (const [writer, reader] of [
    [a, b],
    [b, a],
  ] as const) {
    for (let round = 0; round < ROUNDS_MAX_COUNT; round++) {
      const last = await trip(writer, reader, freshKeys(count));
      trips.push(last);
      if (isWrong(last)) return { trip: last, isComplete: false };
      if (last.read === last.pages) break;
      if (round === ROUNDS_MAX_COUNT - 1) return { trip: last, isComplete: false };
    }
  }
  const fastest = trips.reduce((best, each) => (each.readBytesPerS > best.readBytesPerS ? each : best));
  return { trip: fastest, isComplete: true };
}

export function isWrong({ wrongBytes, checksumFailures }: Trip): boolean {
  return wrongBytes > 0 || checksumFailures > 0;
}

/** The verdict on a trip that is not complete. */
export function failedTrip({ pages, set, read, wrongBytes, checksumFailures }: Trip, pageBytes: number): Verdict {
  const what = `${pages} pages of ${formatSize(pageBytes)}`;
  const figures = {
    pages,
    pages_set: set,
    pages_read: read,
    wrong_bytes: wrongBytes,
    checksum_failures: checksumFailures,
  };
  if (wrongBytes > 0) {
    const advice = 'stop using this installation, and send this report: a page with wrong bytes was delivered';
    return failed(`${wrongBytes} wrong bytes were delivered in ${what}`, advice, figures);
  }
  if (checksumFailures > 0) {
    const advice =
      'something changes bytes between the memory of two processes: look at the memory (ECC log), the network card and its firmware; no wrong byte was delivered';
    return failed(`${checksumFailures} reads of ${what} arrived damaged and were refused`, advice, figures);
  }
  if (set < pages) {
    return failed(`${set} of ${what} could be set`, 'see the log of the nodes: MESHCACHE_LOG=info', figures);
  }
  const advice = 'is the machine busy or short of memory? See the log of the nodes: MESHCACHE_LOG=info';
  return failed(`${read} of ${what} could be read by the other node`, advice, figures);
}
