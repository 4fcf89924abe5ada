import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import {
  ArgumentError,
  type EvictionPolicy,
  PoolAllocator,
  type RequestHint,
  type RequestOptions,
} from '../../src/core/index.js';
import { freshCore } from '../_support/core/binaries.js';

const PAGE_BYTES = 4096;

function poolOf(pages: number, policy: EvictionPolicy = 'yield'): PoolAllocator {
  return new PoolAllocator({ capacityBytes: pages * PAGE_BYTES, policy, core: freshCore() });
}

function pagesOf(name: string, from: number, to: number): string[] {
  return Array.from({ length: to - from }, (_, i) => `${name}.${from + i}`);
}

/** The keys that are there and come before the first that is not. */
function prefixOf(pool: PoolAllocator, keys: readonly string[]): number {
  const gap = pool.hasBatch(keys).indexOf(0);
  return gap < 0 ? keys.length : gap;
}

/** Reads the prefix and writes the rest, as an engine does; returns the pages of the prefix. */
function serve(
  pool: PoolAllocator,
  keys: readonly string[],
  bytes: number | number[],
  request?: RequestOptions,
): number {
  const prefix = prefixOf(pool, keys);
  if (prefix > 0) pool.lookupBatch(keys.slice(0, prefix), request);
  const rest = typeof bytes === 'number' ? bytes : bytes.slice(prefix);
  pool.publishBatch(keys.slice(prefix), rest, 0, request);
  return prefix;
}

test('yield: a request is evicted from its end, also when it was said in slices', (t) => {
  const keys = pagesOf('a', 0, 24);
  for (const slice of [24, 8, 1]) {
    // All within one tick, which is 62 pages. Other requests come between the slices.
    const pool = poolOf(4000);
    for (let i = 0; i < keys.length; i += slice) {
      pool.publishBatch(keys.slice(i, i + slice), PAGE_BYTES, 0, { caller: 1 });
      pool.publishBatch([`b${i}`], PAGE_BYTES, 0, { caller: 2 });
    }
    const order = pool.keys().filter((key) => keys.includes(key));
    t.deepEqual(order, keys.toReversed(), `slices of ${slice}`);
    pool.verify();
  }
});

test('yield: of a request that is longer than the pool the head stays', (t) => {
  const keys = pagesOf('a', 0, 64);
  for (const slice of [64, 16, 1]) {
    const pool = poolOf(16);
    pool.publishBatch(pagesOf('b', 0, 4), PAGE_BYTES);
    for (let i = 0; i < keys.length; i += slice) {
      pool.publishBatch(keys.slice(i, i + slice), PAGE_BYTES, 0, { continues: i > 0 });
    }
    t.true(prefixOf(pool, keys) >= 11, `slices of ${slice}: ${prefixOf(pool, keys)}`);
    pool.verify();
  }
});

test('yield: where conversations are alike as many pages are found as with LRU', (t) => {
  const found = (policy: EvictionPolicy, pages: number): number => {
    const random = seededRandom(1);
    const upTo = (limit: number): number => random.u32() % limit;
    const pool = poolOf(pages, policy);
    const conversations: { name: string; turns: number; left: number }[] = [];
    let hits = 0;
    let asked = 0;
    for (let i = 0; i < 6_000; i++) {
      const isNew = conversations.length < 200 || upTo(4) === 0;
      const one = isNew ? { name: `${i}`, turns: 0, left: 1 + upTo(6) } : conversations[upTo(conversations.length)];
      if (one === undefined) throw new Error('no conversation');
      if (isNew) conversations.push(one);
      one.turns++;
      const keys = pagesOf(one.name, 0, 3 * one.turns);
      asked += keys.length;
      hits += serve(pool, keys, PAGE_BYTES);
      if (--one.left === 0) conversations.splice(conversations.indexOf(one), 1);
    }
    return hits / asked;
  };
  for (const pages of [300, 1_000, 2_000]) {
    const [byYield, byLru] = [found('yield', pages), found('lru', pages)];
    t.true(byYield > byLru - 0.005, `${pages} pages: ${byYield.toFixed(4)}, with LRU ${byLru.toFixed(4)}`);
  }
});

test('yield: a page that goes for one that then finds no room is not the last of its request', (t) => {
  const pool = poolOf(4);
  const keys = pagesOf('a', 0, 4);
  pool.publishBatch(keys, PAGE_BYTES);
  pool.pin('a.1');
  const { offsets, evicted } = pool.publishBatch(['large', 'a.0'], [4 * PAGE_BYTES, PAGE_BYTES]);
  t.is(offsets[0], -1);
  t.deepEqual(evicted, ['a.3', 'a.2', 'a.0']);
  pool.verify();
  t.deepEqual(pool.keys(), ['a.0', 'a.1']);
});

test('yield: a page that is pinned and released keeps its place among those of its request', (t) => {
  const pool = poolOf(20);
  const keys = pagesOf('a', 0, 10);
  pool.publishBatch(keys, PAGE_BYTES);
  for (const key of keys) pool.pin(key);
  for (const key of keys) pool.unpin(key);
  t.deepEqual(pool.keys(), keys.toReversed());
});

test('yield: keys in one call twice count once', (t) => {
  const pool = poolOf(4);
  pool.publishBatch(['a', 'b'], PAGE_BYTES);
  const other = poolOf(4);
  other.publishBatch(['a', 'b'], PAGE_BYTES);
  pool.lookupBatch(['a', 'b', 'a', 'b']);
  other.lookupBatch(['a', 'b']);
  for (const one of [pool, other]) one.publishBatch(['c', 'd', 'e'], PAGE_BYTES);
  t.deepEqual(pool.keys(), other.keys());
});

