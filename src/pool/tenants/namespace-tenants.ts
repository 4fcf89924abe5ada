import { KEY_PREFIX_BYTES, NAMESPACE_PREFIXES_MAX_COUNT } from '../../base/limits.js';
import { type NamespaceQuotas, OTHER_NAMESPACES } from '../../base/settings/namespace-quotas.js';
import { Signal } from '../../base/signal.js';
import type { PoolTenant } from '../../core/index.js';

/** Which tenant each page of a tier is of, and the tenants' quotas in bytes. */
export interface TierTenants {
  /** Quotas of tenants 1, 2 and so on. */
  readonly quotas: readonly PoolTenant[];
  /** Number of the tenant of an object key. */
  tenantOf(key: string): number;
}

/**
 * The tenants of a node: each namespace tag with a quota is one, from 1 on; all other pages are of tenant 0. Object keys begin with a digest
 * of their namespace, of which a tag is only a part. So a node learns which tag is behind a digest when somebody uses the namespace there;
 * its disk tier remembers it over restarts. Pages whose digest is not known yet are of tenant 0.
 */
export class NamespaceTenants {
  /** Tells of a prefix of object keys that has become known, and its tenant. */
  readonly learned = new Signal<[prefix: string, tenant: number]>();
  readonly #quotas: NamespaceQuotas;
  readonly #tags: readonly string[];
  readonly #tenants = new Map<string, number>();
  /** The prefix that was asked for last, and its tenant: keys of a call mostly have the same. */
  #last: readonly [prefix: string, tenant: number] = ['', 0];

  constructor(quotas: NamespaceQuotas) {
    this.#quotas = quotas;
    this.#tags = Object.keys(quotas);
  }

  /** Whether there are tenants beside tenant 0. */
  get isEmpty(): boolean {
    return this.#tags.length === 0;
  }

  /** Names of all tenants by number, tenant 0 first. */
  get names(): readonly string[] {
    return [OTHER_NAMESPACES, ...this.#tags];
  }

  /** Notes the tag of the namespace whose object keys begin with `prefix`. */
  learn(prefix: string, tag: string | undefined): void {
    const tenant = tag === undefined ? 0 : this.#tags.indexOf(tag) + 1;
    if (tenant === 0 || this.#tenants.has(prefix) || this.#tenants.size >= NAMESPACE_PREFIXES_MAX_COUNT) return;
    this.#tenants.set(prefix, tenant);
    this.#last = [prefix, tenant];
    this.learned.tell(prefix, tenant);
  }

  tenantOf(key: string): number {
    const [prefix, tenant] = this.#last;
    if (prefix.length === KEY_PREFIX_BYTES && key.startsWith(prefix)) return tenant;
    const start = key.slice(0, KEY_PREFIX_BYTES);
    this.#last = [start, this.#tenants.get(start) ?? 0];
    return this.#last[1];
  }

  /** The known prefixes, with their tags. */
  *known(): Generator<readonly [prefix: string, tag: string], void> {
    for (const [prefix, tenant] of this.#tenants) yield [prefix, this.#tags[tenant - 1] as string];
  }

  /** The tenants of a tier of that capacity; undefined: there is only tenant 0. */
  of(tier: 'pool' | 'disk', capacityBytes: number): TierTenants | undefined {
    if (this.isEmpty) return undefined;
    const quotas = Object.values(this.#quotas).map(({ min, max, minDisk, maxDisk }): PoolTenant => {
      const [from, to] = tier === 'pool' ? [min, max] : [minDisk, maxDisk];
      return { minBytes: Math.floor(from * capacityBytes), maxBytes: Math.floor(to * capacityBytes) };
    });
    return { quotas, tenantOf: (key) => this.tenantOf(key) };
  }
}
