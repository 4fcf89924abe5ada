import type { PageIndex, PublishedPage } from './page-index.js';

/**
 * Keeps one page of a pool where it is: it is not evicted. It does not stand in the way of whoever owns the key: when the
 * page is removed, or other bytes are published under its key, the lease ends early.
 */
export interface PageLease {
  readonly key: string;
  readonly page: PublishedPage;
  /** False once it has ended: the page's range may be reused. */
  readonly isLive: boolean;
}

class Lease implements PageLease {
  readonly key: string;
  readonly page: PublishedPage;
  isLive = true;

  constructor(key: string, page: PublishedPage) {
    this.key = key;
    this.page = page;
  }
}

/** The leases of one pool. Accounting: each live one is one hold of its key in the index. */
export class PageLeases {
  readonly #index: Pick<PageIndex, 'hold' | 'release'>;
  readonly #byKey = new Map<string, Set<Lease>>();

  constructor(index: Pick<PageIndex, 'hold' | 'release'>) {
    this.#index = index;
  }

  /** `page` is the one that is found under the key now. */
  take(key: string, page: PublishedPage): PageLease {
    const lease = new Lease(key, page);
    const others = this.#byKey.get(key);
    if (others === undefined) this.#byKey.set(key, new Set([lease]));
    else others.add(lease);
    this.#index.hold([key]);
    return lease;
  }

  /** Harmless when it has ended already. */
  end(lease: PageLease): void {
    if (!(lease instanceof Lease) || !lease.isLive) return;
    const { key } = lease;
    lease.isLive = false;
    const leases = this.#byKey.get(key);
    leases?.delete(lease);
    if (leases?.size === 0) this.#byKey.delete(key);
    this.#index.release([key]);
  }

  endOf(key: string): void {
    const leases = this.#byKey.get(key);
    if (leases !== undefined) for (const lease of [...leases]) this.end(lease);
  }

  endAll(): void {
    for (const key of [...this.#byKey.keys()]) this.endOf(key);
  }
}
