import type { CancelSignal } from '../../base/concurrency/cancellation.js';
import type { Clock } from '../../base/environment/clock.js';
import { type Keys, sliceKeys } from '../../core/binding/key-batch.js';
import type { PublishRequest } from '../../core/index.js';
import type { PageBytes, PageOrigin, PublishedPage, PublishedPool } from '../../pool/published-pool.js';
import { type Slice, slicesOf } from '../call/key-steps.js';
import type { RequestParts } from '../call/request-calls.js';

/** Pages that one call publishes; the call hears what becomes of them. */
export interface Publishing {
  readonly keys: Keys;
  readonly pages: readonly PageBytes[];
  readonly origin: PageOrigin;
  readonly request: RequestParts<PublishRequest>;
  /** Ends waits; `mayGoOn` ends the call. */
  readonly signal?: CancelSignal | undefined;
  /** Called before each slice with the number of pages left; returning false ends the call. */
  mayGoOn(pagesLeft: number): boolean;
  /** Called when a slice, with its keys, is in the pool; null for pages that found no room. */
  published(slice: Slice, pages: readonly (PublishedPage | null)[], keys: Keys): void;
  /** Called when pages that had replaced others were removed again before they were reported. */
  takenBack(keys: readonly string[]): void;
  /**
   * Called with computed pages that were here before and are not reported. The call may have changed details that must
   * be announced, such as the expiry.
   */
  left(keys: readonly string[]): void;
}

/** Publishes as fast as the pool copies; other work gets its turn between slices. */
export async function publishSlices(
  publishing: Publishing,
  { pool, clock }: { readonly pool: Pick<PublishedPool, 'publishPages'>; readonly clock: Clock },
): Promise<void> {
  const { keys, pages, origin, request } = publishing;
  for (const slice of slicesOf(pages)) {
    if (slice.start > 0) await clock.yield();
    if (!publishing.mayGoOn(pages.length - slice.start)) return;
    const { start, end } = slice;
    const part = sliceKeys(keys, start, end);
    const taken = await pool.publishPages(part, pages.slice(start, end), origin, request.next());
    publishing.published(slice, taken, part);
  }
}
