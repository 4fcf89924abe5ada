import type { PoolTenantStats } from '../../core/index.js';
import type { NamespaceTenants } from './namespace-tenants.js';

/**
 * The length in bytes of the longest page that a pool accepts under each key: the pool's capacity, or less because of a
 * namespace tag's quota.
 */
export class PageLimits {
  readonly #capacity: number;
  readonly #tenants: Pick<NamespaceTenants, 'names' | 'tenantOf'> | undefined;
  /** Maximum by tenant; empty without quotas. */
  readonly #maxBytes: readonly number[];

  /** Without `tenants`, there are no quotas. */
  constructor(
    pool: { readonly capacity: number; tenantStats(): readonly PoolTenantStats[] },
    tenants?: Pick<NamespaceTenants, 'names' | 'tenantOf'>,
  ) {
    this.#capacity = pool.capacity;
    this.#tenants = tenants;
    this.#maxBytes = tenants === undefined ? [] : pool.tenantStats().map(({ maxBytes }) => maxBytes);
  }

  /** Whether the pool never accepts a page of this length under the key. */
  isTooLarge(key: string, length: number): boolean {
    return length > this.#capacity || this.quotaBelow(key, length) !== undefined;
  }

  /** The quota that is the only reason to refuse a page of this length: its namespace tag, and its maximum in bytes. */
  quotaBelow(key: string, length: number): { readonly namespace: string; readonly maxBytes: number } | undefined {
    if (this.#tenants === undefined || length > this.#capacity) return undefined;
    const tenant = this.#tenants.tenantOf(key);
    const maxBytes = this.#maxBytes[tenant];
    if (maxBytes === undefined || length <= maxBytes) return undefined;
    return { namespace: this.#tenants.names[tenant] as string, maxBytes };
  }
}
