import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { ExactLru } from '../../src/cli/replay.js';

/** The same rule with a Map, which keeps the order of insertion. */
function naiveRate(requests: readonly (readonly number[])[], capacity: number): number {
  const pages = new Map<number, true>();
  let [hits, asked] = [0, 0];
  for (const ids of requests) {
    const firstMiss = ids.findIndex((id) => !pages.has(id));
    hits += firstMiss < 0 ? ids.length : firstMiss;
    asked += ids.length;
    for (const id of ids) {
      pages.delete(id);
      pages.set(id, true);
      if (pages.size > capacity) pages.delete(pages.keys().next().value as number);
    }
  }
  return hits / asked;
}

test('exact LRU: random requests hit what the naive model hits, at every capacity', (t) => {
  const seed = Date.now() >>> 0;
  const random = seededRandom(seed);
  const requests = Array.from({ length: 3_000 }, () => {
    const first = random.u32() % 200;
    return Array.from(
      { length: 1 + (random.u32() % 40) },
      (_, i) => first * 1_000_003 + i * (random.u32() % 8 === 0 ? 7 : 1),
    );
  });
  for (const capacity of [1, 10, 100, 1_000, Number.POSITIVE_INFINITY]) {
    const lru = new ExactLru(capacity);
    for (const request of requests) lru.request(request);
    t.is(lru.prefixHitRate, naiveRate(requests, capacity), `seed ${seed}, capacity ${capacity}`);
    t.is(lru.uniquePages, new Set(requests.flat()).size);
  }
});

test('exact LRU: nothing asked for is a rate of 0', (t) => {
  t.is(new ExactLru(10).prefixHitRate, 0);
});
