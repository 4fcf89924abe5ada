import { type Keys, pickKeys, stringsOf } from '../core/binding/key-batch.js';
import { PageCopies } from '../memory/page-copies.js';
import { isWhole, type PageBytes } from './page-batch.js';
import type { PublishedPage } from './page-index.js';
import type { PageServing } from './page-serving.js';
import type { PoolGround } from './pool-ground.js';

/** Result of copying a page out of the pool. */
export type LocalRead =
  | 'read'
  | 'absent'
  /** The page has a different length. */
  | 'wrong-length'
  /** The page did not match its checksum and has been removed from the pool. */
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
  add(target: PageBytes, ground: PoolGround): void {
    const index = this.outcomes.length;
    const page = this.#found[index] ?? null;
    if (page === null) {
      this.outcomes.push('absent');
    } else if (page.length === target.length && isWhole(target)) {
      this.hits.push(index);
      this.copies.add(ground.viewsOf(page), target.views);
      this.outcomes.push('read');
    } else {
      this.outcomes.push('wrong-length');
    }
  }

  /** Adds pages one after the other, see {@link add}. */
  addAll(targets: readonly PageBytes[], ground: PoolGround): this {
    for (const target of targets) this.add(target, ground);
    return this;
  }

  /** Checks the checksums of the hits; returns the indices of damaged pages. */
  finish(sums: Uint32Array): number[] {
    if (!this.#isVerified) return [];
    const damaged = this.hits.filter((i, j) => this.#found[i]?.checksum !== sums[j]);
    for (const i of damaged) this.outcomes[i] = 'damaged';
    return damaged;
  }
}

/** Copies pages out of one pool; one outcome for each key. */
export class LocalReads {
  readonly #ground: PoolGround;
  readonly #serving: PageServing;

  constructor(ground: PoolGround, serving: PageServing) {
    this.#ground = ground;
    this.#serving = serving;
  }

  /** Copies pages that have just been looked up, on this thread. */
  here(
    keys: Keys,
    targets: readonly PageBytes[],
    { found, isVerified }: { readonly found: readonly (PublishedPage | null)[]; readonly isVerified: boolean },
  ): LocalRead[] {
    const reading = new Reading(found, isVerified).addAll(targets, this.#ground);
    for (const i of reading.finish(reading.copies.run())) this.#ground.remove(stringsOf(keys)[i] as string);
    return reading.outcomes;
  }

  /**
   * Copies pages that have just been looked up on other threads, alongside other work of the pool; undefined if that is
   * not possible, see {@link PageServing.holdCopied}.
   */
  beside(
    keys: Keys,
    targets: readonly PageBytes[],
    { found, isVerified }: { readonly found: readonly (PublishedPage | null)[]; readonly isVerified: boolean },
  ): Promise<LocalRead[]> | undefined {
    const strings = stringsOf(keys);
    const hits = indicesOfHits(found, targets);
    const release = this.#serving.holdCopied(
      hits.map((i) => strings[i] as string),
      hits.map((i) => (found[i] as PublishedPage).length),
    );
    return release === null ? undefined : this.#copyHeld(strings, targets, { found, isVerified, release });
  }

  /** Copies pages on other threads, in a turn in which nothing is set; the pages are held meanwhile. */
  inTurn(keys: Keys, targets: readonly PageBytes[], isVerified: boolean): Promise<LocalRead[]> {
    const { index } = this.#ground;
    // The lookup is repeated, without counting a use, because the pages may have changed during others' turns.
    const found = index.peekLive(keys);
    const held = pickKeys(keys, indicesOfHits(found, targets));
    index.hold(held);
    const release = (): void => {
      if (!index.isFreed) index.release(held);
    };
    return this.#copyHeld(stringsOf(keys), targets, { found, isVerified, release });
  }

  async #copyHeld(
    keys: readonly string[],
    targets: readonly PageBytes[],
    held: {
      readonly found: readonly (PublishedPage | null)[];
      readonly isVerified: boolean;
      readonly release: () => void;
    },
  ): Promise<LocalRead[]> {
    const { index, copyThreads } = this.#ground;
    try {
      const reading = new Reading(held.found, held.isVerified).addAll(targets, this.#ground);
      const sums = await copyThreads.copy(reading.copies);
      if (index.isFreed) return targets.map(() => 'absent');
      for (const i of reading.finish(sums)) this.#ground.remove(keys[i] as string);
      return reading.outcomes;
    } finally {
      held.release();
    }
  }
}

function indicesOfHits(found: readonly (PublishedPage | null)[], targets: readonly PageBytes[]): number[] {
  const hits: number[] = [];
  for (const [i, { length }] of targets.entries()) if (found[i]?.length === length) hits.push(i);
  return hits;
}
