import type { Clock } from '../../base/environment/clock.js';
import { type Keys, sliceKeys } from '../../core/binding/key-batch.js';
import type { PublishRequest } from '../../core/index.js';
import type { PageBytes, PageOrigin, PublishedPage, PublishedPool } from '../../pool/published-pool.js';
import { type Slice, slicesOf } from '../call/key-steps.js';
import type { RequestParts } from '../call/request-calls.js';

/** Pages of one call that are to be published, and the callbacks for their results. */
export interface Publishing {
  readonly keys: Keys;
  readonly pages: readonly PageBytes[];
  readonly origin: PageOrigin;
  readonly request: RequestParts<PublishRequest>;
  /** Ends waiting; `mayGoOn` ends the call. */
  readonly signal?: AbortSignal | undefined;
  /** Called before each slice with the number of pages that are left; false ends the call. */
  readonly mayGoOn: (pagesLeft: number) => boolean;
  /** Called with each slice and its keys as soon as it is in the pool; null for pages that have found no room. */
  readonly onPublished: (slice: Slice, published: readonly (PublishedPage | null)[], keys: Keys) => void;
  /** Called with pages that have replaced others and were removed again before they were reported. */
  readonly onTakenBack: (keys: readonly string[]) => void;
  /**
   * Called with computed pages that were here before and are not reported; the call may have changed what is to be
   * announced of them.
   */
  readonly onLeft: (keys: readonly string[]) => void;
}

/** Publishes as fast as the pool copies; other work has its turn between slices. */
export async function publishSlices(
  { keys, pages, origin, request, mayGoOn, onPublished }: Publishing,
  { pool, clock }: { readonly pool: Pick<PublishedPool, 'publishPages'>; readonly clock: Clock },
): Promise<void> {
  for (const slice of slicesOf(pages)) {
    if (slice.start > 0) await clock.yield();
    if (!mayGoOn(pages.length - slice.start)) return;
    const { start, end } = slice;
    const part = sliceKeys(keys, start, end);
    onPublished(slice, await pool.publishPages(part, pages.slice(start, end), origin, request.next()), part);
  }
}