test('yield: part of a loop that is larger than the pool stays', (t) => {
  const hits = (policy: EvictionPolicy): number => {
    const pool = poolOf(300, policy);
    let found = 0;
    for (let round = 0; round < 40; round++) {
      for (let i = 0; i < 400; i += 10) found += serve(pool, pagesOf('a', i, i + 10), PAGE_BYTES);
    }
    pool.verify();
    return found / (40 * 400);
  };
  t.is(hits('lru'), 0);
  t.true(hits('yield') > 0.5, `${hits('yield')}`);
});

test('yield: what a hint means is learned, and the pages of closed conversations go first', (t) => {
  const random = seededRandom(5);
  const hits = (hintOf: (isOver: boolean) => RequestHint): number => {
    const pool = poolOf(600);
    const live: { name: string; pages: number; turns: number }[] = [];
    let found = 0;
    for (let i = 0; i < 6000; i++) {
      if (live.length < 100) live.push({ name: `c${i}`, pages: 0, turns: 1 + (random.u32() % 4) });
      const index = random.u32() % live.length;
      const chat = live[index] as (typeof live)[number];
      chat.pages += 6;
      chat.turns--;
      found += serve(pool, pagesOf(chat.name, 0, chat.pages), PAGE_BYTES, { hint: hintOf(chat.turns === 0) });
      if (chat.turns === 0) live.splice(index, 1);
    }
    pool.verify();
    return found;
  };
  const untold = hits(() => 0);
  const told = hits((isOver) => (isOver ? 'closed' : 'open'));
  t.true(told > 1.2 * untold, `${told} pages found with hints, ${untold} without`);
});

test('yield: the clock counts space, so that decisions are the same for pages of any scale', (t) => {
  const evictionsOf = (scale: number, alignmentBytes: number): string => {
    const random = seededRandom(9);
    const pool = new PoolAllocator({
      capacityBytes: 2 ** 20 * scale,
      alignmentBytes,
      policy: 'yield',
      core: freshCore(),
    });
    const evicted: string[] = [];
    for (let i = 0; i < 1500; i++) {
      const keys = pagesOf(`c${random.u32() % 60}`, 0, 1 + (random.u32() % 12));
      const bytes = keys.map((key) => (key.endsWith('1') ? 8192 : 2048) * scale);
      const prefix = prefixOf(pool, keys);
      pool.lookupBatch(keys.slice(0, prefix));
      evicted.push(...pool.publishBatch(keys.slice(prefix), bytes.slice(prefix)).evicted);
    }
    pool.verify();
    return evicted.join();
  };
  const evicted = evictionsOf(1, 2048);
  t.true(evicted.length > 1000);
  t.is(evictionsOf(16, 32_768), evicted);
  // A page takes whole units: what it asked for of its last one does not matter.
  t.is(evictionsOf(1, 1024), evicted);
});

test('yield: pages of several sizes are hit more often than with LRU in a load with scans', (t) => {
  const hits = (policy: EvictionPolicy): number => {
    const random = seededRandom(11);
    const pool = poolOf(800, policy);
    let found = 0;
    for (let i = 0; i < 6000; i++) {
      const isScan = random.u32() % 3 === 0;
      const keys = isScan ? pagesOf(`s${i}`, 0, 20) : pagesOf(`c${random.u32() % 100}`, 0, 8);
      const bytes = keys.map((_, j) => (j % 3 === 0 ? 3 * PAGE_BYTES : PAGE_BYTES / 2));
      found += serve(pool, keys, bytes);
    }
    pool.verify();
    return found;
  };
  t.true(hits('yield') > 1.3 * hits('lru'), `${hits('yield')} pages found, with LRU ${hits('lru')}`);
});

test('yield: restored pages take the order in which they are renewed', (t) => {
  const pool = poolOf(8);
  const keys = pagesOf('a', 0, 8);
  pool.restoreBatch(
    keys,
    keys.map(() => PAGE_BYTES),
    keys.map((_, i) => i * PAGE_BYTES),
  );
  const order = ['a.3', 'a.1', 'a.7', 'a.0', 'a.2', 'a.6', 'a.5', 'a.4'];
  pool.renewBatch(order);
  t.deepEqual(pool.keys(), order);
  t.deepEqual(pool.publish('b', PAGE_BYTES)?.evicted, ['a.3']);
  pool.verify();
});

test('yield: memory is bounded however many keys come and go', (t) => {
  const core = freshCore();
  const pool = new PoolAllocator({ capacityBytes: 100 * PAGE_BYTES, policy: 'yield', core });
  const publish = (from: number): void => {
    for (let i = from; i < from + 40_000; i += 100) pool.publishBatch(pagesOf('a', i, i + 100), PAGE_BYTES);
  };
  publish(0);
  const { memoryBytes } = core;
  publish(40_000);
  t.is(core.memoryBytes, memoryBytes);
  pool.verify();
});

test('yield: what a call says of its request is checked', (t) => {
  const pool = poolOf(4);
  const wrong = [{ hint: 4 }, { hint: 'over' }, { hint: null }, { caller: -1 }, { caller: 2 ** 28 }, { caller: 0.5 }];
  for (const request of wrong) {
    const call = (): unknown => pool.publishBatch(['a'], PAGE_BYTES, 0, request as RequestOptions);
    t.throws(call, { instanceOf: ArgumentError }, JSON.stringify(request));
    t.throws(() => pool.touchBatch(['a'], request as RequestOptions), { instanceOf: ArgumentError });
  }
  t.is(pool.size, 0);
});
