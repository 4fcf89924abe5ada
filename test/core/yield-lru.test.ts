import test from 'ava';
import { type RandomSource, seededRandom } from '../../src/base/environment/random.js';
import {
  type EvictionPolicy,
  type PlacementRequest,
  PlacementSimulation,
  PoolAllocator,
  type RequestOptions,
} from '../../src/core/index.js';
import { freshCore } from '../_support/core/binaries.js';
import { LOADS } from '../_support/core/loads.js';

const PAGE_BYTES = 4096;
const NEVER = Number.POSITIVE_INFINITY;

function poolOf(pages: number, policy: EvictionPolicy = 'yield'): PoolAllocator {
  return new PoolAllocator({ capacityBytes: pages * PAGE_BYTES, policy, core: freshCore() });
}

function pagesOf(name: string, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `${name}.${i}`);
}

/** Requests to a pool, which reads what is there and publishes the rest, and the number of each page's last one. */
class Driver {
  hits = 0;
  requests = 0;
  /** Evictions of a page that was used later than a sixteenth of all pages that were there. */
  lateEvictions = 0;
  evictions = 0;
  private readonly lastUses = new Map<string, number>();

  constructor(readonly pool: PoolAllocator) {}

  request(keys: readonly string[], request: RequestOptions = {}): void {
    this.requests++;
    const gap = this.pool.hasBatch(keys).indexOf(0);
    const prefix = gap < 0 ? keys.length : gap;
    this.hits += prefix;
    if (prefix > 0) this.pool.lookupBatch(keys.slice(0, prefix), { ...request, continues: false });
    const { evicted } =
      prefix === keys.length
        ? { evicted: [] }
        : this.pool.publishBatch(keys.slice(prefix), PAGE_BYTES, this.requests * 1000, {
            ...request,
            continues: prefix > 0,
          });
    if (evicted.length > 0) this.judge(evicted);
    for (const key of keys) this.lastUses.set(key, this.requests);
  }

  private judge(evicted: readonly string[]): void {
    const uses = [...this.pool.keys(), ...evicted].map((key) => this.lastUses.get(key) ?? this.requests);
    const limit = uses.sort((a, b) => a - b)[Math.floor(uses.length / 16) + evicted.length] as number;
    for (const key of evicted) if ((this.lastUses.get(key) ?? this.requests) > limit) this.lateEvictions++;
    this.evictions += evicted.length;
    for (const key of evicted) this.lastUses.delete(key);
  }
}

/** A request of one of eight sessions that grow by four pages each time, and end after 40 requests. */
function session(random: RandomSource, turns: number[]): string[] {
  const user = random.u32() % 8;
  const turn = turns[user] ?? 0;
  turns[user] = turn + 1;
  return pagesOf(`u${user}.${Math.floor(turn / 40)}`, 10 + 4 * (turn % 40));
}

/** Documents of four pages that come twice, the second time 39 requests after the first: what LRU keeps, others miss. */
function twice(i: number): string[] {
  return pagesOf(`d${i % 2 === 0 ? i : Math.max(0, i - 39)}`, 4);
}

test('yield: where LRU finds more, the pages used longest ago go once the trial is over', (t) => {
  const driver = new Driver(poolOf(250));
  const lru = new Driver(poolOf(250, 'lru'));
  const found = [driver, lru].map((one) => {
    for (let i = 0; i < 600; i++) one.request(twice(i));
    const trial = one.hits;
    Object.assign(one, { hits: 0, evictions: 0, lateEvictions: 0 });
    for (let i = 600; i < 2_000; i++) one.request(twice(i));
    one.pool.verify();
    return { trial, after: one.hits };
  });
  t.log(JSON.stringify(found), `late evictions: ${driver.lateEvictions} of ${driver.evictions}`);
  t.true((found[0]?.trial ?? 0) < (found[1]?.trial ?? 0), 'the trial costs something');
  t.is(found[0]?.after, found[1]?.after);
  t.true(driver.evictions > 1_000);
  t.is(driver.lateEvictions, 0);
});

