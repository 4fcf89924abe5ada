import test from 'ava';
import {
  ArgumentError,
  type EvictionPolicy,
  type PagePriority,
  PoolAllocator,
  type PoolAllocatorOptions,
} from '../../src/core/index.js';
import { freshCore } from '../_support/core/binaries.js';

const POLICIES: readonly EvictionPolicy[] = ['lru', 's3fifo', 'yield'];
const PAGE_BYTES = 100;
/** Where a slot of the core has the status and the priority of its page, in bytes. */
const SLOT_BYTES = 64;
const STATUS_AT = 52;
const PRIORITY_AT = 54;

class Pool extends PoolAllocator {
  constructor(pages: number, options: Partial<PoolAllocatorOptions> = {}) {
    super({ capacityBytes: pages * PAGE_BYTES, core: freshCore(), ...options });
  }

  set(keys: readonly string[], priority?: PagePriority, tenant = 0): readonly string[] {
    return this.publishBatch([...keys], PAGE_BYTES, 0, { priority, tenant }).evicted;
  }
}

function keys(prefix: string, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `${prefix}${i}`);
}

for (const policy of POLICIES) {
  test(`priority: low pages of a ${policy} pool go first, then normal ones, then high ones`, (t) => {
    const pool = new Pool(8, { policy });
    pool.set(['h0', 'h1'], 'high');
    pool.set(['n0', 'n1', 'n2', 'n3']);
    pool.set(['l0', 'l1'], 'low');
    pool.lookup('l0');
    pool.lookup('h0');
    t.deepEqual(pool.set(['x0', 'x1']), ['l1', 'l0']);
    t.deepEqual(pool.set(keys('y', 6)).length, 6);
    t.true(pool.has('h0') && pool.has('h1'));
    // With nothing else left, the least recently used high page goes.
    for (const key of pool.keys()) if (!key.startsWith('h')) pool.remove(key);
    t.deepEqual([pool.evictNext(), pool.evictNext(), pool.evictNext()], ['h1', 'h0', null]);
    pool.verify();
    pool.free();
  });

  test(`priority: high pages take at most half of a ${policy} pool, the least recently used become normal`, (t) => {
    const pool = new Pool(8, { policy });
    pool.set(keys('h', 4), 'high');
    pool.lookup('h0');
    pool.set(['h4', 'h5'], 'high');
    t.deepEqual(pool.keys().slice(-4), ['h3', 'h0', 'h4', 'h5'], 'h1 and h2 are normal now');
    pool.set(keys('n', 20));
    t.deepEqual(
      pool
        .keys()
        .filter((key) => key.startsWith('h'))
        .sort(),
      ['h0', 'h3', 'h4', 'h5'],
    );
    // One page in the place of several.
    pool.publishBatch(['large'], 4 * PAGE_BYTES, 0, { priority: 'high' });
    t.deepEqual(pool.keys().slice(-1), ['large']);
    pool.verify();
    pool.publishBatch(['larger'], 5 * PAGE_BYTES, 0, { priority: 'high' });
    pool.verify();
    pool.set(keys('m', 8));
    t.false(pool.has('larger'), 'a page of more than half is normal');
    pool.free();
  });

  test(`priority: a page of a ${policy} pool has the priority that it was given last`, (t) => {
    const pool = new Pool(4, { policy });
    pool.set(['a', 'b', 'c', 'd']);
    pool.setPriorityBatch(['a', 'absent'], 'high');
    pool.setPriorityBatch(['c'], 'low');
    t.deepEqual([pool.keys()[0], pool.keys()[3]], ['c', 'a']);
    pool.set(['c'], 'high');
    t.deepEqual(pool.keys().slice(2), ['a', 'c']);
    pool.setPriorityBatch(['a'], 'normal');
    t.deepEqual(pool.keys().at(-1), 'c');
    pool.set(['c']);
    pool.verify();
    t.deepEqual(pool.set(['e'], 'low').length, 1);
    t.deepEqual(pool.set(['f']), ['e']);
    pool.free();
  });

  test(`priority: a pinned page of a ${policy} pool takes its priority when it is unpinned`, (t) => {
    const pool = new Pool(4, { policy });
    pool.set(['a', 'b'], 'high');
    pool.set(['c', 'd']);
    for (const key of ['a', 'b', 'c', 'd']) pool.pin(key);
    pool.setPriorityBatch(['a'], 'normal');
    pool.setPriorityBatch(['b', 'c'], 'low');
    pool.setPriorityBatch(['d'], 'high');
    pool.setPriorityBatch(['b'], 'high');
    pool.lookupBatch(['a', 'b', 'c', 'd']);
    pool.verify();
    t.is(pool.evictNext(), null, 'all are pinned');
    for (const key of ['d', 'c', 'b', 'a']) pool.unpin(key);
    t.deepEqual(pool.keys(), ['c', 'a', 'd', 'b']);
    pool.verify();
    pool.free();
  });

  test(`priority: half of its maximum is the most that high pages of a tenant of a ${policy} pool take`, (t) => {
    const pool = new Pool(20, { policy, tenants: [{ maxBytes: 4 * PAGE_BYTES }, { minBytes: 2 * PAGE_BYTES }] });
    pool.set(keys('a', 4), 'high', 1);
    pool.verify();
    t.deepEqual([...pool.set(['x', 'y'], 'normal', 1)].sort(), ['a0', 'a1'], 'two of them were normal');
    // Low pages of one tenant do not save the normal ones of another, which pays for a third one.
    pool.set(keys('b', 2), 'low', 2);
    pool.set(keys('c', 14));
    t.regex(pool.set(['d']).join(), /^c\d+$/);
    t.true(pool.has('b0') && pool.has('b1'));
    // A page that is given to a tenant is a normal one there.
    pool.setPriorityBatch(['d'], 'high');
    pool.giveBatch(['d'], 2);
    t.deepEqual(
      pool.keys().filter((key) => 'bd'.includes(key[0] as string)),
      ['b0', 'b1', 'd'],
    );
    pool.setPriorityBatch(['c2'], 'low');
    pool.set(['c3'], 'low', 2);
    pool.verify();
    pool.free();
  });
}

