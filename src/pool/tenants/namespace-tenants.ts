import { assertEqual } from '../../base/assert.js';
import type { Environment } from '../../base/environment/environment.js';
import { SparseLog } from '../../base/environment/sparse-log.js';
import { ArgumentError } from '../../base/errors.js';
import { KEY_PREFIX_BYTES, NAMESPACE_PREFIXES_MAX_COUNT } from '../../base/limits.js';
import { type NamespaceQuotas, OTHER_NAMESPACES } from '../../base/settings/namespace-quotas.js';
import { Signal } from '../../base/signal.js';
import type { PoolTenant } from '../../core/index.js';

/** Assigns the pages of a tier to tenants, and has the tenants' quotas in bytes. */
export interface TierTenants {
  /** Quotas of tenants 1, 2 and so on. */
  readonly quotas: readonly PoolTenant[];
  /** Number of the tenant of an object key. */
  tenantOf(key: string): number;
}

export interface NamespaceTenantsParts {
  readonly quotas: NamespaceQuotas;
  /** Further tags whose object keys must be recognised. */
  readonly otherTags?: readonly string[];
  /** Most known prefixes of one tag. */
  readonly prefixesMaxCount?: number;
  readonly env: Pick<Environment, 'clock' | 'log' | 'metrics'>;
}

/** A known prefix of object keys and its tag, or `UNKNOWN`. */
interface Known {
  readonly prefix: string;
  readonly tag: string | undefined;
  readonly tenant: number;
  /** The last round in which the prefix was used. */
  round: number;
}

/** The keys of a tier, in slices. */
type Tier = () => Iterable<readonly string[]>;

/** Shortest time between two searches for prefixes without pages; longer than a call may take. */
const ROUND_MS = 60_000;
/** Fraction of a tag's prefix limit above which such a search is worthwhile. */
const FULL_FRACTION = 3 / 4;
/** Most unknown prefixes that were looked up and are remembered. */
const ASKED_MAX_COUNT = 16_384;

/**
 * The tenants of a node: each namespace tag with a quota is one, numbered from 1; all other pages belong to tenant 0.
 * Object keys begin with a digest of their namespace, of which the tag is only a part. A node learns the tag behind a
 * digest whenever somebody uses the namespace there; its disk tier remembers it across restarts. Pages with a digest
 * that is not known yet belong to tenant 0.
 *
 * Nobody can escape the tenant of their tag: NAMESPACE_PREFIXES_MAX_COUNT prefixes of each tag are known, whatever
 * happens with other tags, and using one more fails. Prefixes that nobody has used for a while, and that have no pages
 * in any tier, make room.
 */
export class NamespaceTenants {
  /** Sent with a prefix of object keys that has become known, and its tenant. */
  readonly learned = new Signal<[prefix: string, tenant: number]>();
  readonly #parts: NamespaceTenantsParts;
  readonly #tags: readonly string[];
  readonly #maxCount: number;
  readonly #lines: SparseLog;
  readonly #known = new Map<string, Known>();
  /** Number of known prefixes by tag; its keys are all relevant tags. */
  readonly #counts = new Map<string, number>();
  readonly #refused = new Map<string, number>();
  /** Prefixes that were looked up before they were known. */
  readonly #asked = new Set<string>();
  /** Whether more prefixes were looked up than are remembered. */
  #isMoreAsked = false;
  /** Sent with prefixes that were looked up before they were known: there may be pages with them. */
  readonly #learnedLate = new Signal<[prefix: string, tenant: number]>();
  readonly #tiers: Tier[] = [];
  /** The prefix used last: keys of a call usually share one. */
  #last: Known = UNKNOWN;
  #round = 0;
  #roundMs = Number.NEGATIVE_INFINITY;