test('yield: where LRU finds less, values go on deciding', (t) => {
  const driver = new Driver(poolOf(300));
  const lru = new Driver(poolOf(300, 'lru'));
  for (const one of [driver, lru]) {
    for (let i = 0; i < 8_000; i++) one.request(pagesOf(`d${i % 40}`, 10));
    one.pool.verify();
  }
  t.log(`late evictions: ${driver.lateEvictions} of ${driver.evictions}; hits: ${driver.hits}`);
  t.is(lru.hits, 0);
  t.true(driver.hits > 0.5 * 8_000 * 10, `${driver.hits}`);
  t.true(driver.lateEvictions > 0.5 * driver.evictions);
});

test('yield: where expectations are wrong, what was learned decides, and not the last use', (t) => {
  const requests = (LOADS['popular with scans'] as (count: number) => PlacementRequest[])(8_000);
  const rateOf = (policy: EvictionPolicy, isMisled: boolean): number => {
    const settings = { nodes: 1, poolBytes: 500 * PAGE_BYTES, pageBytes: PAGE_BYTES, policy };
    const simulation = new PlacementSimulation({ core: freshCore(), ...settings });
    // What is popular is told to be over, and scans to come back in a second.
    const told = (i: number) => (isMisled ? { returnsInMs: i % 10 === 9 ? 1_000 : NEVER } : {});
    for (const [i, request] of requests.entries()) simulation.request({ ...request, ...told(i) });
    const { prefixHits, pagesAsked } = simulation.counts();
    simulation.free();
    return prefixHits / pagesAsked;
  };
  const [lru, misled, untold] = [rateOf('lru', false), rateOf('yield', true), rateOf('yield', false)];
  t.log(`LRU ${lru.toFixed(4)}, misled ${misled.toFixed(4)}, untold ${untold.toFixed(4)}`);
  t.true(misled > (lru + untold) / 2);
});

test('yield: where LRU finds more, what callers expect is ignored', (t) => {
  const rates = [false, true].map((isMisled) => {
    const driver = new Driver(poolOf(400));
    const random = seededRandom(1);
    const turns: number[] = [];
    for (let i = 0; i < 900; i++) {
      const keys = session(random, turns);
      driver.request(keys);
      const isTold = random.u32() % 2 === 0;
      if (isMisled && isTold) driver.pool.expectBatch(keys, NEVER, driver.requests * 1000);
    }
    driver.pool.verify();
    return driver.hits;
  }) as [number, number];
  t.log(rates.join(', '));
  t.true(rates[1] > 0.9 * rates[0], `${rates}`);
});

for (const [said, options] of Object.entries({
  'as callers say': (i: number) => ({ continues: i > 0 }),
  'as it looks': () => ({}),
})) {
  test(`yield: all parts of a request are of one age, ${said}`, (t) => {
    // A tick is one page here.
    const pool = poolOf(64);
    const keys = pagesOf('a', 32);
    for (let i = 0; i < 32; i += 8)
      pool.publishBatch(keys.slice(i, i + 8), PAGE_BYTES, 0, { caller: 1, ...options(i) });
    for (let i = 0; i < 32; i++) pool.publish(`b${i}`, PAGE_BYTES);
    const evicted: string[] = [];
    for (let i = 0; i < 32; i++) {
      evicted.push(...pool.publishBatch([`c${i}`], PAGE_BYTES, 0, { caller: 2, continues: false }).evicted);
    }
    t.deepEqual(
      evicted.filter((key) => key.startsWith('a.')),
      keys.toReversed().slice(0, evicted.length),
    );
    pool.verify();
  });
}

test('yield: a request that never ends does not stop the clock', (t) => {
  const isOldGone = (pages: number, request: RequestOptions): boolean => {
    const pool = poolOf(64);
    for (let i = 0; i < pages; i++) pool.publishBatch([`a.${i}`], PAGE_BYTES, 0, request);
    pool.verify();
    return pool.hasBatch(pagesOf('a', 8)).every((isHere) => isHere === 0);
  };
  // Up to one turnover as it looks, and up to 16 as callers say, the head of the request stays.
  t.false(isOldGone(64 * 2 - 8, {}));
  t.true(isOldGone(64 * 6, {}));
  t.false(isOldGone(64 * 15, { continues: true }));
  t.true(isOldGone(64 * 40, { continues: true }));
});
