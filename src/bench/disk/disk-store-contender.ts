import { monitorEventLoopDelay } from 'node:perf_hooks';
import { DISK_ALIGNMENT_BYTES, DISK_QUEUE_MAX_BYTES } from '../../base/limits.js';
import { DiskStore, diskSizeFor } from '../../disk/disk-store.js';
import { crc32 } from '../../memory/checksum.js';
import { HostRegion } from '../../memory/host-region.js';
import { systemEnvironment } from '../../system/system-environment.js';
import { stampPage } from '../measuring/store-pages.js';
import { type DiskContender, type DiskRun, type DiskWork, inFlight, timed } from './disk-contenders.js';

/** Bytes handed over before the event loop gets a turn, as in a program that also does other work. */
const PUT_SLICE_BYTES = 2 ** 20;
const QUEUE_POLL_MS = 1;
/** Offset that breaks the alignment of direct I/O, like that of odd-sized pages in a pool. */
const UNALIGNED_BYTES = 64;
const LOOP_RESOLUTION_MS = 1;
const NS_PER_MS = 1e6;

type StoreVariant = 'aligned' | 'unaligned' | 'put';

const NAMES: Readonly<Record<StoreVariant, string>> = {
  aligned: 'DiskStore',
  unaligned: 'DiskStore, unaligned memory',
  put: 'DiskStore.put, getInto',
};

/** Memory that adjacent pages, stamped with their numbers, are written from and read into. */
export class StoreMemory {
  readonly #source: HostRegion;
  readonly #target: HostRegion;

  constructor(bytes: number) {
    this.#source = HostRegion.allocate(bytes + DISK_ALIGNMENT_BYTES);
    this.#target = HostRegion.allocate(bytes + DISK_ALIGNMENT_BYTES);
    this.#target.bytes().fill(1);
  }

  stamp({ pages, pageBytes }: DiskWork, at: number): void {
    for (let page = 0; page < pages; page++) stampPage(this.#source.bytes(at + page * pageBytes, pageBytes), page);
  }

  sourceOf(page: number, pageBytes: number, at: number): Uint8Array {
    return this.#source.bytes(at + page * pageBytes, pageBytes);
  }

  targetOf(page: number, pageBytes: number, at: number): Uint8Array {
    return this.#target.bytes(at + page * pageBytes, pageBytes);
  }

  free(): void {
    this.#source.free();
    this.#target.free();
  }
}

/** Delay of the event loop by the worst piece of work, including the measuring timer's own interval. */
export class LoopDelay {
  #p99Ms = 0;
  #maxMs = 0;

  /**
   * Measures the delay during `work`. The histogram is new, because one that is enabled again counts the time during
   * which it was off.
   */
  async during<T>(work: () => Promise<T>): Promise<T> {
    const histogram = monitorEventLoopDelay({ resolution: LOOP_RESOLUTION_MS });
    histogram.enable();
    try {
      return await work();
    } finally {
      histogram.disable();
      this.#p99Ms = Math.max(this.#p99Ms, histogram.percentile(99) / NS_PER_MS);
      this.#maxMs = Math.max(this.#maxMs, histogram.max / NS_PER_MS);
    }
  }

  get p99Ms(): number {
    return this.#p99Ms;
  }

  get maxMs(): number {
    return this.#maxMs;
  }
}

/**
 * `DiskStore` as a contender. `aligned` and `unaligned` hand pages over as the disk tier does; with `put`, the store
 * first copies them and computes their checksums.
 */
export class StoreContender implements DiskContender {
  readonly name: string;
  readonly variant: StoreVariant;
  /** Delay in all rounds since this object was last replaced. */
  loopDelay = new LoopDelay();
  readonly #memory: StoreMemory;

  constructor(variant: StoreVariant, memory: StoreMemory) {
    this.name = NAMES[variant];
    this.variant = variant;
    this.#memory = memory;
  }

  async begin(folder: string, work: DiskWork): Promise<DiskRun> {
    const { pages, pageBytes, keys, order } = work;
    const at = this.variant === 'unaligned' ? UNALIGNED_BYTES : 0;
    this.#memory.stamp(work, at);
    const sources = keys.map((_, page) => this.#memory.sourceOf(page, pageBytes, at));
    const checksums = sources.map((bytes) => crc32(bytes, 0));
    const { maxBytes, indexBytes } = diskSizeFor(pages, pageBytes);
    const store = await DiskStore.open(folder, maxBytes, { nodeId: 'bench', env: systemEnvironment(), indexBytes });
    const put = (key: string, page: number): void => {
      const bytes = sources[page] as Uint8Array;
      if (this.variant === 'put') store.put(key, bytes);
      else store.putPage(key, { views: [bytes], length: pageBytes }, checksums[page] as number, () => {});
    };
    const write = (generation: string): Promise<number> =>
      this.loopDelay.during(() => timed(() => putAll(store, work, (page) => put(`${generation}${keys[page]}`, page))));
    const readPage = async (page: number): Promise<void> => {
      const isRead = await store.getInto(`2${keys[page]}`, this.#memory.targetOf(page, pageBytes, at));
      if (!isRead) throw new Error(`page ${page} of ${pageBytes} bytes is not in the disk store`);
    };
    return {
      write: () => write('1'),
      // The keys are different, so that the first pages must make room for them.
      rewrite: () => write('2'),
      read: () => this.loopDelay.during(() => timed(() => inFlight(pages, (i) => readPage(order[i] as number)))),
      pageAt: (page) => this.#memory.targetOf(page, pageBytes, at),
      end: () => store.close(),
    };
  }
}

async function putAll(store: DiskStore, { pages, pageBytes }: DiskWork, put: (page: number) => void): Promise<void> {
  const skippedBefore = store.info().skippedPages;
  let sliceBytes = 0;
  for (let page = 0; page < pages; page++) {
    await awaitRoom(store, pageBytes);
    put(page);
    sliceBytes += pageBytes;
    if (sliceBytes < PUT_SLICE_BYTES) continue;
    sliceBytes = 0;
    await new Promise((resolve) => setImmediate(resolve));
  }
  await store.flush();
  const skipped = store.info().skippedPages - skippedBefore;
  if (skipped > 0) throw new Error(`the disk store has not written ${skipped} of ${pages} pages`);
}

/**
 * Waits until the store's queue has room for a page. The store would skip a page that does not fit, but here all pages
 * must be written.
 */
export async function awaitRoom(
  store: DiskStore,
  pageBytes: number,
  queueMaxBytes = DISK_QUEUE_MAX_BYTES,
): Promise<void> {
  while (store.info().queueBytes + pageBytes > queueMaxBytes) {
    await new Promise((resolve) => setTimeout(resolve, QUEUE_POLL_MS));
  }
}
