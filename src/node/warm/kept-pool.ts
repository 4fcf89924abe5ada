import type { Environment } from '../../base/environment/environment.js';
import type { DiskStore } from '../../disk/disk-store.js';
import { NamespaceFile } from '../../disk/folder/namespace-file.js';
import type { HostRegion } from '../../memory/host-region.js';
import { PageCopies } from '../../memory/page-copies.js';
import { imageBytes, NO_STAMP, readStamp, STAMP_BYTES, writeStamp } from '../../memory/page-stamp.js';
import { copyThreadsOf } from '../../pool/copy-threads.js';
import type { Cells } from '../../pool/kept/cells.js';
import { type FoundRecord, PageRecords } from '../../pool/kept/page-records.js';
import { stampOffset } from '../../pool/page-stamps.js';
import type { FoundRefusal } from '../../pool/pool-metrics.js';
import type { PublishedPool } from '../../pool/published-pool.js';
import type { NamespaceTenants } from '../../pool/tenants/namespace-tenants.js';
import { openPoolFolder, type PoolFolder } from './pool-folder.js';

/** Bytes checksummed between two turns of the event loop. */
const SUM_SLICE_BYTES = 64 * 2 ** 20;
/** Delay before memory that nobody has touched yet is mapped. */
const PREFAULT_AFTER_MS = 3000;
/** Pages compared with those of the disk between two turns of the event loop. */
const COMPARE_SLICE_PAGES = 1024;

/** Results of the search for pages in the pool at the node's start. */
export interface KeptFigures {
  readonly pages: number;
  readonly bytes: number;
  /** Pages that were found but not restored. */
  readonly refused: number;
}

export interface KeptPoolOptions {
  /** The folder of the pool. */
  readonly path: string;
  readonly capacityBytes: number;
  readonly verifyReads: boolean;
  readonly nodeId: string;
  readonly tenants: NamespaceTenants;
  readonly env: Environment;
}

/**
 * The memory of a pool that outlives its process, and the earlier pages found in it: those whose record is complete and
 * whose stamp is in place. Readers check their bytes; with `verify_reads` off nobody would, so the bytes are checked
 * here.
 */
export class KeptPool {
  readonly region: HostRegion;
  readonly records: PageRecords;
  readonly #folder: PoolFolder;
  readonly #env: Environment;
  #found: readonly FoundRecord[] = [];
  #namespaces: NamespaceFile | undefined;
  readonly #refused = new Map<FoundRefusal, number>();
  #cancelPrefault: () => void = () => {};
  #figures: KeptFigures = { pages: 0, bytes: 0, refused: 0 };

  /** Opens the folder and finds its pages. Throws `ConfigError`. */
  static async open(options: KeptPoolOptions): Promise<KeptPool> {
    const { path, verifyReads, tenants, env } = options;
    const folder = await openPoolFolder(options);
    const pool = new KeptPool(folder, env);
    try {
      pool.#find(path);
      if (!verifyReads) pool.#found = await pool.#intact(pool.#found);
      pool.#namespaces = await NamespaceFile.open(path, tenants, pool.#found, env);
      return pool;
    } catch (error) {
      await pool.close();
      throw error;
    }
  }

  private constructor(folder: PoolFolder, env: Environment) {
    this.#folder = folder;
    this.#env = env;
    this.region = folder.region;
    this.records = new PageRecords(folder.cells);
  }

  /** The results of {@link restore}. */
  get figures(): KeptFigures {
    return this.#figures;
  }

  /** The note of the last start at which all pages were known to be good. */
  get startNote(): Pick<Cells, 'start' | 'note'> {
    return this.#folder.cells;
  }

  /** Version of the newest page that was found; 0: none. */
  get newestVersion(): number {
    return this.#found.reduce((newest, { version }) => Math.max(newest, version), 0);
  }

  /**
   * Compares the pages with those of the disk: of two contents of a key, the older one is dropped. The runtime must be
   * open, because pages expire by its present. Resolves when no crash can bring the older ones back.
   */
  async compareWith(disk: DiskStore): Promise<void> {
    const newer: FoundRecord[] = [];
    for (let first = 0; first < this.#found.length; first += COMPARE_SLICE_PAGES) {
      const some = this.#found.slice(first, first + COMPARE_SLICE_PAGES);
      const onDisk = disk.peekBatch(some.map(({ key }) => key));
      for (const [i, record] of some.entries()) {
        if ((onDisk[i]?.version ?? 0) > record.version) continue;
        disk.removeOther(record.key, record);
        newer.push(record);
      }
      await this.#env.clock.yield();
    }
    await disk.removalsWritten();
    this.#refuse('older', this.#found.length - newer.length);
    this.#found = newer;
  }

