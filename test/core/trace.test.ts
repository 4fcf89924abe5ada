import { existsSync, readFileSync } from 'node:fs';
import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { type EvictionPolicy, PoolAllocator, type RequestHint, type RequestOptions } from '../../src/core/index.js';
import { freshCore } from '../_support/core/binaries.js';

/** Where the real trace lies, if it is here; it is not part of the project. */
const TRACE = process.env.MESHCACHE_TRACE ?? '../shared/data/conversation_trace.jsonl';
const PAGE_BYTES = 4_497_408;

const withTrace = existsSync(TRACE) ? test : test.skip;
const suffix = existsSync(TRACE) ? '' : ` (skipped: no ${TRACE}, see MESHCACHE_TRACE)`;

function readTrace(): string[][] {
  const lines = readFileSync(TRACE, 'utf8').trim().split('\n');
  return lines.map((line) => (JSON.parse(line) as { hash_ids: number[] }).hash_ids.map((id) => `block ${id}`));
}

/** Longest prefix, used in order; then the missing ones are published one after the other. */
function replay(trace: readonly string[][], pages: number, policy: EvictionPolicy): { rate: number; hits: number[] } {
  const pool = new PoolAllocator({ capacityBytes: pages * PAGE_BYTES, policy, core: freshCore() });
  let requested = 0;
  const hits = trace.map((keys) => {
    requested += keys.length;
    const gap = pool.hasBatch(keys).indexOf(0);
    const prefix = gap < 0 ? keys.length : gap;
    pool.touchBatch(keys.slice(0, prefix));
    for (const key of keys.slice(prefix)) if (!pool.has(key)) pool.publish(key, PAGE_BYTES);
    return prefix;
  });
  pool.verify();
  return { rate: hits.reduce((sum, count) => sum + count, 0) / requested, hits };
}

function exactLru(trace: readonly string[][], pages: number): number[] {
  const cache = new Set<string>();
  const put = (key: string): void => {
    cache.delete(key);
    cache.add(key);
  };
  return trace.map((keys) => {
    const gap = keys.findIndex((key) => !cache.has(key));
    const prefix = gap < 0 ? keys.length : gap;
    for (const key of keys.slice(0, prefix)) put(key);
    for (const key of keys.slice(prefix)) {
      if (cache.has(key)) continue;
      if (cache.size === pages) cache.delete(cache.keys().next().value as string);
      put(key);
    }
    return prefix;
  });
}

withTrace(`trace: a pool of N pages hits exactly as an LRU of N pages${suffix}`, (t) => {
  const trace = readTrace();
  for (const [pages, expected] of [
    [10_000, 0.211],
    [30_000, 0.326],
    [300_000, 0.366],
  ] as const) {
    const { rate, hits } = replay(trace, pages, 'lru');
    t.deepEqual(hits, exactLru(trace, pages));
    t.true(Math.abs(rate - expected) <= 0.003, `${rate} at ${pages} pages`);
  }
});

withTrace(`trace: S3-FIFO hits as its reference${suffix}`, (t) => {
  const trace = readTrace();
  for (const [pages, expected] of [
    [1000, 0.056],
    [5859, 0.152],
    [10_000, 0.195],
    [30_000, 0.304],
  ] as const) {
    const { rate } = replay(trace, pages, 's3fifo');
    t.true(Math.abs(rate - expected) <= 0.003, `${rate} at ${pages} pages`);
  }
});

/** Sizes of a pool from 500 to 60,000 pages. */
const SIZES = [500, 700, 1000, 1400, 2000, 3000, 4200, 5859, 8000, 10_000, 14_000, 20_000, 30_000, 43_000, 60_000];

interface Served {
  readonly callers?: number;
  readonly slice?: number;
  readonly hints?: readonly RequestHint[];
}

/**
 * Each of so many callers reads the prefix that is there and writes the rest, in calls of so many keys; the callers
 * take turns, a call each.
 */
function serve(
  trace: readonly string[][],
  pages: number,
  { callers = 1, slice = Number.POSITIVE_INFINITY, hints }: Served = {},
): number {
  const pool = new PoolAllocator({ capacityBytes: pages * PAGE_BYTES, policy: 'yield', core: freshCore() });
  let requested = 0;
  let hits = 0;
  let next = 0;
  const begin = (caller: number): Generator<void> | undefined => {
    const index = next++;
    const keys = trace[index];
    return keys && run(keys, { caller, hint: hints?.[index] ?? 0 });
  };
  function* run(keys: readonly string[], request: RequestOptions): Generator<void> {
    const gap = pool.hasBatch(keys).indexOf(0);
    const prefix = gap < 0 ? keys.length : gap;
    requested += keys.length;
    hits += prefix;
    for (let i = 0; i < prefix; i += slice) {
      pool.lookupBatch(keys.slice(i, Math.min(prefix, i + slice)), request);
      yield;
    }
    for (let i = prefix; i < keys.length; i += slice) {
      pool.publishBatch(keys.slice(i, i + slice), PAGE_BYTES, 0, request);
      yield;
    }
  }
  const running = Array.from({ length: callers }, (_, caller) => begin(caller));
  while (running.some((one) => one !== undefined)) {
    for (const [caller, one] of running.entries()) if (one?.next().done) running[caller] = begin(caller);
  }
  pool.verify();
  return hits / requested;
}

/**
 * Requests that end their conversation: no later one begins with the same blocks, without the last, which is only a
 * part of a block in most cases. A block's number stands for all that comes before it, too.
 */
function ends(trace: readonly string[][]): boolean[] {
  const later = new Set<string>();
  return trace
    .toReversed()
    .map((keys) => {
      const isEnd = !later.has(keys.at(-2) ?? (keys[0] as string));
      for (const key of keys) later.add(key);
      return isEnd;
    })
    .reverse();
}

withTrace(`trace: yield hits as its reference, however a request is said${suffix}`, (t) => {
  const trace = readTrace();
  for (const [pages, expected] of [
    [1000, 0.08],
    [10_000, 0.229],
    [30_000, 0.332],
  ] as const) {
    for (const how of [{}, { slice: 128 }, { slice: 128, callers: 8 }]) {
      const rate = serve(trace, pages, how);
      t.true(rate >= expected, `${rate} at ${pages} pages, ${JSON.stringify(how)}`);
    }
    const single = serve(trace, pages, { slice: 1 });
    t.true(single >= expected - 0.002, `${single} at ${pages} pages, key by key`);
  }
});

withTrace(`trace: yield hits at least as LRU, less .003, in pools of any size${suffix}`, (t) => {
  const trace = readTrace();
  for (const pages of SIZES) {
    const [rate, least] = [serve(trace, pages), replay(trace, pages, 'lru').rate - 0.003];
    t.true(rate >= least, `${rate} at ${pages} pages, LRU less .003 has ${least}`);
  }
});

withTrace(`trace: yield makes use of conversations that are said to be closed${suffix}`, (t) => {
  const trace = readTrace();
  const random = seededRandom(3);
  const hints = ends(trace).map((isEnd): RequestHint => (isEnd && random.u32() % 10 > 0 ? 'closed' : 0));
  const rate = serve(trace, 10_000, { hints });
  t.true(rate >= 0.31, `${rate}`);
});
