import { assertAtMost } from '../../base/assert.js';
import type { TierTenants } from '../../pool/tenants/namespace-tenants.js';
import { spaceOf } from './pinned-gaps.js';

/** Part of the pin limit of all clients that one client may use. */
const CLIENT_FRACTION = 1 / 2;

export interface PinLimitsParts {
  /** Size of the pool in bytes. */
  readonly capacity: number;
  /**
   * Part of the pool that pinned pages may take; also the part of a tenant's maximum for pinned pages of that tenant.
   */
  readonly maxShare: number;
  /** Tenants of the pool. Default: one tenant without limits. */
  readonly tenants?: TierTenants | undefined;
  /** Length of the longest page that was ever to be published for a tenant. */
  readonly longestBytesOf: (tenant: number) => number;
}

/** Totals of pinned pages, in bytes. */
export interface PinnedBytes {
  /** Total length of all pinned pages, each counted once. */
  readonly all: number;
  /** Space that the pinned pages of each tenant take in the pool, by tenant number. */
  readonly byTenant: readonly number[];
  /** Total length of the pages pinned by the client in question. */
  readonly client: number;
}

/**
 * Limits for pins. All clients together: a share of the pool. One client: CLIENT_FRACTION of that, or one page. Pages
 * of one tenant: the same share of the tenant's maximum, but so that its longest page still fits within the maximum.
 * All tenants together: each tenant must be left the rest of its minimum.
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

  /** Number of the tenant that a page belongs to. */
  tenantOf(key: string): number {
    return this.#parts.tenants?.tenantOf(key) ?? 0;
  }

  /** What a client may still pin. */
  budget(pinned: PinnedBytes): PinBudget {
    return new PinBudget(this, pinned);
  }

  /** Whether a client that has pinned `bytes` may pin one more page of `length`. */
  allowsClient(bytes: number, length: number): boolean {
    return bytes === 0 || bytes + length <= this.#clientMaxBytes;
  }

  /** Whether one more page of `length` of the tenant, not pinned by anybody yet, may be pinned. */
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

  /** Bytes pinned by, or reserved for, all tenants except one. */
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
 * What a client may still pin, tracked while one call pins pages or brings them into the pool for pinning. It reserves
 * nothing.
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

  /** Whether the client may pin at least one byte for the tenant of `key`. */
  allows(key: string): boolean {
    return this.#fits(this.#limits.tenantOf(key), 1, true);
  }

  /**
   * Counts a page that the client has not pinned yet; false if a limit forbids it. `isNew`: no other client has pinned
   * it either.
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
