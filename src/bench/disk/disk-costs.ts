import { createHash } from 'node:crypto';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { formatSize } from '../../base/sizes.js';
import { DiskStore } from '../../disk/disk-store.js';
import { crc32 } from '../../memory/checksum.js';
import { HostRegion } from '../../memory/host-region.js';
import { systemEnvironment } from '../../system/system-environment.js';
import { awaitRoom, LoopDelay } from './disk-store-contender.js';

const SMALL_PAGE_BYTES = 4096;
/** Disk space for each small page: the page, its part of the index, and room to spare. */
const DISK_BYTES_PER_SMALL_PAGE = 16 * 2 ** 10;
const PUT_SLICE_PAGES = 256;
/** Limit of the write queue, small so that waiting writes are not counted as memory that pages need. */
const QUEUE_MAX_BYTES = 2 ** 20;
const BLOCK_BYTES = 512;
const SAMPLE_EVERY_MS = 5;
const FILLED_TIMES = 10;
/** Page sizes, used in turn, that overfill the disk. */
const MIXED_PAGE_BYTES = [4096, 4096, 4096, 64 * 2 ** 10, 4096, 5000, 2 ** 20 - 1, 4096] as const;
const IDLE_MS = 500;

export interface MemoryCost {
  readonly pages: number;
  /** Growth of the process's resident memory per page, WASM included. */
  readonly rssBytesPerPage: number;
}

/** Measures the memory of a page on disk: many small pages, put after some first ones have warmed everything up. */
export async function memoryPerPage(
  folder: string,
  options: { readonly pages: number; readonly warmUpPages: number; progress(text: string): void },
): Promise<MemoryCost> {
  const { pages, warmUpPages, progress } = options;
  const disk = (pages + warmUpPages) * DISK_BYTES_PER_SMALL_PAGE + 2 ** 20;
  const store = await DiskStore.open(folder, disk, {
    nodeId: 'bench',
    env: systemEnvironment(),
    queueMaxBytes: QUEUE_MAX_BYTES,
  });
  try {
    const collectGarbage = garbageCollector();
    const puts = new SmallPages(store, progress);
    await puts.put(warmUpPages);
    collectGarbage();
    const before = process.memoryUsage.rss();
    await puts.put(pages);
    collectGarbage();
    const rssBytesPerPage = Math.max(0, process.memoryUsage.rss() - before) / pages;
    const [, kept] = store.stats();
    if (kept !== pages + warmUpPages) throw new Error(`the disk store has ${kept} of ${pages + warmUpPages} pages`);
    puts.free();
    return { pages, rssBytesPerPage };
  } finally {
    await store.close();
  }
}

export interface SpaceCost {
  readonly diskBytes: number;
  readonly writtenBytes: number;
  /** The most bytes that files and folders used, of all samples. */
  readonly maxUsedBytes: number;
  readonly samples: number;
}

/** Measures the space used on disk while ten times its size is written, in pages of many sizes. */
export async function spaceWhileOverfilled(
  folder: string,
  options: { readonly diskBytes: number; progress(text: string): void },
): Promise<SpaceCost> {
  const { diskBytes, progress } = options;
  const store = await DiskStore.open(folder, diskBytes, { nodeId: 'bench', env: systemEnvironment() });
  const largest = new Uint8Array(Math.max(...MIXED_PAGE_BYTES)).fill(0x5d);
  let [writtenBytes, maxUsedBytes, samples, sampledMs] = [0, 0, 0, 0];
  const sample = async (): Promise<void> => {
    maxUsedBytes = Math.max(maxUsedBytes, await bytesOnDisk(folder));
    samples++;
    sampledMs = performance.now();
  };
  try {
    for (let page = 0; writtenBytes < FILLED_TIMES * diskBytes; page++) {
      const length = MIXED_PAGE_BYTES[page % MIXED_PAGE_BYTES.length] as number;
      await awaitRoom(store, length);
      store.put(keyOf(page), largest.subarray(0, length));
      writtenBytes += length;
      if (performance.now() - sampledMs < SAMPLE_EVERY_MS) continue;
      progress(`${formatSize(writtenBytes)} written to a disk of ${formatSize(diskBytes)}`);
      await sample();
    }
    await store.flush();
    await sample();
    return { diskBytes, writtenBytes, maxUsedBytes, samples };
  } finally {
    await store.close();
  }
}

/** Measures the event loop of a program that does nothing: the delay that the machine itself adds. */
export async function idleLoopDelay(): Promise<LoopDelay> {
  const delay = new LoopDelay();
  await delay.during(() => new Promise<void>((resolve) => setTimeout(resolve, IDLE_MS)));
  return delay;
}

/** Puts small pages under ever new keys, which it does not keep. */
class SmallPages {
  readonly #store: DiskStore;
  readonly #region = HostRegion.allocate(SMALL_PAGE_BYTES);
  readonly #checksum: number;
  readonly #progress: (text: string) => void;
  #next = 0;

  constructor(store: DiskStore, progress: (text: string) => void) {
    this.#store = store;
    this.#checksum = crc32(this.#region.bytes(), 0);
    this.#progress = progress;
  }

  async put(count: number): Promise<void> {
    const page = { views: [this.#region.bytes()], length: SMALL_PAGE_BYTES };
    const end = this.#next + count;
    while (this.#next < end) {
      await awaitRoom(this.#store, SMALL_PAGE_BYTES, QUEUE_MAX_BYTES);
      this.#store.putPage(keyOf(this.#next++), page, this.#checksum, () => {});
      if (this.#next % PUT_SLICE_PAGES !== 0) continue;
      this.#progress(`${this.#next} small pages put`);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await this.#store.flush();
  }

  free(): void {
    this.#region.free();
  }
}

/** A key as long as the keys of a store's pages: a namespace of 33 characters and a content hash. */
function keyOf(page: number): string {
  return `${'0'.repeat(32)}/${createHash('sha256').update(`small ${page}`).digest('hex')}`;
}

/** Bytes that a folder and everything in it use on disk, as `du` reports them. */
async function bytesOnDisk(folder: string): Promise<number> {
  const names = ['.', ...(await readdir(folder, { recursive: true }))];
  const sizes = await Promise.all(
    names.map((name) =>
      stat(join(folder, name)).then(
        ({ blocks }) => blocks * BLOCK_BYTES,
        () => 0,
      ),
    ),
  );
  return sizes.reduce((sum, bytes) => sum + bytes, 0);
}

function garbageCollector(): () => void {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as () => void;
}