  /** Puts the pages back into the pool, which must be new. */
  restore(pool: PublishedPool): void {
    const restored = pool.kept?.restore(this.#found);
    this.#found = [];
    const { metrics, log, clock } = this.#env;
    // Other threads map the memory, so that sets need not; they do it later, so that they do not slow down the start.
    if (this.region.isNative) {
      this.#cancelPrefault = clock.after(PREFAULT_AFTER_MS, () => void this.region.prefault().catch(() => {}));
    }
    this.#refuse('room', restored?.unfitCount ?? 0);
    this.#refuse('quota', restored?.overQuota.length ?? 0);
    const refusedCount = [...this.#refused.values()].reduce((sum, count) => sum + count, 0);
    const figures = { pages: pool.size, bytes: pool.bytesUsed, refused: refusedCount };
    this.#figures = figures;
    metrics.count('meshcache_pool_found_pages_total', figures.pages);
    metrics.count('meshcache_pool_found_bytes_total', figures.bytes);
    for (const [reason, count] of this.#refused) metrics.count('meshcache_pool_refused_pages_total', count, { reason });
    const refused = Object.fromEntries([...this.#refused].map(([reason, count]) => [`refused_${reason}`, count]));
    log.log('info', 'pages of the previous run found in the kept pool', {
      pages: figures.pages,
      bytes: figures.bytes,
      ...refused,
    });
  }

  /** Releases the memory and the folder; the pages stay in them. Idempotent. */
  async close(): Promise<void> {
    this.#cancelPrefault();
    await this.#namespaces?.close();
    await this.#folder.close();
  }

  #find(path: string): void {
    const { state } = this.#folder;
    if (state !== 'ours') {
      this.records.settle([]);
      if (state === 'empty') return;
      const why = state === 'damaged' ? 'its header is damaged' : 'its format is of another version';
      this.#env.log.log('warn', 'pool: the index is not used, and the pool starts empty', { path, reason: why });
      return;
    }
    const { records, damagedCount } = this.records.find((record) => this.#isThere(record));
    this.#refuse('record', damagedCount);
    this.#found = records;
  }

  /** Whether the pool has this page's stamp in its place. */
  #isThere({ offset, length, stamp }: FoundRecord): boolean {
    // A destroyed stamp is zero, and so is memory that was never used.
    if (stamp === NO_STAMP || length === 0 || offset + imageBytes(length) > this.region.length) return false;
    const [view, ...others] = this.region.views(stampOffset(offset, length), STAMP_BYTES);
    return view !== undefined && others.length === 0 && readStamp(view, 0) === stamp;
  }

  /** The pages whose bytes match their checksum. */
  async #intact(found: readonly FoundRecord[]): Promise<FoundRecord[]> {
    const { threads, clock } = this.#env;
    const copyThreads = copyThreadsOf(threads);
    const intact: FoundRecord[] = [];
    for (let first = 0, end = 0; first < found.length; first = end) {
      const copies = new PageCopies();
      let bytes = 0;
      for (end = first; end < found.length && bytes < SUM_SLICE_BYTES; end++) {
        const record = found[end] as FoundRecord;
        copies.add(this.#bytesOf(record), null);
        bytes += record.length;
      }
      const sums = copyThreads.take(end - first, bytes) ? await copyThreads.copy(copies) : copies.run();
      for (let i = first; i < end; i++) {
        const record = found[i] as FoundRecord;
        if (sums[i - first] === record.checksum) intact.push(record);
      }
      await clock.yield();
    }
    this.#refuse('checksum', found.length - intact.length);
    return intact;
  }

  #bytesOf({ offset, length, tail }: FoundRecord): Uint8Array[] {
    const last = new Uint8Array(Math.min(length, STAMP_BYTES));
    writeStamp(last, 0, tail, last.length);
    return [...this.region.views(offset, length - last.length), last];
  }

  #refuse(reason: FoundRefusal, count: number): void {
    if (count > 0) this.#refused.set(reason, (this.#refused.get(reason) ?? 0) + count);
  }
}
