import type { PublishRequest } from '../../core/index.js';
import type { PageContent, PageState } from './local-pages.js';
import type { PageOrigin } from './page-origin.js';

/** What is here of a page, and its place in its pool. */
export interface PublishedPage extends PageContent {
  /** Offset from the start of the pool, in bytes. */
  readonly offset: number;
  readonly state: PageState;
  /** The page's own number while it is in the pool, or held. */
  readonly slot: number;
  /** Whether the same page was here before, so that nothing was copied. */
  readonly alreadyPresent: boolean;
}

/** A page at its place from before a restart. */
export interface RestoredPage extends Partial<PageOrigin> {
  readonly key: string;
  readonly offset: number;
  readonly length: number;
  readonly checksum: number;
}

/** A batch's wish for one key. */
export interface Wish {
  readonly key: string;
  /** Length of the new page in bytes. */
  readonly length: number;
  /** The page that is there now. */
  readonly here: PublishedPage | null;
  /** Whether to use the page that is there, to put a new one in its place, or to do nothing. */
  readonly intent: 'use' | 'new' | 'nothing';
  /** The request that the page belongs to, and its priority: the same object for all pages of one part of it. */
  readonly request?: PublishRequest | undefined;
}

/** Range of a new page that has no bytes yet. */
export interface Vacancy {
  /** Index of the page's key in the batch. */
  readonly index: number;
  readonly key: string;
  readonly offset: number;
  readonly slot: number;
}

export interface Placement {
  /** One element for each wish: the page that was to be used, if it is still there. */
  readonly used: readonly (PublishedPage | null)[];
  /** New pages that have found room and were not evicted again by a later page of the batch. */
  readonly vacancies: readonly Vacancy[];
  /**
   * Indices of wishes whose page, used or new, a later one of the batch has evicted, because the policy prefers pages
   * that were here before. Empty when no other page can be evicted: then the batch is too large.
   */
  readonly evictedAtOnce: readonly number[];
  /** Keys of pages that have gone: evicted, or replaced by a page that has found no room. */
  readonly gone: Set<string>;
}
