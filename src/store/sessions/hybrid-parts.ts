import type { PageFollower } from '../call/page-feed.js';
import type { StoreGround } from '../ground/store-ground.js';

/** The object keys of the other parts of a hybrid page, if the key is that of its part in the main pool. */
export type PartsOf = (key: string) => string[];

/**
 * Has the parts of a hybrid page evicted together. Without its part in the main pool, nobody reads the parts of a page
 * in further pools: a lookup ends before it. Parts in further pools may go alone, as the hit policies of some of them
 * need the last pages only.
 */
export class HybridParts implements PageFollower {
  readonly #ground: StoreGround;
  readonly #partsOf: PartsOf;

  constructor(ground: StoreGround, partsOf: PartsOf) {
    [this.#ground, this.#partsOf] = [ground, partsOf];
  }

  /** Called when the pool or the disk has dropped pages on its own. */
  evicted(keys: readonly string[]): void {
    const { pool, disk } = this.#ground;
    const parts = keys.flatMap((key) => {
      const others = this.#partsOf(key);
      const isGone = others.length > 0 && !pool.has(key) && disk?.hasBatch([key])[0] !== 1;
      return isGone ? others : [];
    });
    if (parts.length === 0) return;
    pool.expectBatch(parts, Number.POSITIVE_INFINITY);
    disk?.expect(parts, Number.POSITIVE_INFINITY);
  }
}
