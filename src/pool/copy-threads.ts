import type { Threads } from '../base/environment/threads.js';
import { canCopyOffThread, type PageCopies } from '../memory/page-copies.js';

/**
 * Smallest total and page size for a copy on other threads. Below it the calling thread copies better: it blocks for at
 * most a quarter of a millisecond, whereas handing over takes 20 to 50 microseconds during which the pages are held.
 */
const TOTAL_MIN_BYTES = 2 ** 20;
const PAGE_MIN_BYTES = 64 * 2 ** 10;

/** Threads that copy pages while the calling thread continues. */
export interface CopyThreads {
  /** Whether to copy this many pages, with this many bytes in total, on other threads. */
  take(pageCount: number, totalBytes: number): boolean;
  /**
   * Copies the pages; resolves with one checksum per page when all are copied. The memory is not touched afterwards.
   */
  copy(copies: PageCopies): Promise<Uint32Array>;
}

/** Threads of the native addon; without the addon there are none. */
export const nativeCopyThreads: CopyThreads = {
  take(pageCount, totalBytes) {
    return totalBytes >= TOTAL_MIN_BYTES && totalBytes >= pageCount * PAGE_MIN_BYTES && canCopyOffThread();
  },
  copy: (copies) => copies.runOffThread(),
};

/** Copies on the calling thread only. */
const noCopyThreads: CopyThreads = { take: () => false, copy: async (copies) => copies.run() };

/** The copy threads of an environment with these threads. */
export function copyThreadsOf({ canCopy }: Threads): CopyThreads {
  return canCopy ? nativeCopyThreads : noCopyThreads;
}
