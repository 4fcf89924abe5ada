import type { KeyBatch, Keys, PublishRequest } from '../../core/index.js';
import type { PageContent, PageState } from './local-pages.js';
import type { PageOrigin } from './page-origin.js';

/** A page that is here: its content, and its place in the pool. */
export interface PublishedPage extends PageContent {
  /** Offset from the start of the pool, in bytes. */
  readonly offset: number;
  readonly state: PageState;
  /** Slot number of the page, its own while it is in the pool or held. */
  readonly slot: number;
  /** Whether the same page already existed, so that nothing was copied. */
  readonly alreadyPresent: boolean;
}

/** A page to restore at its place from before a restart. */
export interface RestoredPage extends Partial<PageOrigin> {
  readonly key: string;
  readonly offset: number;
  readonly length: number;
  readonly checksum: number;
}

/** What a batch wants for one key. */
export interface Wish {
  readonly key: string;
  /** Length of the new page in bytes. */
  readonly length: number;
  /** The existing page. */
  readonly here: PublishedPage | null;
  /** Whether to use the existing page, to put a new one in its place, or to do nothing. */
  readonly intent: 'use' | 'new' | 'nothing';
  /** The request that the page belongs to, with its priority: the same object for all pages of one part of it. */
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
  /** New pages that have found room and were not evicted again for a later page of the batch. */
  readonly vacancies: readonly Vacancy[];
  /**
   * Indices of wishes whose page, used or new, was evicted for a later one of the batch, because the policy prefers
   * pages that were here before. Empty if no other page can be evicted: the batch is then too large.
   */
  readonly evictedAtOnce: readonly number[];
  /** Keys of pages that have left: evicted, or replaced by a page that found no room. */
  readonly gone: Set<string>;
}

/** A run of wishes with one intent and one request (`end` excluded), and the request for the allocator. */
export interface Run {
  readonly start: number;
  readonly end: number;
  readonly part: PublishRequest;
  readonly keys: Keys;
}

/** The keys of a run; `batch`: the keys of all wishes, encoded. */
export function keysOfRun(wishes: readonly Wish[], batch: KeyBatch | undefined, start: number, end: number): Keys {
  if (batch === undefined) return wishes.slice(start, end).map(({ key }) => key);
  return batch.pick(Array.from({ length: end - start }, (_, i) => start + i));
}
