import test from 'ava';
import fc from 'fast-check';
import {
  type EvictionPolicy,
  KeyBatch,
  type Keys,
  type PagePriority,
  PoolAllocator,
  type PoolAllocatorOptions,
} from '../../src/core/index.js';
import { BINARIES, freshCore } from '../_support/core/binaries.js';
import { NaivePool } from '../_support/core/naive-pool.js';

/** All operations of a run of this file; 10 million in a long one. */
const OPERATIONS = Number(process.env.MESHCACHE_FUZZ_OPERATIONS ?? 120_000);
const POLICIES: readonly EvictionPolicy[] = ['lru', 's3fifo', 'yield'];
const OPERATIONS_A_RUN = 400;
const RUNS = Math.ceil(OPERATIONS / OPERATIONS_A_RUN / (BINARIES.length * POLICIES.length));
const VERIFY_EVERY = 16;
/** Half of the pages are normal. */
const PRIORITIES: readonly PagePriority[] = ['normal', 'normal', 'low', 'high'];

type Config = Required<Omit<PoolAllocatorOptions, 'core' | 'tenants' | 'keepsHeads'>>;

function configs(policy: EvictionPolicy): fc.Arbitrary<Config> {
  return fc
    .record({
      units: fc.constantFrom(16, 64, 3000),
      alignmentBytes: fc.constantFrom(1, 64),
      segments: fc.constantFrom(1, 1, 3),
      quarantineMs: fc.constantFrom(0, 0, 8, 100),
      quarantineDivisor: fc.constantFrom(16, 3),
      neverReuseEarly: fc.boolean(),
    })
    .map(({ units, alignmentBytes, segments, quarantineMs, quarantineDivisor, neverReuseEarly }) => {
      const capacityBytes = units * alignmentBytes;
      return {
        policy,
        capacityBytes,
        alignmentBytes,
        segmentBytes: Math.ceil(units / segments) * alignmentBytes,
        quarantineMs,
        // In whole units, as the pool counts it.
        quarantineMaxBytes: Math.floor(units / quarantineDivisor) * alignmentBytes,
        neverReuseEarly,
      };
    });
}

/** A page to restore: number of its key, and bits that its place and its length are made of. */
type Leftover = [key: number, place: number, bits: number];

/** One operation in 30 bits: kind, key, length and how time moves on. */
class Replay {
  private nowMs = 0;
  private step = 0;
  restored = 0;
  refused = 0;

  constructor(
    private readonly config: Config,
    private readonly pool: PoolAllocator,
    private readonly model: NaivePool,
    private readonly hasPriorities: boolean,
  ) {}

  /** In two calls; keys that are there twice, ranges that overlap or reach too far are among the pages. */
  restore(leftovers: readonly Leftover[]): void {
    const { alignmentBytes, capacityBytes } = this.config;
    const units = capacityBytes / alignmentBytes;
    const byOffset = new Map(leftovers.map(([key, place, bits]) => [place % (units + 2), { key: `k${key}`, bits }]));
    const pages = [...byOffset].toSorted(([a], [b]) => a - b);
    const half = pages.length >>> 1;
    for (const call of [pages.slice(0, half), pages.slice(half)]) {
      const keys = call.map(([, { key }]) => key);
      const lengths = call.map(([, { bits }]) => this.lengthOf(bits));
      const offsets = call.map(([offset]) => offset * alignmentBytes);
      const taken = Array.from(this.pool.restoreBatch(keys, lengths, offsets), (slot) => slot !== -1);
      const expected = keys.map((key, i) => this.model.restore(key, lengths[i] as number, offsets[i] as number));
      same(taken.join(), expected.join(), 'restored pages');
      this.restored += taken.filter(Boolean).length;
      this.refused += taken.filter((isTaken) => !isTaken).length;
      this.check();
    }
  }

  run(word: number): void {
    const kind = word & 15;
    const key = `k${(word >>> 4) & 31}`;
    this.nowMs += (word >>> 9) & 3;
    const priority = this.hasPriorities ? (PRIORITIES[(word >>> 27) & 3] as PagePriority) : 'normal';
    if (kind < 7) this.publish(key, this.lengthOf(word >>> 11), priority);
    else if (kind === 7) same(this.pool.evictNext(this.nowMs), this.model.evictNext(this.nowMs), 'evicted next');
    else if (kind < 10) this.lookup(key);
    else if (kind === 10 && this.hasPriorities) this.setPriority(key, priority);
    else if (kind === 10) same(this.pool.has(key), this.model.has(key), `has ${key}`);
    else if (kind === 11) same(this.pool.touchBatch([key]) === 1, this.model.lookup(key) !== undefined, `touch ${key}`);
    else if (kind === 12) same(this.pool.remove(key, this.nowMs), this.model.remove(key, this.nowMs), `remove ${key}`);
    else if (kind === 13) same(this.pool.pin(key), this.model.pin(key), `pin ${key}`);
    else if (kind === 14 || (word >>> 11) % 32 !== 0) same(this.pool.unpin(key), this.model.unpin(key), `unpin ${key}`);
    else this.clear();
    if (this.step++ % VERIFY_EVERY === 0) this.check();
  }

