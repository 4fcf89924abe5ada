import { assert, assertAtMost } from '../base/assert.js';
import type { PageIndex, PublishedPage } from './page-index.js';

/**
 * A lease keeps one page of a pool from eviction. It does not block the key: if the page is removed, or other bytes are
 * published under its key, the lease ends early.
 */
export interface PageLease {
  readonly key: string;
  readonly page: PublishedPage;
  /** False once the lease has ended: the page's range may be reused. */
  readonly isLive: boolean;
}

/** The part of the index that leases need. */
type LeasedIndex = Pick<PageIndex, 'hold' | 'release' | 'holdsOf' | 'peekStored'>;

class Lease implements PageLease {
  readonly key: string;
  readonly page: PublishedPage;
  /** Called when the lease ends early. */
  readonly onEndedEarly: ((lease: PageLease) => void) | undefined;
  isLive = true;

  constructor(key: string, page: PublishedPage, onEndedEarly: ((lease: PageLease) => void) | undefined) {
    this.key = key;
    this.page = page;
    this.onEndedEarly = onEndedEarly;
  }
}

/** The leases of one pool. Accounting: each live lease is one hold of its key in the index. */
export class PageLeases {
  readonly #index: LeasedIndex;
  readonly #byKey = new Map<string, Set<Lease>>();

  constructor(index: LeasedIndex) {
    this.#index = index;
  }

  /**
   * Takes a lease; `page` must be the page currently found under the key. `onEndedEarly` is called if the page leaves
   * its place before {@link end}.
   */
  take(key: string, page: PublishedPage, onEndedEarly?: (lease: PageLease) => void): PageLease {
    assert(page.slot >= 0, () => `page leases: of ${JSON.stringify(key)}, which has no place`);
    const lease = new Lease(key, page, onEndedEarly);
    const others = this.#byKey.get(key);
    if (others === undefined) this.#byKey.set(key, new Set([lease]));
    else others.add(lease);
    this.#index.hold([key]);
    return lease;
  }

  /** Ends a lease; harmless if it has already ended. */
  end(lease: PageLease): void {
    if (!(lease instanceof Lease) || !lease.isLive) return;
    const { key } = lease;
    lease.isLive = false;
    const leases = this.#byKey.get(key);
    leases?.delete(lease);
    if (leases?.size === 0) this.#byKey.delete(key);
    this.#index.release([key]);
  }

  /** Ends the leases of a page that is leaving its place. */
  endOf(key: string): void {
    const leases = this.#byKey.get(key);
    if (leases === undefined) return;
    for (const lease of [...leases]) {
      this.end(lease);
      lease.onEndedEarly?.(lease);
    }
  }

  endAll(): void {
    for (const key of [...this.#byKey.keys()]) this.endOf(key);
  }

  /**
   * Throws `InvariantError` unless each lease is live, has a hold of its key, and is for the page that is here under
   * that key.
   */
  verify(): void {
    const keys = [...this.#byKey.keys()];
    const pages = this.#index.peekStored(keys);
    for (const [i, key] of keys.entries()) {
      const leases = this.#byKey.get(key) as ReadonlySet<Lease>;
      const [holds, { slot, offset } = { slot: -1, offset: -1 }] = [this.#index.holdsOf(key), pages[i] ?? undefined];
      assert(leases.size > 0, () => `page leases: none of ${JSON.stringify(key)}, which is kept`);
      assertAtMost(`page leases: of ${JSON.stringify(key)}, and its holds`, leases.size, holds);
      for (const lease of leases) {
        assert(
          lease.isLive && lease.key === key,
          () => `page leases: an ended lease of ${JSON.stringify(key)} is kept`,
        );
        const isHere = lease.page.slot === slot && lease.page.offset === offset;
        assert(isHere, () => `page leases: the page of ${JSON.stringify(key)} at ${lease.page.offset} is at ${offset}`);
      }
    }
  }
}
