import { existsSync, readFileSync } from 'node:fs';
import test from 'ava';
import { type EvictionPolicy, PoolAllocator } from '../../src/core/index.js';
import { freshCore } from './binaries.js';

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
