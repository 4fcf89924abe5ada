import { type Keys, stringsOf } from '../../core/binding/key-batch.js';
import {
  type BatchLookup,
  type BatchPlacement,
  PoolAllocator,
  type PoolAllocatorOptions,
  type PoolPublishOptions,
  type PoolRequestOptions,
  type PoolTenantStats,
  type PublishRequest,
} from '../../core/index.js';
import type { TierTenants } from './namespace-tenants.js';

/** A page to publish, and its request. */
interface WantedPage {
  readonly key: string;
  readonly request?: PublishRequest | undefined;
}

/** A pool allocator that finds a page's tenant by its key. Without tenants it is a plain allocator. */
export class TenantAllocator extends PoolAllocator {
  readonly #tenants: TierTenants | undefined;
  /** Longest published length by tenant. */
  readonly #longestBytes: number[] = [];

  constructor(options: PoolAllocatorOptions, tenants: TierTenants | undefined) {
    super(tenants === undefined ? options : { ...options, tenants: tenants.quotas });
    this.#tenants = tenants;
  }

  /** Whether both pages may be published in one call: they have the same request and tenant. */
  isOneCall(page: WantedPage | undefined, other: WantedPage | undefined): boolean {
    if (page === undefined || other === undefined || page.request !== other.request) return false;
    return this.#tenants === undefined || this.#tenants.tenantOf(page.key) === this.#tenants.tenantOf(other.key);
  }

  /** All keys must be of the same tenant. */
  override publishBatch(
    keys: Keys,
    bytes: number | ArrayLike<number>,
    nowMs?: number,
    request?: PoolPublishOptions,
  ): BatchPlacement {
    const ofTenant = this.#ofTenant(keys, request);
    if (ofTenant?.tenant !== undefined) this.#noteLengths(ofTenant.tenant, bytes);
    return super.publishBatch(keys, bytes, nowMs, ofTenant);
  }

  override lookupBatch(keys: Keys, request?: PoolRequestOptions): BatchLookup {
    return super.lookupBatch(keys, this.#ofTenant(keys, request));
  }

  override touchBatch(keys: Keys, request?: PoolRequestOptions): number {
    return super.touchBatch(keys, this.#ofTenant(keys, request));
  }

  override restoreBatch(keys: Keys, bytes: ArrayLike<number>, offsets: ArrayLike<number>): Int32Array {
    const tenants = this.#tenants;
    const numbers = tenants && stringsOf(keys).map((key) => tenants.tenantOf(key));
    return super.restoreBatch(keys, bytes, offsets, numbers);
  }

  /** Evicts the next victim, chosen as for a page of this key; returns its key and former slot. */
  evictNextFor(key: string, nowMs: number): { readonly key: string; readonly slot: number } | null {
    return this.evict(nowMs, this.#tenants?.tenantOf(key) ?? 0);
  }

  /** Statistics of each tenant by number; empty without tenants. */
  allTenantStats(): PoolTenantStats[] {
    if (this.#tenants === undefined) return [];
    return Array.from({ length: this.tenantCount }, (_, tenant) => this.tenantStats(tenant));
  }

  /** Length in bytes of the longest page that was to be published for a tenant, within its maximum; 0: none. */
  longestBytesOf(tenant: number): number {
    return this.#longestBytes[tenant] ?? 0;
  }

  #noteLengths(tenant: number, bytes: number | ArrayLike<number>): void {
    const maxBytes = this.#tenants?.quotas[tenant - 1]?.maxBytes ?? Number.POSITIVE_INFINITY;
    let longest = this.longestBytesOf(tenant);
    const lengths = typeof bytes === 'number' ? [bytes] : bytes;
    for (let i = 0; i < lengths.length; i++) {
      const length = lengths[i] as number;
      if (length > longest && length <= maxBytes) longest = length;
    }
    this.#longestBytes[tenant] = longest;
  }

  /** Adds the tenant to a request: that of its first key. */
  #ofTenant<Request extends PoolRequestOptions>(keys: Keys, request: Request | undefined): Request | undefined {
    const [first] = this.#tenants === undefined ? [] : stringsOf(keys);
    return first === undefined ? request : ({ ...request, tenant: this.#tenants?.tenantOf(first) } as Request);
  }
}