  get demoted(): number {
    return this.model.demoted;
  }

  check(): void {
    this.pool.verify();
    this.model.checkStats(this.pool.stats());
    const keys = this.pool.keys();
    const { ordered, pinned } = this.model.keys();
    same(keys.slice(0, ordered.length).join(), ordered.join(), 'order of eviction');
    same(keys.slice(ordered.length).toSorted().join(), [...pinned].toSorted().join(), 'pinned keys');
  }

  /** Everything removed, unpinned and waited for: one free range a segment is left. */
  drain(): void {
    this.clear();
    for (let i = 0; i < 32; i++) while (this.pool.unpin(`k${i}`)) this.model.unpin(`k${i}`);
    this.nowMs += 1000;
    this.pool.remove('nothing', this.nowMs);
    this.pool.verify();
    const { freeBytes, largestFreeBytes, entries } = this.pool.stats();
    same(freeBytes, this.config.capacityBytes, 'free bytes at the end');
    same(largestFreeBytes, this.config.segmentBytes, 'largest free range at the end');
    same(entries, 0, 'pages at the end');
  }

  /** Mostly parts of a segment that fit several times, sometimes everything, nothing, or too much. */
  private lengthOf(bits: number): number {
    const { segmentBytes } = this.config;
    const kind = bits & 15;
    if (kind === 0) return 1;
    if (kind === 1) return segmentBytes + ((bits >>> 4) % 3);
    if (kind < 8) return 1 + ((bits >>> 4) % Math.max(1, Math.floor(segmentBytes / 6)));
    if (kind < 12) return Math.max(1, Math.floor(segmentBytes / 8));
    return 1 + ((bits >>> 4) % segmentBytes);
  }

  private publish(key: string, bytes: number, priority: PagePriority): void {
    const { offsets, evicted } = this.pool.publishBatch([key], bytes, this.nowMs, { priority });
    const offset = offsets[0] as number;
    const { earlyReuses } = this.pool.stats();
    this.model.publish(key, bytes, this.nowMs, { offset, evicted, earlyReuses, priority });
    same(this.pool.has(key), offset >= 0, `${key} is there after its publish`);
  }

  private setPriority(key: string, priority: PagePriority): void {
    this.pool.setPriorityBatch([key], priority);
    this.model.setPriority(key, priority);
  }

  private lookup(key: string): void {
    const found = this.pool.lookup(key);
    const expected = this.model.lookup(key);
    same(found?.offset, expected?.offset, `offset of ${key}`);
    same(found?.bytes, expected?.bytes, `length of ${key}`);
  }

  private clear(): void {
    // Clearing goes by slots; only its sum matters, unless the quarantine keeps the order of the ranges.
    const bySlot = this.pool.keys().map((key) => ({ key, slot: this.slotOf(key) }));
    bySlot.sort((a, b) => a.slot - b.slot);
    this.pool.clear(this.nowMs);
    this.model.clear(
      this.nowMs,
      bySlot.map(({ key }) => key),
    );
  }

  private slotOf(key: string): number {
    this.model.lookup(key);
    return this.pool.lookup(key)?.slot as number;
  }
}

function same(found: unknown, expected: unknown, what: string): void {
  if (found !== expected) throw new Error(`${what}: ${String(found)}, the model has ${String(expected)}`);
}

