import test from 'ava';
import fc from 'fast-check';
import {
  ArgumentError,
  type EvictionPolicy,
  type PagePriority,
  PoolAllocator,
  type PoolTenant,
} from '../../src/core/index.js';
import { BINARIES, freshCore } from '../_support/core/binaries.js';

const POLICIES: readonly EvictionPolicy[] = ['lru', 's3fifo', 'yield'];
const RUNS = 25;
const CHECK_EVERY = 4;
const WORDS = fc.array(fc.nat({ max: 2 ** 30 - 1 }), { minLength: 1, maxLength: 500, size: 'max' });
const KEYS = 48;
const PRIORITIES: readonly PagePriority[] = ['normal', 'normal', 'low', 'high'];

interface Page {
  tenant: number;
  readonly size: number;
  pins: number;
  isLow: boolean;
}

/** The sums of each tenant, by the rules; of the order of eviction it only knows that low pages come first. */
class Tenants {
  readonly pages = new Map<string, Page>();
  /** Removed pages that are still pinned. */
  readonly held = new Map<string, Page>();

  constructor(
    readonly quotas: readonly Required<PoolTenant>[],
    private readonly unit: number,
  ) {}

  sizeOf(bytes: number): number {
    return Math.ceil(bytes / this.unit) * this.unit;
  }

  used(tenant: number): number {
    const all = [...this.pages.values(), ...this.held.values()].filter((page) => page.tenant === tenant);
    return all.reduce((sum, { size }) => sum + size, 0);
  }

  excess(tenant: number): number {
    return Math.max(0, this.used(tenant) - (this.quotas[tenant] as Required<PoolTenant>).minBytes);
  }

  /** Takes one victim of a publish of `size` for `tenant`; throws if it is another tenant's turn. */
  evict(key: string, tenant: number, size: number): void {
    const page = this.pages.get(key);
    if (page === undefined || page.pins > 0) throw new Error(`${key} was evicted and cannot be`);
    const { maxBytes } = this.quotas[tenant] as Required<PoolTenant>;
    const payer = this.used(tenant) + size > maxBytes ? tenant : this.payerFor(tenant);
    if (page.tenant !== payer) throw new Error(`a page of ${page.tenant} paid for one of ${tenant}, not of ${payer}`);
    this.checkLow(page);
    this.pages.delete(key);
  }

  /** Throws if a page that is evicted goes before a low one of its tenant. */
  checkLow({ tenant, isLow }: Page): void {
    const lows = [...this.pages.values()].filter((page) => page.tenant === tenant && page.isLow && page.pins === 0);
    if (!isLow && lows.length > 0) throw new Error('a page was evicted before a low one');
  }

  payerFor(tenant: number): number | undefined {
    const payers = this.quotas.map((_, i) => i).filter((i) => this.evictable(i));
    const above = payers.filter((i) => this.excess(i) > 0);
    const most = Math.max(...above.map((i) => this.excess(i)));
    const first = above.filter((i) => this.excess(i) === most);
    if (first.includes(tenant)) return tenant;
    return first[0] ?? (payers.includes(tenant) ? tenant : undefined);
  }

  remove(key: string): boolean {
    const page = this.pages.get(key);
    if (page === undefined) return false;
    this.pages.delete(key);
    if (page.pins > 0) this.held.set(key, page);
    return true;
  }

  unpin(key: string): boolean {
    const page = this.pages.get(key) ?? this.held.get(key);
    if (page === undefined || page.pins === 0) return false;
    if (--page.pins === 0) this.held.delete(key);
    return true;
  }

  private evictable(tenant: number): boolean {
    return [...this.pages.values()].some((page) => page.tenant === tenant && page.pins === 0);
  }
}

function same(found: unknown, expected: unknown, what: string): void {
  if (found !== expected) throw new Error(`${what}: ${String(found)}, expected ${String(expected)}`);
}

class Replay {
  private nowMs = 0;
  private step = 0;

  constructor(
    private readonly pool: PoolAllocator,
    private readonly model: Tenants,
    private readonly pageBytes: number,
  ) {}

