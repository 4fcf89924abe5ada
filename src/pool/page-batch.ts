import { ArgumentError } from '../base/errors.js';
import { KeyBatch, type Keys, type PublishRequest } from '../core/index.js';
import { resolve } from '../memory/address-space.js';
import { PageCopies } from '../memory/page-copies.js';
import type { Placement, PublishedPage } from './page-index.js';
import { isAsGood, NO_ORIGIN, type PageOrigin } from './slots/page-origin.js';

/** Bytes of one page, which lie in `views` one after the other. */
export interface PageBytes {
  readonly views: readonly Uint8Array[];
  /** Total bytes of the views. */
  readonly length: number;
  /**
   * Called after a copy. False: the memory was freed meanwhile, so the copy is not the page. Undefined: the memory
   * cannot be freed.
   */
  readonly isIntact?: (() => boolean) | undefined;
}

/** Asks the sources of one copy, after it, whether they stayed intact: once for all pages that share a check. */
export class IntactSources {
  readonly #answers = new Map<() => boolean, boolean>();

  has({ isIntact }: PageBytes): boolean {
    if (isIntact === undefined) return true;
    const known = this.#answers.get(isIntact);
    if (known !== undefined) return known;
    const answer = isIntact();
    this.#answers.set(isIntact, answer);
    return answer;
  }
}

/** A page that is evicted for a new one. Its bytes are valid until control returns to the pool. */
export interface LeavingPage extends PageOrigin {
  readonly key: string;
  readonly bytes: PageBytes;
  /** Undefined: the page was evicted at once, for a later page of its own batch, and has no checksum yet. */
  readonly checksum: number | undefined;
}

/** Whether the views still have all of the page's bytes; their memory may have been detached meanwhile. */
export function isWhole({ views, length }: PageBytes): boolean {
  return views.reduce((sum, view) => sum + view.length, 0) === length;
}

/** The bytes at a pointer into a live `HostRegion`, for `publish`. Throws `ArgumentError` for other pointers. */
export function pageAt(srcPtr: bigint, length: number): PageBytes {
  if (typeof srcPtr !== 'bigint') {
    throw new ArgumentError(`publish: a pointer must be a bigint, got ${typeof srcPtr}`);
  }
  if (!Number.isSafeInteger(length) || length < 1) {
    throw new ArgumentError(`publish: length must be a whole number of at least 1 byte, got ${length}`);
  }
  const views = resolve(Number(srcPtr), length);
  if (views !== null) return { views, length };
  throw new ArgumentError(`publish: ${length} bytes from ${srcPtr} on are not within a live HostRegion`);
}

/** Total bytes of pages. */
export function bytesOf(pages: readonly PageBytes[]): number {
  return pages.reduce((sum, { length }) => sum + length, 0);
}

/** Place of a page that was evicted at once. No page has this slot, so readers directed to it miss. */
const NO_PLACE = { slot: -1, offset: 0, state: 'live', alreadyPresent: false } as const;

/** Options for all pages of a batch. */
export interface BatchOptions {
  readonly origin?: PageOrigin | undefined;
  /** The request that the batch belongs to, and the priority of its pages. */
  readonly request?: PublishRequest | undefined;
}

/** A batch in which each key occurs once, with the last page given for it. */
export class DistinctBatch {
  /** The distinct keys, encoded once for all calls into the index. */
  readonly batch: KeyBatch;
  readonly pages: readonly PageBytes[];
  readonly origin: PageOrigin;
  readonly request: PublishRequest | undefined;
  readonly #whole: KeyBatch;

  constructor(keys: Keys, pages: readonly PageBytes[], { origin, request }: BatchOptions = {}) {
    this.origin = origin ?? NO_ORIGIN;
    this.request = request;
    const whole = keys instanceof KeyBatch ? keys : KeyBatch.of(keys);
    const lastIndex = new Map(whole.keys.map((key, i) => [key, i]));
    const indices = lastIndex.size < whole.count ? [...lastIndex.values()] : undefined;
    this.batch = indices === undefined ? whole : whole.pick(indices);
    this.pages = indices === undefined ? pages : indices.map((i) => pages[i] as PageBytes);
    this.#whole = whole;
  }

  get keys(): readonly string[] {
    return this.batch.keys;
  }

  /**
   * Results of pages that take no new bytes: pages that already existed, and pages that were evicted at once. `sums`:
   * checksums of all copies of the batch; `intact`: the sources after these copies.
   */
  resultsWithoutBytes(
    { used, vacancies, evictedAtOnce }: PlacedBatch,
    sums: Uint32Array,
    intact: IntactSources,
  ): (PublishedPage | null)[] {
    const results = [...used];
    evictedAtOnce.forEach((index, i) => {
      const page = this.pages[index] as PageBytes;
      const checksum = sums[vacancies.length + i] as number;
      if (intact.has(page)) results[index] = { ...this.origin, ...NO_PLACE, length: page.length, checksum };
    });
    return results;
  }

  /** Maps results of the distinct keys to results of all given keys. */
  spread(results: readonly (PublishedPage | null)[]): (PublishedPage | null)[] {
    if (this.batch === this.#whole) return this.keys.map((_, i) => results[i] ?? null);
    const byKey = new Map(this.keys.map((key, i) => [key, results[i] ?? null]));
    return this.#whole.keys.map((key) => byKey.get(key) ?? null);
  }
}

/** Places of a batch's pages, and the copies that fill them. */
export interface PlacedBatch extends Placement {
  /** The origin of the new page of each vacancy. */
  readonly origins: readonly PageOrigin[];
  /** One copy for each vacancy, then one for each page that was evicted at once, which only computes the checksum. */
  readonly copies: PageCopies;
}

/** Pages of a batch with the same length as existing ones: only their checksums show whether they are equal. */
export class SameLength {
  readonly copies = new PageCopies();
  readonly #indices: number[] = [];

  constructor(here: readonly (PublishedPage | null)[], pages: readonly PageBytes[], origin: PageOrigin) {
    pages.forEach((page, i) => {
      const there = here[i] ?? null;
      if (there?.length !== page.length || !isWhole(page) || isAsGood(there, origin)) return;
      this.#indices.push(i);
      this.copies.add(page.views, null);
    });
  }

  get isEmpty(): boolean {
    return this.#indices.length === 0;
  }

  /** The checksums of {@link copies} by index in the batch; undefined for pages without one. */
  sums(checksums: Uint32Array): readonly (number | undefined)[] {
    const sums: (number | undefined)[] = [];
    this.#indices.forEach((index, j) => {
      sums[index] = checksums[j];
    });
    return sums;
  }
}
