import { formatSize } from '../base/sizes.js';
import { HostRegion } from '../memory/host-region.js';
import { MeshCacheStore } from '../node/meshcache-store.js';
import { findFreePort, LOOPBACK } from '../processes/free-port.js';
import { systemRandom } from '../system/system-random.js';
import { PeerProcess } from './measuring/peer-process.js';
import { type BenchOptions, type BenchReport, type Contender, race, round3 } from './measuring/report.js';
import {
  awaitMembers,
  type BenchCluster,
  benchKeys,
  benchStorage,
  isStamped,
  type PeerAnswer,
  type PeerCommand,
  stampPage,
} from './measuring/store-pages.js';

const POLICIES = ['local', 'storage', 'both'] as const;
const PAGE_SIZES_BYTES = [64 * 2 ** 10, 2 ** 20] as const;
const BATCH_BYTES = 16 * 2 ** 20;
const FULL_WORK_BYTES = 256 * 2 ** 20;
const QUICK_WORK_BYTES = 16 * 2 ** 20;
/** Size of a pool relative to the bytes that are set in a pass. */
const POOL_SLACK = 1.25;
/** Pages of a pass that are read back. */
const SAMPLE_PAGES = 4;
const PLACED_TIMEOUT_MS = 30_000;

/**
 * Measures `batchSet` of new pages on a node for each write policy. Each node has a cluster of its own, with a storage
 * node in another process, which reads placed pages while the next ones are set.
 */
export async function placementBench(options: BenchOptions): Promise<BenchReport> {
  const workBytes = options.quick ? QUICK_WORK_BYTES : FULL_WORK_BYTES;
  const { rounds, progress } = options;
  progress('starting two processes');
  const bench = await PlacementBench.start(workBytes);
  try {
    const rows: BenchReport['rows'][number][] = [];
    for (const pageBytes of PAGE_SIZES_BYTES) {
      const setters = bench.setters(pageBytes);
      const raced = await race(setters, {
        rounds,
        totalBytes: workBytes,
        clear() {},
        progress: (round, name) => progress(`${formatSize(pageBytes)}: round ${round} of ${rounds}, ${name}`),
      });
      raced.forEach((row, i) => {
        rows.push({ page: formatSize(pageBytes), ...row, placed_share: setters[i]?.placedShare() ?? 0 });
      });
    }
    return {
      title: 'placement: setting pages that a storage node in another process takes, over loopback',
      rows,
      notes: [
        `Batches of ${formatSize(BATCH_BYTES)}, ${formatSize(workBytes)} in each of ${rounds} interleaved rounds, into pools of ${formatSize(workBytes * POOL_SLACK)}; medians.`,
        'ratio: to the policy local. placed_share: part of the pages set that the storage node has taken; the rest was evicted before, as pages were set faster than they were read.',
      ],
    };
  } finally {
    await bench.close();
  }
}

class PlacementBench {
  readonly #peer: PeerProcess<PeerCommand, PeerAnswer>;
  readonly #stores: readonly MeshCacheStore[];
  readonly #source: HostRegion;
  readonly #workBytes: number;

  private constructor(parts: {
    readonly peer: PeerProcess<PeerCommand, PeerAnswer>;
    readonly stores: readonly MeshCacheStore[];
    readonly workBytes: number;
  }) {
    this.#peer = parts.peer;
    this.#stores = parts.stores;
    this.#workBytes = parts.workBytes;
    this.#source = HostRegion.allocate(parts.workBytes);
  }

  static async start(workBytes: number): Promise<PlacementBench> {
    const clusters: BenchCluster[] = [];
    for (const _ of POLICIES) {
      clusters.push({
        discoveryAddr: `${LOOPBACK}:${await findFreePort(systemRandom)}`,
        config: { role: 'storage', reuse_quarantine_ms: 0 },
      });
    }
    const poolBytes = Math.ceil(workBytes * POOL_SLACK);
    const peer = new PeerProcess<PeerCommand, PeerAnswer>('store');
    const stores: MeshCacheStore[] = [];
    try {
      await peer.call({ kind: 'start', clusters, poolBytes, workBytes: BATCH_BYTES });
      for (const [i, { discoveryAddr }] of clusters.entries()) {
        const config = { write_policy: POLICIES[i], reuse_quarantine_ms: 0 };
        stores.push(await MeshCacheStore.create(benchStorage(discoveryAddr, poolBytes, config)));
      }
      for (const store of stores) await awaitMembers(store, 2);
      return new PlacementBench({ peer, stores, workBytes });
    } catch (error) {
      for (const store of stores) await store.close();
      peer.end();
      throw error;
    }
  }

  /** One setter for each policy. */
  setters(pageBytes: number): Setter[] {
    const pages = Math.floor(this.#workBytes / pageBytes);
    for (let page = 0; page < pages; page++) stampPage(this.#source.bytes(page * pageBytes, pageBytes), page);
    return this.#stores.map((store, i) => {
      return new Setter(POLICIES[i] as string, { store, source: this.#source, pageBytes, pages });
    });
  }

  async close(): Promise<void> {
    for (const store of this.#stores) await store.close();
    this.#peer.end();
    this.#source.free();
  }
}

interface SetterParts {
  readonly store: MeshCacheStore;
  readonly source: HostRegion;
  readonly pageBytes: number;
  readonly pages: number;
}

/** In each pass, sets all pages of a source under new keys. */
class Setter implements Contender {
  readonly name: string;
  readonly #parts: SetterParts;
  readonly #placedBefore: number;
  #passes = 0;
  #failed = 0;
  #keys: readonly string[] = [];

  constructor(name: string, parts: SetterParts) {
    this.name = name;
    this.#parts = parts;
    this.#placedBefore = parts.store.stats().placement?.placedPages ?? 0;
    this.#keys = this.#nextKeys();
  }

  async read(): Promise<void> {
    const { store, source, pageBytes, pages } = this.#parts;
    const batchPages = Math.max(1, Math.floor(BATCH_BYTES / pageBytes));
    for (let first = 0; first < pages; first += batchPages) {
      const keys = this.#keys.slice(first, first + batchPages);
      const ptrs = keys.map((_, i) => source.addr + BigInt((first + i) * pageBytes));
      const results = await store.batchSet(keys, ptrs, Array(keys.length).fill(pageBytes) as number[]);
      this.#failed += results.filter((isSet) => !isSet).length;
    }
    this.#passes++;
  }

  isRight(): boolean {
    return this.#failed === 0;
  }

  /** Waits for the storage node, then reads some pages back; each must be right or gone. */
  async settle(): Promise<void> {
    const { store, pages, pageBytes } = this.#parts;
    const untilMs = performance.now() + PLACED_TIMEOUT_MS;
    while ((store.stats().placement?.unplacedPages ?? 0) > 0 && performance.now() < untilMs) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    for (let sample = 1; sample <= SAMPLE_PAGES; sample++) {
      const page = Math.floor((sample * (pages - 1)) / SAMPLE_PAGES);
      const bytes = await store.get(this.#keys[page] as string);
      if (bytes !== null && !(bytes.length === pageBytes && isStamped(bytes, page)))
        throw new Error(`${this.name}: wrong bytes`);
    }
    this.#keys = this.#nextKeys();
  }

  placedShare(): number {
    const { store, pages } = this.#parts;
    const placed = (store.stats().placement?.placedPages ?? 0) - this.#placedBefore;
    return round3(placed / (this.#passes * pages));
  }

  #nextKeys(): readonly string[] {
    const { pageBytes, pages } = this.#parts;
    return benchKeys(pageBytes, pages).map((key) => `${this.#passes}-${key}`);
  }
}