test('priority: a low or high page leaves no ghost, and the ghost of a normal one is forgotten', (t) => {
  // A page of S3-FIFO whose ghost is known comes back into the main queue, which goes after the small one.
  const comesBackAs = (first: PagePriority, between: PagePriority | undefined): readonly string[] => {
    const pool = new Pool(10, { policy: 's3fifo' });
    pool.set(['a'], first);
    pool.set(keys('n', 12));
    for (let i = 0; pool.has('a'); i++) pool.set([`m${i}`]);
    if (between !== undefined) {
      pool.set(['a'], between);
      pool.remove('a');
    }
    pool.set(['a']);
    pool.set(['z']);
    pool.verify();
    const order = pool.keys();
    pool.free();
    return order.slice(-1);
  };
  t.deepEqual(comesBackAs('normal', undefined), ['a'], 'as today');
  t.deepEqual(comesBackAs('low', undefined), ['z']);
  t.deepEqual(comesBackAs('normal', 'low'), ['z']);
  t.deepEqual(comesBackAs('normal', 'high'), ['z']);
});

test('priority: a page without one is where a page of normal priority is', (t) => {
  const [pool, other] = [new Pool(5), new Pool(5)];
  pool.set(['a', 'b', 'c']);
  other.set(['a', 'b', 'c'], 'normal');
  pool.touchBatch(['a']);
  other.touchBatch(['a']);
  other.setPriorityBatch(['a', 'b'], 'normal');
  t.deepEqual(pool.keys(), other.keys());
});

test('priority: other words are refused', (t) => {
  const pool = new Pool(5);
  for (const priority of ['High', '', 1, null, {}, 'toString', ['high']] as unknown as PagePriority[]) {
    const expected = { instanceOf: ArgumentError, message: /^priority must be "low", "normal" or "high", got / };
    t.throws(() => pool.set(['a'], priority), expected);
    t.throws(() => pool.setPriorityBatch(['a'], priority), expected);
  }
  t.is(pool.size, 0);
});

test('priority: verify finds a page that is not in the list of its priority', (t) => {
  for (const [given, planted] of [
    ['normal', 2],
    ['normal', 1],
    ['low', 0],
    ['low', 2],
    ['high', 1],
    ['high', 0],
  ] as const) {
    const core = freshCore();
    const pool = new Pool(8, { core });
    pool.set(['a', 'b'], given);
    pool.verify();
    core.area.writeDigests(['a'], 0);
    const memory = Buffer.from(core.exports.memory.buffer);
    const digest = Buffer.from(memory.subarray(core.area.hashes, core.area.hashes + 16));
    const slots: number[] = [];
    for (let at = memory.indexOf(digest); at >= 0; at = memory.indexOf(digest, at + 1)) {
      if (at % SLOT_BYTES === 0 && memory[at + STATUS_AT] === 1) slots.push(at);
    }
    t.is(slots.length, 1);
    memory[(slots[0] as number) + PRIORITY_AT] = planted;
    t.throws(() => pool.verify(), {
      code: 'ERR_CORE',
      message: /the order of eviction does not hold exactly the pages/,
    });
  }
});