  constructor(parts: NamespaceTenantsParts) {
    const { quotas, otherTags = [], prefixesMaxCount = NAMESPACE_PREFIXES_MAX_COUNT, env } = parts;
    this.#parts = parts;
    this.#tags = Object.keys(quotas);
    this.#maxCount = prefixesMaxCount;
    this.#lines = new SparseLog(env);
    for (const tag of [...this.#tags, ...otherTags]) this.#counts.set(tag, 0);
    for (const namespace of this.#tags) {
      env.metrics.setGaugeProvider('meshcache_namespace_prefixes', () => this.prefixesCount(namespace), { namespace });
      env.metrics.count('meshcache_namespace_prefixes_refused_total', 0, { namespace });
    }
  }

  /** Whether there are tenants beside tenant 0. */
  get isEmpty(): boolean {
    return this.#tags.length === 0;
  }

  /** Names of all tenants by number, tenant 0 first. */
  get names(): readonly string[] {
    return [OTHER_NAMESPACES, ...this.#tags];
  }

  /** Number of failed uses of a tag, because too many of its prefixes are known. */
  refusedCount(tag: string): number {
    return this.#refused.get(tag) ?? 0;
  }

  /** Number of prefixes of a tag that are known. */
  prefixesCount(tag: string): number {
    return this.#counts.get(tag) ?? 0;
  }

  /**
   * Must be called before keys with this prefix are used, with the tag of their namespace. Throws `ArgumentError` if no
   * more prefixes of the tag can be remembered.
   */
  use(prefix: string, tag: string | undefined): void {
    if (tag === undefined || (this.#last.prefix === prefix && this.#last.tag === tag)) return;
    const count = this.#counts.get(tag);
    if (count === undefined) return;
    if (this.#known.get(prefix) === undefined) {
      if (count >= this.#maxCount * FULL_FRACTION) this.#makeRoom();
      if (count >= this.#maxCount) this.#refuse(tag);
    }
    this.restore(prefix, tag);
  }

  /** Restores the tag of a prefix that was known in an earlier run, without limit. */
  restore(prefix: string, tag: string): void {
    const count = this.#counts.get(tag);
    if (count === undefined) return;
    const known = this.#known.get(prefix);
    if (known !== undefined) {
      known.round = this.#round;
      this.#last = known;
      return;
    }
    const tenant = this.#tags.indexOf(tag) + 1;
    this.#last = { prefix, tag, tenant, round: this.#round };
    this.#known.set(prefix, this.#last);
    this.#counts.set(tag, count + 1);
    if (tenant === 0) return;
    this.learned.tell(prefix, tenant);
    if (this.#asked.delete(prefix) || this.#isMoreAsked) this.#learnedLate.tell(prefix, tenant);
  }

  tenantOf(key: string): number {
    return this.#of(key).tenant;
  }

  /** The tag of an object key; undefined if unknown or irrelevant. */
  tagOf(key: string): string | undefined {
    return this.#of(key).tag;
  }

  /** The known prefixes of tags with a quota, with their tags. */
  *known(): Generator<readonly [prefix: string, tag: string], void> {
    for (const { prefix, tag, tenant } of this.#known.values()) if (tenant > 0) yield [prefix, tag as string];
  }

  /**
   * Adds a tier, so that prefixes of its keys stay known. `give` is called when pages that the tier may have turn out
   * to belong to a tenant.
   */
  addTier(tier: Tier, give: (prefix: string, tenant: number) => void): void {
    this.#tiers.push(tier);
    this.#learnedLate.listen(give);
  }

  /** The tenants of a tier of this capacity; undefined if there is only tenant 0. */
  of(tier: 'pool' | 'disk', capacityBytes: number): TierTenants | undefined {
    if (this.isEmpty) return undefined;
    const quotas = Object.values(this.#parts.quotas).map(({ min, max, minDisk, maxDisk }): PoolTenant => {
      const [from, to] = tier === 'pool' ? [min, max] : [minDisk, maxDisk];
      return { minBytes: Math.floor(from * capacityBytes), maxBytes: Math.floor(to * capacityBytes) };
    });
    return { quotas, tenantOf: (key) => this.tenantOf(key) };
  }

  #of(key: string): Known {
    const { prefix } = this.#last;
    if (prefix.length === KEY_PREFIX_BYTES && key.startsWith(prefix)) return this.#last;
    const start = key.slice(0, KEY_PREFIX_BYTES);
    const known = this.#known.get(start);
    if (known !== undefined) known.round = this.#round;
    else this.#ask(start);
    this.#last = known ?? { ...UNKNOWN, prefix: start };
    return this.#last;
  }

  #ask(prefix: string): void {
    if (this.#asked.size < ASKED_MAX_COUNT) this.#asked.add(prefix);
    else this.#isMoreAsked = true;
  }

  #refuse(tag: string): never {
    const { metrics } = this.#parts.env;
    this.#refused.set(tag, this.refusedCount(tag) + 1);
    if (this.#tags.includes(tag)) metrics.count('meshcache_namespace_prefixes_refused_total', 1, { namespace: tag });
    const allowed = `pages of ${this.#maxCount} namespaces and pools with the tag ${JSON.stringify(tag)}`;
    this.#lines.log('warn', 'namespace refused: its tag has too many on this node', { tag, max: this.#maxCount }, tag);
    throw new ArgumentError(
      `this node knows ${allowed}, no more are allowed; those without pages make room within some minutes`,
    );
  }

  /** Forgets prefixes that nobody has used since the previous round and that have no pages, if another round is due. */
  #makeRoom(): void {
    const { clock, log } = this.#parts.env;
    if (clock.nowMs() - this.#roundMs < ROUND_MS) return;
    this.#roundMs = clock.nowMs();
    const before = this.#round++;
    // Resets the cache, so that the next use of the last prefix is recorded in the new round.
    this.#last = UNKNOWN;
    this.#forget(before).catch((error: unknown) => {
      log.log('error', 'searching for namespaces without pages failed', { error: String(error) });
    });
  }

  async #forget(before: number): Promise<void> {
    const { clock } = this.#parts.env;
    const withPages = new Set<string>();
    for (const tier of this.#tiers) {
      for (const keys of tier()) {
        for (const key of keys) withPages.add(key.slice(0, KEY_PREFIX_BYTES));
        await clock.yield();
      }
    }
    for (const { prefix, tag, round } of this.#known.values()) {
      if (round >= before || withPages.has(prefix)) continue;
      this.#known.delete(prefix);
      this.#counts.set(tag as string, this.prefixesCount(tag as string) - 1);
    }
  }

  /** Throws `InvariantError` unless the known prefixes of each tag are counted. */
  verify(): void {
    const counts = new Map([...this.#counts.keys()].map((tag) => [tag, 0]));
    for (const { tag } of this.#known.values()) counts.set(tag as string, (counts.get(tag as string) ?? 0) + 1);
    for (const [tag, count] of counts) {
      assertEqual(`namespace tenants: prefixes of ${tag}`, this.prefixesCount(tag), count);
    }
  }
}

/** Stands for an unknown prefix. */
const UNKNOWN: Known = { prefix: '', tag: undefined, tenant: 0, round: 0 };
