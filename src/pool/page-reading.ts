import { PageCopies } from '../memory/page-copies.js';
import { isWhole, type PageBytes } from './page-batch.js';
import type { PublishedPage } from './page-index.js';

/** Result of copying a page out of the pool. */
export type LocalRead =
  | 'read'
  | 'absent'
  /** The page has a different length. */
  | 'wrong-length'
  /** The page did not match its checksum, and is no longer in the pool. */
  | 'damaged';

/** A batch of pages that are being copied out of the pool. */
export class Reading {
  readonly copies: PageCopies;
  readonly outcomes: LocalRead[] = [];
  /** Indices of the pages in `copies`. */
  readonly hits: number[] = [];
  readonly #found: readonly (PublishedPage | null)[];
  readonly #isVerified: boolean;

  constructor(found: readonly (PublishedPage | null)[], isVerified: boolean) {
    this.#found = found;
    this.#isVerified = isVerified;
    this.copies = new PageCopies({ isSummed: isVerified });
  }

  /** Adds the next page of the batch, to be copied to `target`; `viewsOf` returns the bytes of a page. */
  add(target: PageBytes, viewsOf: (page: PublishedPage) => readonly Uint8Array[]): void {
    const index = this.outcomes.length;
    const page = this.#found[index] ?? null;
    if (page === null) {
      this.outcomes.push('absent');
    } else if (page.length === target.length && isWhole(target)) {
      this.hits.push(index);
      this.copies.add(viewsOf(page), target.views);
      this.outcomes.push('read');
    } else {
      this.outcomes.push('wrong-length');
    }
  }

  /** Adds pages one after the other, see {@link add}. */
  addAll(targets: readonly PageBytes[], viewsOf: (page: PublishedPage) => readonly Uint8Array[]): this {
    for (const target of targets) this.add(target, viewsOf);
    return this;
  }

  /** Takes the checksums of the hits; returns the indices of the damaged ones. */
  finish(sums: Uint32Array): number[] {
    if (!this.#isVerified) return [];
    const damaged = this.hits.filter((i, j) => this.#found[i]?.checksum !== sums[j]);
    for (const i of damaged) this.outcomes[i] = 'damaged';
    return damaged;
  }
}
