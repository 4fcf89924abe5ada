import { PageCopies } from '../memory/page-copies.js';
import { isWhole, type PageBytes } from './page-batch.js';
import type { PublishedPage } from './page-index.js';

/** What became of a page that was to be copied out of the pool. */
export type LocalRead =
  | 'read'
  | 'absent'
  /** Its length is another one. */
  | 'wrong-length'
  /** It did not have its checksum: it is no longer in the pool. */
  | 'damaged';

/** A batch of pages on their way out of the pool. */
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

  /** The next page of the batch is to be copied to `target`; `viewsOf` tells where a page's bytes are. */
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

  /** Takes the checksums of the hits; returns the indices of the damaged ones. */
  finish(sums: Uint32Array): number[] {
    if (!this.#isVerified) return [];
    const damaged = this.hits.filter((i, j) => this.#found[i]?.checksum !== sums[j]);
    for (const i of damaged) this.outcomes[i] = 'damaged';
    return damaged;
  }
}
