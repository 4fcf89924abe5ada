import test from 'ava';
import { type EvictionPolicy, PoolAllocator } from '../../src/core/index.js';
import type { PoolPublishOptions } from '../../src/core/pool/pool-types.js';
import { sequence } from '../_programs/core/placement-trace.js';

const POLICIES: readonly EvictionPolicy[] = ['lru', 's3fifo', 'yield'];
const pageKeys = (name: string, count: number): string[] => Array.from({ length: count }, (_, i) => `${name}-${i}`);

/** Number of pages from the first on that are there. */
function prefixOf(pool: PoolAllocator, keys: readonly string[]): number {
  const gap = pool.hasBatch(keys).indexOf(0);
  return gap < 0 ? keys.length : gap;
}

/** Publishes the keys in so many calls of one request; returns those that were placed. */
function publishIn(pool: PoolAllocator, keys: readonly string[], calls: number): string[] {
  const size = keys.length / calls;
  return Array.from({ length: calls }, (_, call) => keys.slice(call * size, (call + 1) * size)).flatMap(
    (some, call) => {
      const { offsets } = pool.publishBatch(some, 1, 0, { continues: call > 0 });
      return some.filter((_, i) => (offsets[i] as number) >= 0);
    },
  );
}

for (const policy of POLICIES) {
  for (const calls of [1, 4]) {
    test(`pool heads: ${policy} keeps the head of a request longer than the pool, said in ${calls}`, (t) => {
      for (const isFull of [false, true]) {
        const pool = new PoolAllocator({ capacityBytes: 64, policy, keepsHeads: true });
        if (isFull) for (let i = 0; i < 20; i++) pool.publishBatch(pageKeys(`before-${i}`, 10), 1);
        const keys = pageKeys('page', 120);
        const placed = publishIn(pool, keys, calls);
        t.is(prefixOf(pool, keys), 64);
        t.deepEqual(placed, keys.slice(0, 64), 'what was placed is there, and nothing else was');
        pool.verify();
        // Another request takes the room as ever.
        const next = pageKeys('next', 10);
        t.is(publishIn(pool, next, 1).length, 10);
        t.is(prefixOf(pool, next), 10);
        t.true(pool.size <= 64);
        pool.verify();
        pool.free();
      }
    });
  }

  test(`pool heads: ${policy} keeps what the request has just read, too`, (t) => {
    const pool = new PoolAllocator({ capacityBytes: 64, policy, keepsHeads: true });
    const keys = pageKeys('page', 120);
    pool.publishBatch(keys.slice(0, 30), 1);
    for (let i = 0; i < 3; i++) pool.publishBatch(pageKeys(`other-${i}`, 10), 1);
    pool.lookupBatch(keys.slice(0, 30));
    pool.publishBatch(keys.slice(30), 1);
    // The read pages are first in the small queue of S3-FIFO, before the others.
    t.true(prefixOf(pool, keys) >= (policy === 's3fifo' ? 30 : 64));
    pool.verify();
    pool.free();
  });

  test(`pool heads: with ${policy} a request that was refused pages is learned of as ever`, (t) => {
    const pool = new PoolAllocator({ capacityBytes: 64, policy, keepsHeads: true });
    const keys = pageKeys('page', 80);
    for (let turn = 0; turn < 200; turn++) {
      pool.lookupBatch(keys);
      const missing = keys.filter((key) => !pool.has(key));
      pool.publishBatch(missing, 1, 0, { continues: true });
      pool.publishBatch(pageKeys(`turn-${turn}`, 5), 1, 0, { continues: false });
      pool.verify();
    }
    t.true(pool.size <= 64);
    pool.free();
  });
}

test('pool heads: calls that nobody says to be one request evict each other’s pages, however alike they are', (t) => {
  for (const policy of POLICIES) {
    const pool = new PoolAllocator({ capacityBytes: 64, policy, keepsHeads: true });
    for (let call = 0; call < 50; call++) {
      const keys = pageKeys(`call-${call}`, 16);
      t.is(publishIn(pool, keys, 1).length, 16, `${policy}, call ${call}`);
      t.is(prefixOf(pool, keys), 16);
    }
    pool.verify();
    pool.free();
  }
});

test('pool heads: without the option a later page takes the place of an earlier one', (t) => {
  const pool = new PoolAllocator({ capacityBytes: 64 });
  const keys = pageKeys('page', 120);
  pool.publishBatch(keys, 1);
  t.is(prefixOf(pool, keys), 0);
  t.throws(() => new PoolAllocator({ capacityBytes: 64, keepsHeads: 1 as unknown as boolean }), {
    code: 'ERR_ARGUMENT',
  });
  pool.free();
});

test('pool heads: random requests with pins, priorities, tenants and quarantines break no invariant', (t) => {
  for (const policy of POLICIES) {
    for (let seed = 1; seed <= 20; seed++) {
      const next = sequence(seed);
      const quarantineMs = [0, 20][next(2)] as number;
      const tenants = [[], [{ minBytes: 100, maxBytes: 300 }]][next(2)] ?? [];
      const pool = new PoolAllocator({ capacityBytes: 400, policy, keepsHeads: true, quarantineMs, tenants });
      const pinned: string[] = [];
      for (let step = 0; step < 200; step++) {
        const keys = Array.from({ length: 1 + next(40) }, (_, i) => `${next(6)}-${i}`);
        const request = {
          caller: next(3),
          tenant: next(1 + tenants.length),
          continues: [undefined, true, false][next(3)],
        };
        const priority = (['normal', 'normal', 'low', 'high'] as const)[next(4)];
        const kind = next(6);
        if (kind < 3)
          pool.publishBatch([...new Set(keys)], 1 + next(30), step, { ...request, priority } as PoolPublishOptions);
        else if (kind === 3) pool.lookupBatch(keys, request as PoolPublishOptions);
        else if (kind === 4) for (const key of keys.slice(0, 3)) if (pool.pin(key)) pinned.push(key);
        if (kind === 5) for (const key of pinned.splice(0)) pool.unpin(key);
        pool.verify();
      }
      pool.free();
    }
  }
  t.pass();
});

for (const policy of POLICIES) {
  test(`pool heads: with ${policy} the last page of another tenant is nobody's head`, (t) => {
    const pool = new PoolAllocator({ capacityBytes: 16, policy, keepsHeads: true, tenants: [{ minBytes: 16 }] });
    const callOf = (tenant: number, key: string): boolean =>
      (pool.publishBatch([key], 1, 0, { tenant, caller: tenant + 1 }).offsets[0] as number) >= 0;
    for (let i = 0; i < 16; i++) t.true(callOf(0, `first-${i}`));
    // Cause: the request of the other tenant's own last call was compared, so that its newest page could not go.
    for (let i = 0; i < 16; i++) t.true(callOf(1, `second-${i}`), `page ${i}`);
    pool.verify();
    pool.free();
  });
}
