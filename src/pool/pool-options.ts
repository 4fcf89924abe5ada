import type { Clock } from '../base/environment/clock.js';
import type { RandomSource } from '../base/environment/random.js';
import type { EvictionPolicy } from '../core/index.js';
import type { CopyThreads } from './copy-threads.js';

/** What a `PublishedPool` takes beside its memory. */
export interface PublishedPoolOptions {
  /** Called with the keys of pages that have left the pool without being asked to. */
  readonly onEvict?: (keys: string[]) => void;
  readonly policy?: EvictionPolicy;
  /** Milliseconds for which a freed range is not reused; 0 reuses it at once. */
  readonly quarantineMs?: number;
  /** Never shorten the quarantine; a page for which there is no room meanwhile is refused. */
  readonly neverReuseEarly?: boolean;
  readonly clock: Clock;
  /**
   * @internal Gives each page a stamp, drawn from here: its location then names it, and a peer reads the page's image (see
   * `memory/page-stamp.ts`). Without it the pages lie in the pool as they are.
   */
  readonly stamps?: RandomSource;
  /** @internal What copies large pages. */
  readonly copyThreads: CopyThreads;
}