for (const name of BINARIES) {
  for (const policy of POLICIES) {
    test(`pool: ${policy} agrees with the naive model over random operations (${name})`, (t) => {
      const core = freshCore(name);
      const words = fc.array(fc.nat({ max: 2 ** 30 - 1 }), {
        minLength: 1,
        maxLength: 2 * OPERATIONS_A_RUN,
        size: 'max',
      });
      let done = 0;
      const leftover: fc.Arbitrary<Leftover> = fc.tuple(fc.nat({ max: 31 }), fc.nat({ max: 2 ** 20 }), fc.nat());
      const before = fc.array(leftover, { maxLength: 40, size: 'max' });
      const sum = { evictions: 0, earlyReuses: 0, restored: 0, refused: 0, demoted: 0 };
      const property = fc.property(
        configs(policy),
        before,
        words,
        fc.boolean(),
        (config, restored, operations, some) => {
          done += operations.length;
          const pool = new PoolAllocator({ ...config, core });
          try {
            const replay = new Replay(config, pool, new NaivePool(config), some);
            replay.restore(restored);
            for (const word of operations) replay.run(word);
            replay.check();
            replay.drain();
            const { evictions, earlyReuses } = pool.stats();
            sum.evictions += evictions;
            sum.demoted += replay.demoted;
            sum.earlyReuses += earlyReuses;
            sum.restored += replay.restored;
            sum.refused += replay.refused;
          } finally {
            pool.free();
          }
        },
      );
      t.notThrows(() => fc.assert(property, { numRuns: RUNS }));
      t.log(`${done} operations, ${JSON.stringify(sum)}`);
      t.true(sum.evictions > done / 50 && sum.earlyReuses > 0, 'the operations reach what they are there for');
      t.true(sum.demoted > RUNS / 2, 'high pages become too many');
      t.true(sum.restored > 2 * RUNS && sum.refused > 2 * RUNS, 'pages are restored, and refused');
    });
  }

  test(`pool: a batch does what its keys do one after the other (${name})`, (t) => {
    const core = freshCore(name);
    const batches = fc.array(fc.array(fc.nat({ max: 2 ** 16 - 1 }), { minLength: 1, maxLength: 40 }), {
      maxLength: 12,
    });
    const property = fc.property(configs('lru'), batches, (config, writes) => {
      const one = new PoolAllocator({ ...config, core });
      const all = new PoolAllocator({ ...config, core });
      for (const [nowMs, batch] of writes.entries()) {
        const keys = batch.map((word) => `k${word & 31}`);
        const lengths = batch.map((word) => 1 + ((word >>> 5) % (config.segmentBytes / 2)));
        const evicted = keys.flatMap((key, i) => {
          one.publish(key, lengths[i] as number, nowMs);
          return one.lastEvicted;
        });
        // Every other one as a batch whose hashes other calls have left, or will find.
        const asked = nowMs % 2 === 0 ? keys : KeyBatch.of(keys);
        const result = all.publishBatch(asked, lengths, nowMs);
        t.deepEqual(result.evicted, evicted);
        t.deepEqual(all.keys(), one.keys());
        t.deepEqual(all.stats(), one.stats());
        const last = new Map(keys.map((key, i) => [key, i]));
        const expected = keys.map((key, i) => (last.get(key) === i ? (one.lookup(key)?.offset ?? -1) : -1));
        for (const [i, key] of keys.entries()) if (last.get(key) === i) all.lookup(key);
        t.deepEqual(Array.from(result.offsets), expected);
        t.deepEqual(
          Array.from(result.slots, (slot) => slot === -1),
          expected.map((offset) => offset === -1),
        );
        t.deepEqual(
          Array.from(all.hasBatch(asked), (flag) => flag === 1),
          keys.map((key) => one.has(key)),
        );
        const pinned = batch.filter((word) => word & 1).map((word) => `k${(word >>> 3) & 31}`);
        const unpinned = batch.filter((word) => word & 2).map((word) => `k${(word >>> 4) & 31}`);
        const flags = (done: boolean[]): Uint8Array => Uint8Array.from(done, Number);
        const form = (some: string[]): Keys => (nowMs % 2 === 0 ? some : KeyBatch.of(some));
        t.deepEqual(all.pinBatch(form(pinned)), flags(pinned.map((key) => one.pin(key))));
        t.deepEqual(all.unpinBatch(form(unpinned)), flags(unpinned.map((key) => one.unpin(key))));
        t.is(all.touchBatch(asked), keys.filter((key) => one.lookup(key) !== null).length);
        if (nowMs % 3 === 0)
          t.deepEqual(all.removeBatch(asked, nowMs), flags(keys.map((key) => one.remove(key, nowMs))));
        t.deepEqual(
          all.lookupBatch(asked).offsets,
          Float64Array.from(keys, (key) => one.lookup(key)?.offset ?? -1),
        );
        all.verify();
      }
      t.deepEqual(all.keys(), one.keys());
      one.free();
      all.free();
    });
    t.notThrows(() => fc.assert(property, { numRuns: 200 }));
  });
}