  run(word: number): void {
    const { pool, model } = this;
    const kind = word & 15;
    const key = `k${(word >>> 4) % KEYS}`;
    const tenant = (word >>> 10) % model.quotas.length;
    this.nowMs += (word >>> 13) & 3;
    const priority = PRIORITIES[(word >>> 28) & 3] as PagePriority;
    if (kind < 7) this.publish(key, 1 + ((word >>> 16) % (2 * this.pageBytes)), { tenant, priority });
    else if (kind === 7) this.setPriority(key, PRIORITIES[(word >>> 16) & 3] as PagePriority);
    else if (kind === 8) this.evictNext(tenant);
    else if (kind === 9) pool.lookupBatch([key, 'k0', 'k1'], { tenant });
    else if (kind === 10) same(pool.remove(key, this.nowMs), model.remove(key), `remove ${key}`);
    else if (kind === 11) this.pin(key);
    else if (kind < 14) same(pool.unpin(key), model.unpin(key), `unpin ${key}`);
    else if (kind === 14) this.give(key, tenant);
    else pool.renewBatch([key]);
    if (this.step++ % CHECK_EVERY === 0) this.check();
  }

  private publish(
    key: string,
    bytes: number,
    { tenant, priority }: { readonly tenant: number; readonly priority: PagePriority },
  ): void {
    const { model, pool } = this;
    const size = model.sizeOf(bytes);
    const isPinned = (model.pages.get(key) ?? model.held.get(key))?.pins ?? 0;
    const { offsets, evicted } = pool.publishBatch([key], bytes, this.nowMs, { tenant, priority });
    const isPlaced = (offsets[0] as number) >= 0;
    if (!model.held.has(key)) model.remove(key);
    for (const victim of evicted) model.evict(victim, tenant, size);
    if (isPinned > 0) same(isPlaced || evicted.length > 0, false, 'publishing a pinned page');
    const { maxBytes } = model.quotas[tenant] as Required<PoolTenant>;
    if (isPlaced) model.pages.set(key, { tenant, size, pins: 0, isLow: priority === 'low' });
    if (isPlaced && model.used(tenant) > maxBytes) throw new Error(`tenant ${tenant} is above its maximum`);
  }

  private evictNext(tenant: number): void {
    const expected = this.model.payerFor(tenant);
    const key = this.pool.evictNext(this.nowMs, tenant);
    same(key === null ? undefined : this.model.pages.get(key)?.tenant, expected, `payer for ${tenant}`);
    if (key === null) return;
    this.model.checkLow(this.model.pages.get(key) as Page);
    this.model.pages.delete(key);
  }

  private setPriority(key: string, priority: PagePriority): void {
    this.pool.setPriorityBatch([key], priority);
    const page = this.model.pages.get(key);
    if (page !== undefined) page.isLow = priority === 'low';
  }

  private pin(key: string): void {
    const page = this.model.pages.get(key);
    same(this.pool.pin(key), page !== undefined, `pin ${key}`);
    if (page !== undefined) page.pins++;
  }

  /** Pages may come to a tenant in excess of its maximum, as those do whose tenant is known late. */
  private give(key: string, tenant: number): void {
    this.pool.giveBatch([key], tenant);
    const page = this.model.pages.get(key);
    if (page !== undefined && page.tenant !== tenant) Object.assign(page, { tenant, isLow: false });
    for (;;) {
      const evicted = this.pool.evictOverMax(this.nowMs)?.key;
      if (evicted === undefined) return;
      const owner = this.model.pages.get(evicted)?.tenant as number;
      const { maxBytes } = this.model.quotas[owner] as Required<PoolTenant>;
      if (this.model.used(owner) <= maxBytes) throw new Error(`${evicted} went, and ${owner} was within its quota`);
      this.model.checkLow(this.model.pages.get(evicted) as Page);
      this.model.pages.delete(evicted);
    }
  }

  private check(): void {
    this.pool.verify();
    for (const [i] of this.model.quotas.entries()) same(this.pool.tenantStats(i).usedBytes, this.model.used(i), `${i}`);
    const keys = this.pool.keys();
    same(keys.toSorted().join(), [...this.model.pages.keys()].toSorted().join(), 'keys');
  }
}

