import { assert } from '../../base/assert.js';
import { CALL_LONGEST_KEYS_COUNT } from '../../base/limits.js';
import type { PoolTenantStats } from '../../core/index.js';
import type { TenantAllocator } from './tenant-allocator.js';

/** The tenants of a page index: handles pages whose tenant is known late, and the statistics of each tenant. */
export class IndexTenants {
  readonly #allocator: TenantAllocator;
  readonly #nowMs: () => number;
  readonly #onFreed: (slot: number) => void;
  /** Whether a tenant exceeds its maximum because pages given to it are pinned or withheld. */
  #isAboveMax = false;

  /** `onFreed` is called with the slot of each page that {@link evictOverMax} evicts. */
  constructor(allocator: TenantAllocator, nowMs: () => number, onFreed: (slot: number) => void) {
    this.#allocator = allocator;
    this.#nowMs = nowMs;
    this.#onFreed = onFreed;
  }

  /**
   * Moves all pages of tenant 0 whose keys begin with `prefix` to a tenant, as its newest ones, and evicts those that
   * exceed its maximum; returns the evicted keys. Takes time in proportion to all pages if tenant 0 has any. Does
   * nothing once the index is freed.
   */
  give(prefix: string, tenant: number): string[] {
    if (this.#allocator.isFreed || this.#allocator.tenantStats(0).entries === 0) return [];
    const keys = this.#allocator.keys().filter((key) => key.startsWith(prefix));
    for (let first = 0; first < keys.length; first += CALL_LONGEST_KEYS_COUNT) {
      this.#allocator.giveBatch(keys.slice(first, first + CALL_LONGEST_KEYS_COUNT), tenant);
    }
    return this.evictOverMax();
  }

  /** Evicts pages of tenants above their maximum, as far as they may be evicted; returns the keys. */
  evictOverMax(): string[] {
    const evicted: string[] = [];
    for (;;) {
      const page = this.#allocator.evictOverMax(this.#nowMs());
      if (page === null) break;
      this.#onFreed(page.slot);
      evicted.push(page.key);
    }
    this.#isAboveMax = this.stats().some(({ usedBytes, maxBytes }) => usedBytes > maxBytes);
    return evicted;
  }

  /** Statistics of each tenant by number; none if all pages are of one, or once the index is freed. */
  stats(): PoolTenantStats[] {
    return this.#allocator.isFreed ? [] : this.#allocator.allTenantStats();
  }

  /** Length in bytes of the longest page that was to be published for a tenant, within its maximum. */
  longestBytesOf(tenant: number): number {
    return this.#allocator.longestBytesOf(tenant);
  }

  /** Throws `InvariantError` if a tenant has published more than its maximum. */
  verify(): void {
    for (const [tenant, { usedBytes, maxBytes }] of this.stats().entries()) {
      assert(
        this.#isAboveMax || usedBytes <= maxBytes,
        () => `tenant ${tenant}: ${usedBytes} bytes, at most ${maxBytes}`,
      );
    }
  }
}
