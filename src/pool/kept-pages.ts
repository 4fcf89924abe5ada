import { CALL_LONGEST_KEYS_COUNT } from '../base/limits.js';
import type { FoundRecord, PageRecords } from './kept/page-records.js';
import type { PageIndex } from './page-index.js';
import type { PageStamps } from './page-stamps.js';
import type { PublishedPage } from './slots/placement.js';

/** The outcome of {@link KeptPages.restore}. */
export interface RestoredPages {
  readonly keys: readonly string[];
  /** Total bytes of the restored pages. */
  readonly bytes: number;
  /** Pages that do not fit into the current pool, because it is smaller or has other bounds. */
  readonly unfitCount: number;
  /** Keys of pages that exceed the current quotas. */
  readonly overQuota: readonly string[];
}

/**
 * The pages of a pool whose memory outlives the process, and their records. Copies of other nodes' pages have records
 * only on storage nodes.
 */
export class KeptPages {
  readonly #records: PageRecords;
  readonly #index: PageIndex;
  readonly #stamps: PageStamps;
  readonly #capacity: number;
  readonly #keepsCopies: boolean;

  /**
   * `capacity`: bytes of the pool. `keepsCopies`: whether copies of other nodes' pages have records, like the pages that
   * were placed here. Default: they have none.
   */
  constructor(
    records: PageRecords,
    index: PageIndex,
    stamps: PageStamps,
    { capacity, keepsCopies = false }: { readonly capacity: number; readonly keepsCopies?: boolean | undefined },
  ) {
    this.#records = records;
    this.#index = index;
    this.#stamps = stamps;
    this.#capacity = capacity;
    this.#keepsCopies = keepsCopies;
  }

  /** Restores pages found in the pool's memory at their places, in state `earlier`. The pool must be new. */
  restore(found: readonly FoundRecord[]): RestoredPages {
    const [records, index, stamps] = [this.#records, this.#index, this.#stamps];
    const ascending = found.filter(({ offset, length }) => length > 0 && offset + length <= this.#capacity);
    ascending.sort((a, b) => a.offset - b.offset);
    const distinct = ascending.filter(({ offset }, i) => offset !== ascending[i - 1]?.offset);
    const taken = index.restore(distinct, 'earlier');
    const restored = distinct.filter((_, i) => taken[i]);
    let bytes = 0;
    for (let first = 0; first < restored.length; first += CALL_LONGEST_KEYS_COUNT) {
      const some = restored.slice(first, first + CALL_LONGEST_KEYS_COUNT);
      for (const [i, page] of index.peekStored(some.map(({ key }) => key)).entries()) {
        const record = some[i] as FoundRecord;
        if (page === null) continue;
        stamps.restore(page.slot, record, record);
        records.adopt(page.slot, record);
        bytes += page.length;
      }
    }
    restored.sort((a, b) => a.order - b.order);
    const keys = restored.map(({ key }) => key);
    for (let first = 0; first < keys.length; first += CALL_LONGEST_KEYS_COUNT) {
      index.renewBatch(keys.slice(first, first + CALL_LONGEST_KEYS_COUNT));
    }
    const overQuota = index.tenants.evictOverMax();
    records.settle(index.order());
    return { keys, bytes, unfitCount: found.length - restored.length, overQuota };
  }

  /** Published pages without a record, because the index was full or their key is too long. */
  get unrecordedCount(): number {
    return this.#records.unrecordedCount;
  }

  /** Called when the page is complete and has its stamp. */
  filled(key: string, page: PublishedPage): void {
    if (page.setBy !== 0 && !this.#keepsCopies) return;
    const { slot, length } = page;
    const [stamp, tail] = [this.#stamps.stampOf(slot), this.#stamps.tailOf(slot, length)];
    this.#records.put(slot, key, page, { stamp, tail });
  }

  /** Called when the page of this slot leaves; its stamp is already destroyed. */
  freed(slot: number): void {
    this.#records.drop(slot);
  }

  /** Records the pages' order of use. */
  close(): void {
    if (!this.#index.isFreed) this.#records.writeOrder(this.#index.order());
  }

  verify(): void {
    this.#records.verify(this.#index.pages());
  }
}