const SHARES = fc.array(fc.tuple(fc.nat({ max: 100 }), fc.nat({ max: 100 })), { minLength: 1, maxLength: 4 });

for (const name of BINARIES) {
  for (const policy of POLICIES) {
    test(`pool: each tenant of a ${policy} pool has what its quota says (${name})`, (t) => {
      const core = freshCore(name);
      let evictions = 0;
      const settings = fc.record({
        shares: SHARES,
        pages: fc.constantFrom(4, 4, 30),
        alignmentBytes: fc.constantFrom(1, 64),
        quarantineMs: fc.constantFrom(0, 0, 8),
      });
      const property = fc.property(settings, WORDS, ({ shares, pages, alignmentBytes, quarantineMs }, words) => {
        const capacityBytes = pages * 256;
        // Shares of less than a page are among them, and minima that are the whole pool together.
        const sum = shares.reduce((total, [min]) => total + min, 0);
        const tenants = shares.map(([min, more]) => {
          const part = Math.floor(((min / Math.max(100, sum)) * capacityBytes) / alignmentBytes) * alignmentBytes;
          const rest = Math.floor(((capacityBytes - part) * more) / 100 / alignmentBytes) * alignmentBytes;
          return { minBytes: part, maxBytes: part + rest };
        });
        const pool = new PoolAllocator({ capacityBytes, alignmentBytes, quarantineMs, policy, tenants, core });
        try {
          // Tenant 0 has no maximum: with pinned pages it may ask for more than the pool, and others pay before it gets
          // nothing.
          const all = [{ minBytes: 0, maxBytes: Number.MAX_SAFE_INTEGER }, ...tenants];
          const replay = new Replay(pool, new Tenants(all, alignmentBytes), 200);
          for (const word of words) replay.run(word);
          evictions += pool.stats().evictions;
        } finally {
          pool.free();
        }
      });
      t.notThrows(() => fc.assert(property, { numRuns: RUNS }));
      t.true(evictions > 10 * RUNS, `${evictions} evictions`);
    });

    test(`pool: a tenant of a ${policy} pool fares as in a pool of its own (${name})`, (t) => {
      const core = freshCore(name);
      const property = fc.property(WORDS, (words) => {
        const bytes = 64;
        const parts = [6, 20, 38].map((pages) => pages * bytes);
        const whole = new PoolAllocator({
          capacityBytes: 64 * bytes,
          alignmentBytes: bytes,
          policy,
          core,
          tenants: parts.map((maxBytes) => ({ maxBytes })),
        });
        const alone = parts.map(
          (capacityBytes) => new PoolAllocator({ capacityBytes, alignmentBytes: bytes, policy, core }),
        );
        for (const word of words) {
          const tenant = 1 + ((word >>> 1) % 3);
          const own = alone[tenant - 1] as PoolAllocator;
          const keys = Array.from({ length: 1 + ((word >>> 4) & 3) }, (_, i) => `${tenant}-${((word >>> 8) + i) % 60}`);
          const about = { caller: word & 1, hint: ((word >>> 24) & 3) as 0 | 1 | 2 | 3 };
          if ((word & 1) === 0) {
            const there = own.lookupBatch(keys, about).slots;
            t.deepEqual(
              Array.from(whole.lookupBatch(keys, { ...about, tenant }).slots, (slot) => slot >= 0),
              Array.from(there, (slot) => slot >= 0),
            );
          }
          const published = { ...about, priority: PRIORITIES[(word >>> 26) & 3] as PagePriority };
          const expected = own.publishBatch(keys, bytes, 0, published).evicted;
          t.deepEqual(whole.publishBatch(keys, bytes, 0, { ...published, tenant }).evicted, expected);
          whole.verify();
        }
        for (const pool of [whole, ...alone]) pool.free();
      });
      t.notThrows(() => fc.assert(property, { numRuns: RUNS }));
    });
  }
}

