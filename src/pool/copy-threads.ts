import type { Threads } from '../base/environment/threads.js';
import { canCopyOffThread, type PageCopies } from '../memory/page-copies.js';

/**
 * Below so many bytes in all, or a page, copying here is better: this thread is busy for a quarter of a millisecond at
 * the most, and the way to other threads and back, with the pages held meanwhile, takes 20 to 50 microseconds.
 */
const TOTAL_MIN_BYTES = 2 ** 20;
const PAGE_MIN_BYTES = 64 * 2 ** 10;

/** Threads that copy pages while the calling one goes on. */
export interface CopyThreads {
  /** Whether they are to copy so many pages that have so many bytes in all. */
  take(pageCount: number, totalBytes: number): boolean;
  /** Resolves with one checksum a page when all is copied; nothing is read or written afterwards. */
  copy(copies: PageCopies): Promise<Uint32Array>;
}

/** Those of the native addon; without it, nobody. */
export const nativeCopyThreads: CopyThreads = {
  take(pageCount, totalBytes) {
    return totalBytes >= TOTAL_MIN_BYTES && totalBytes >= pageCount * PAGE_MIN_BYTES && canCopyOffThread();
  },
  copy: (copies) => copies.runOffThread(),
};

/** Everything is copied here. */
const noCopyThreads: CopyThreads = { take: () => false, copy: async (copies) => copies.run() };

/** What an environment with these threads copies pages with. */
export function copyThreadsOf({ canCopy }: Threads): CopyThreads {
  return canCopy ? nativeCopyThreads : noCopyThreads;
}
