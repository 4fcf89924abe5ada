import { assertAtMost } from '../../base/assert.js';
import type { TierTenants } from '../../pool/tenants/namespace-tenants.js';
import { spaceOf } from './pinned-gaps.js';

/** Part of what all clients may pin that one of them may. */
const CLIENT_FRACTION = 1 / 2;

export interface PinLimitsParts {
  /** Bytes of the pool. */
  readonly capacity: number;
  /**
   * Part of the pool that pinned pages may take, and part of a tenant's maximum that pinned pages of the tenant may.
   */
  readonly maxShare: number;
  /** Default: all pages are of one tenant without limits. */
  readonly tenants?: TierTenants | undefined;
  /** Length of the longest page that was to be published for a tenant. */
  readonly longestBytesOf: (tenant: number) => number;
}

/** Sums over pages that are pinned, in bytes. */
export interface PinnedBytes {
  /** Length of all pages, each once. */
  readonly all: number;
  /** Space that the pages of each tenant take in the pool, by number of the tenant. */
  readonly byTenant: readonly number[];
  /** Length of the pages that the client in question has pinned. */
  readonly client: number;
}

/**
 * How much may be pinned. All clients together: a share of the pool. One client: CLIENT_FRACTION of that, or one page.
 * The pages of one tenant: the same share of its maximum, and no more than leaves its longest page room in it. All
 * tenants together: no more than leaves each tenant the rest of its minimum.
 */
export class PinLimits {
  readonly #parts: PinLimitsParts;
  readonly #maxBytes: number;

  constructor(parts: PinLimitsParts) {
    this.#parts = parts;
    this.#maxBytes = Math.floor(parts.capacity * parts.maxShare);
  }

  /** Number of tenants. */
  get tenantsCount(): number {
    return 1 + (this.#parts.tenants?.quotas.length ?? 0);
  }

  /** Number of the tenant that a page is of. */
  tenantOf(key: string): number {
    return this.#parts.tenants?.tenantOf(key) ?? 0;
  }

  /** What a client may pin in addition. */
  budget(pinned: PinnedBytes): PinBudget {
    return new PinBudget(this, pinned);
  }

  /** Whether a client that has pinned `bytes` may pin a page of `length` in addition. */
  allowsClient(bytes: number, length: number): boolean {
    return bytes === 0 || bytes + length <= this.#clientMaxBytes;
  }

  /** Whether a page of `length` of the tenant, which nobody has pinned, may be pinned in addition to those. */
  allowsPage({ all, byTenant }: Omit<PinnedBytes, 'client'>, tenant: number, length: number): boolean {
    if (all + length > this.#maxBytes) return false;
    if (this.#parts.tenants === undefined) return true;
    const ofTenant = (byTenant[tenant] as number) + spaceOf(length);
    const { minBytes = 0, maxBytes } = this.#quotaOf(tenant);
    if (ofTenant > this.#tenantMaxBytes(tenant)) return false;
    if (ofTenant + this.#parts.longestBytesOf(tenant) > maxBytes) return false;
    return ofTenant <= minBytes || this.#reservedBytes(byTenant, tenant) + ofTenant <= this.#parts.capacity;
  }

  get #clientMaxBytes(): number {
    return Math.floor(this.#maxBytes * CLIENT_FRACTION);
  }

  #tenantMaxBytes(tenant: number): number {
    return Math.floor(this.#quotaOf(tenant).maxBytes * this.#parts.maxShare);
  }

  #quotaOf(tenant: number): { readonly minBytes?: number | undefined; readonly maxBytes: number } {
    const { tenants, capacity } = this.#parts;
    const { minBytes, maxBytes = capacity } = tenants?.quotas[tenant - 1] ?? {};
    return { minBytes, maxBytes };
  }

  /** Bytes that all tenants but one have pinned, or are to be left. */
  #reservedBytes(byTenant: readonly number[], except: number): number {
    let bytes = 0;
    for (const [tenant, pinned] of byTenant.entries()) {
      if (tenant !== except) bytes += Math.max(pinned, this.#quotaOf(tenant).minBytes ?? 0);
    }
    return bytes;
  }

  /** Throws `InvariantError` if the pinned pages are above a limit. */
  verify({ all, byTenant }: Omit<PinnedBytes, 'client'>): void {
    assertAtMost('page pins: bytes', all, this.#maxBytes);
    if (this.#parts.tenants === undefined) return;
    for (const [tenant, bytes] of byTenant.entries()) {
      assertAtMost(`page pins: space of tenant ${tenant}`, bytes, this.#tenantMaxBytes(tenant));
    }
    assertAtMost('page pins: space and minima', this.#reservedBytes(byTenant, -1), this.#parts.capacity);
  }

  /** Throws `InvariantError` if a client has pinned more than it may. */
  verifyClient(bytes: number, pagesCount: number): void {
    if (pagesCount > 1) assertAtMost('page pins: bytes of a client', bytes, this.#clientMaxBytes);
  }
}

/**
 * What a client may still pin, as one call pins pages or brings them into the pool to pin them. It reserves nothing.
 */
export class PinBudget {
  readonly #limits: PinLimits;
  #all: number;
  readonly #byTenant: number[];
  #client: number;

  constructor(limits: PinLimits, { all, byTenant, client }: PinnedBytes) {
    this.#limits = limits;
    [this.#all, this.#byTenant, this.#client] = [all, [...byTenant], client];
  }

  /** Whether the client may pin at least one byte of the tenant of `key`. */
  allows(key: string): boolean {
    return this.#fits(this.#limits.tenantOf(key), 1, true);
  }

  /**
   * Counts a page that the client has not pinned, unless a limit forbids it; false: it does. `isNew`: nobody else has
   * pinned it either.
   */
  take(key: string, length: number, isNew = true): boolean {
    const tenant = this.#limits.tenantOf(key);
    if (!this.#fits(tenant, length, isNew)) return false;
    this.#client += length;
    if (!isNew) return true;
    this.#all += length;
    this.#byTenant[tenant] = (this.#byTenant[tenant] as number) + spaceOf(length);
    return true;
  }

  #fits(tenant: number, length: number, isNew: boolean): boolean {
    if (!this.#limits.allowsClient(this.#client, length)) return false;
    return !isNew || this.#limits.allowsPage({ all: this.#all, byTenant: this.#byTenant }, tenant, length);
  }
}