test("pool: with tenants, keys come in proportion, each tenant's next victim first", (t) => {
  const pool = new PoolAllocator({ capacityBytes: 100, tenants: [{ maxBytes: 50 }, { maxBytes: 50 }] });
  pool.publishBatch(['a1', 'a2', 'a3', 'a4'], 1, 0, { tenant: 1 });
  pool.publishBatch(['b1', 'b2'], 1, 0, { tenant: 2 });
  pool.pin('b2');
  t.deepEqual(pool.keys(), ['a1', 'b1', 'a2', 'a3', 'a4', 'b2']);
});

test('pool: a quota of less than a page takes none', (t) => {
  const pool = new PoolAllocator({ capacityBytes: 400, tenants: [{ maxBytes: 99 }] });
  t.is(pool.publishBatch(['a'], 100, 0, { tenant: 1 }).offsets[0], -1);
  t.is(pool.publishBatch(['b'], 100).offsets[0], 0);
  pool.verify();
});

test('pool: a protected minimum that rounds to less than a page does not keep another tenant from its own', (t) => {
  // Each may have 1.2 of four pages for certain: two of them must not keep two pages each from the third.
  const tenants = [{ minBytes: 120 }, { minBytes: 120 }, { minBytes: 120 }];
  const pool = new PoolAllocator({ capacityBytes: 400, tenants });
  pool.publishBatch(['a1', 'a2'], 100, 0, { tenant: 1 });
  pool.publishBatch(['b1', 'b2'], 100, 0, { tenant: 2 });
  t.deepEqual(pool.publishBatch(['c1'], 100, 0, { tenant: 3 }).evicted, ['a1']);
  // Nobody is above the minimum by a page now: the others keep theirs.
  t.deepEqual(pool.publishBatch(['c2'], 100, 0, { tenant: 3 }).evicted, ['b1']);
  t.deepEqual(pool.publishBatch(['c3'], 100, 0, { tenant: 3 }).evicted, ['c1']);
  t.deepEqual(pool.publishBatch(['d'], 100, 0).evicted, ['c2']);
  t.deepEqual(pool.publishBatch(['e'], 100, 0).evicted, ['d']);
});

test('pool: restored pages belong to their tenants, which may be above their maximum at first', (t) => {
  const pool = new PoolAllocator({ capacityBytes: 400, tenants: [{ maxBytes: 100 }, { minBytes: 200 }] });
  pool.restoreBatch(['a1', 'b1', 'a2', 'b2'], [100, 100, 100, 100], [0, 100, 200, 300], [1, 2, 1, 2]);
  t.is(pool.tenantStats(1).usedBytes, 200);
  t.deepEqual(pool.evictOverMax(), { key: 'a1', slot: 0 });
  t.is(pool.evictOverMax(), null);
  t.deepEqual(pool.tenantStats(2), { entries: 2, usedBytes: 200, minBytes: 200, maxBytes: 400, evictions: 0 });
  pool.verify();
});

test('pool: invalid tenants are refused', (t) => {
  for (const tenants of [
    [{ minBytes: 2, maxBytes: 1 }],
    [{ maxBytes: 101 }],
    [{ minBytes: 60 }, { minBytes: 41 }],
    [{ minBytes: 0.5 }],
    Array.from({ length: 256 }, () => ({})),
  ]) {
    t.throws(() => new PoolAllocator({ capacityBytes: 100, tenants }), { instanceOf: ArgumentError });
  }
  const pool = new PoolAllocator({ capacityBytes: 100, tenants: [{}] });
  t.is(pool.tenantCount, 2);
  for (const tenant of [-1, 2, 0.5, Number.NaN]) {
    t.throws(() => pool.publishBatch(['a'], 1, 0, { tenant }), { instanceOf: ArgumentError });
    t.throws(() => pool.lookupBatch(['a'], { tenant }), { instanceOf: ArgumentError });
    t.throws(() => pool.giveBatch(['a'], tenant), { instanceOf: ArgumentError });
    t.throws(() => pool.evictNext(0, tenant), { instanceOf: ArgumentError });
    t.throws(() => pool.tenantStats(tenant), { instanceOf: ArgumentError });
    t.throws(() => new PoolAllocator({ capacityBytes: 100, tenants: [{}] }).restoreBatch(['a'], [1], [0], [tenant]), {
      instanceOf: ArgumentError,
    });
  }
});
