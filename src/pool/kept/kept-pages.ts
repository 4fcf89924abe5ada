import { CALL_LONGEST_KEYS_COUNT } from '../../base/limits.js';
import type { PublishedPage, RestoredPage } from '../slots/placement.js';
import type { FoundRecord, PageRecords } from './page-records.js';

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

/** The part of a pool's index that keeps pages across restarts needs; see `PageIndex`. */
export interface KeptIndex {
  readonly isFreed: boolean;
  readonly tenants: { evictOverMax(): string[] };
  restore(pages: readonly RestoredPage[], state: 'earlier'): boolean[];
  peekStored(keys: readonly string[]): (PublishedPage | null)[];
  renewBatch(keys: readonly string[]): void;
  order(): Uint32Array;
  pages(): Iterable<readonly [key: string, page: PublishedPage]>;
}

/** The stamps of the pool's pages; see `PageStamps`. */
export interface KeptStamps {
  restore(
    slot: number,
    place: { readonly offset: number; readonly length: number },
    about: { readonly stamp: number; readonly tail: number },
  ): void;
  stampOf(slot: number): number;
  tailOf(slot: number, length: number): number;
}

export interface KeptPagesParts {
  readonly records: PageRecords;
  readonly index: KeptIndex;
  readonly stamps: KeptStamps;
  readonly capacityBytes: number;
  /** Whether copies of other nodes' pages have records, as on storage nodes. Default: false. */
  readonly keepsCopies?: boolean | undefined;
}

/**
 * The pages of a pool whose memory outlives the process, and their records. Copies of other nodes' pages have records
 * only on storage nodes.
 */
export class KeptPages {
  readonly #parts: KeptPagesParts;

  constructor(parts: KeptPagesParts) {
    this.#parts = parts;
  }

  /** Restores pages found in the pool's memory at their places, in state `earlier`. The pool must be new. */
  restore(found: readonly FoundRecord[]): RestoredPages {
    const { records, index, stamps, capacityBytes } = this.#parts;
    const ascending = found.filter(({ offset, length }) => length > 0 && offset + length <= capacityBytes);
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
    return this.#parts.records.unrecordedCount;
  }

  /** Called when the page is complete and has its stamp. */
  filled(key: string, page: PublishedPage): void {
    const { records, stamps, keepsCopies = false } = this.#parts;
    if (page.setBy !== 0 && !keepsCopies) return;
    const { slot, length } = page;
    records.put(slot, key, page, { stamp: stamps.stampOf(slot), tail: stamps.tailOf(slot, length) });
  }

  /** Called when the page of this slot leaves; its stamp is already destroyed. */
  freed(slot: number): void {
    this.#parts.records.drop(slot);
  }

  /** Records the pages' order of use. */
  close(): void {
    const { records, index } = this.#parts;
    if (!index.isFreed) records.writeOrder(index.order());
  }

  verify(): void {
    const { records, index } = this.#parts;
    records.verify(index.pages());
  }
}
