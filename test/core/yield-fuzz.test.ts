import test from 'ava';
import fc from 'fast-check';
import { type RandomSource, seededRandom } from '../../src/base/environment/random.js';
import {
  type PagePriority,
  PoolAllocator,
  type PublishRequest,
  type RequestHint,
  type RequestOptions,
} from '../../src/core/index.js';
import { BINARIES, freshCore } from '../_support/core/binaries.js';
import { NaivePriorities } from '../_support/core/naive-priorities.js';
import { NaiveYield } from '../_support/core/naive-yield.js';

/** Requests of a run of this file; a hundred times as many in a long one. */
const REQUESTS = Number(process.env.MESHCACHE_FUZZ_REQUESTS ?? 8000);
const REQUESTS_A_RUN = 400;
const RUNS = Math.ceil(REQUESTS / REQUESTS_A_RUN / BINARIES.length);
/** Times that as many runs are added until they have reached what they are there for. */
const PARTS_MAX_COUNT = 20;
const PAGE_BYTES = 100;
const PRIORITIES: readonly PagePriority[] = ['normal', 'normal', 'low', 'high'];
const WAITS_MS = [5_000, 20_000, 200_000, Number.POSITIVE_INFINITY];
const HINTS: readonly RequestHint[] = [0, 0, 0, 'open', 'closed', 3];

/** A pool of so many pages of one size, so that the model needs no allocator: both must decide alike at every step. */
class Pair {
  readonly pool: PoolAllocator;
  private readonly model: NaivePriorities;
  private readonly normal: NaiveYield;
  private readonly pins = new Map<string, number>();
  private readonly pages = new Set<string>();
  evictions = 0;
  /** Requests of each agent. */
  readonly turns: number[] = [];
  private nowMs = 0;

  constructor(
    private readonly capacity: number,
    core: ReturnType<typeof freshCore>,
    readonly hasPriorities = false,
  ) {
    const capacityBytes = capacity * PAGE_BYTES;
    this.pool = new PoolAllocator({ capacityBytes, policy: 'yield', core });
    this.normal = new NaiveYield(capacityBytes, 1);
    this.model = new NaivePriorities(this.normal, capacityBytes, 1);
  }

  publish(keys: readonly string[], request: PublishRequest): void {
    const evicted: string[] = [];
    this.model.begin(keys.length, request, true);
    for (const key of keys) this.publishOne(key, evicted, request.priority);
    this.model.end();
    const found = this.pool.publishBatch(keys, PAGE_BYTES, this.nowMs, request);
    same(found.evicted.join(), evicted.join(), 'evicted');
    this.evictions += evicted.length;
  }

  read(keys: readonly string[], request: RequestOptions, isReport: boolean): void {
    this.model.begin(keys.length, request, false);
    const here = keys.filter((key) => this.pages.has(key));
    for (const key of here) this.model.use(key);
    this.model.end();
    const found = isReport
      ? this.pool.touchBatch(keys, request)
      : this.pool.lookupBatch(keys, request).offsets.filter((offset) => offset >= 0).length;
    same(found, here.length, 'found');
  }

  pin(key: string): void {
    const isHere = this.pages.has(key);
    same(this.pool.pin(key), isHere, `pin ${key}`);
    if (!isHere) return;
    const pins = this.pins.get(key) ?? 0;
    if (pins === 0) this.model.pin(key);
    this.pins.set(key, pins + 1);
  }

  unpin(key: string): void {
    const pins = this.pins.get(key) ?? 0;
    same(this.pool.unpin(key), pins > 0, `unpin ${key}`);
    if (pins === 0) return;
    if (pins > 1) this.pins.set(key, pins - 1);
    else this.pins.delete(key);
    if (pins === 1) this.model.restore(key);
  }

  remove(key: string): void {
    if (this.pins.has(key)) return;
    const isHere = this.pages.delete(key);
    same(this.pool.remove(key), isHere, `remove ${key}`);
    if (isHere) this.model.remove(key);
  }

  renew(keys: readonly string[]): void {
    for (const key of keys) if (this.pages.has(key)) this.model.renew(key);
    this.pool.renewBatch(keys);
  }

  setPriority(keys: readonly string[], priority: PagePriority): void {
    for (const key of keys) if (this.pages.has(key)) this.model.setPriority(key, priority);
    this.pool.setPriorityBatch(keys, priority);
  }

  expect(keys: readonly string[], inMs: number): void {
    let newer: string | undefined;
    for (const key of keys) {
      if (!this.pages.has(key)) continue;
      if (!this.pins.has(key)) {
        this.model.tellTime(this.nowMs);
        this.model.expect(key, inMs, newer);
      }
      newer = key;
    }
    this.pool.expectBatch(keys, inMs, this.nowMs);
  }

  pass(ms: number): void {
    this.nowMs += ms;
  }

  evictNext(): void {
    this.model.tellTime(this.nowMs);
    const victim = this.model.victim();
    same(this.pool.evictNext(this.nowMs), victim ?? null, 'evicted next');
    if (victim !== undefined) this.drop(victim);
  }

  check(): void {
    this.pool.verify();
    const ordered = this.pool.keys().slice(0, this.pages.size - this.pins.size);
    same(ordered.join(), this.model.keys().join(), 'order');
  }

  private publishOne(key: string, evicted: string[], priority?: PagePriority): void {
    if (this.pins.has(key)) throw new Error('pinned pages are not published here');
    const known = this.model.recall(key);
    if (this.pages.delete(key)) this.model.remove(key);
    if (this.pages.size === this.capacity) {
      this.model.tellTime(this.nowMs);
      const victim = this.model.victim();
      if (victim === undefined) return;
      evicted.push(victim);
      this.drop(victim);
    }
    this.model.insert(key, PAGE_BYTES, known, priority);
    this.pages.add(key);
  }

  private drop(victim: string): void {
    this.model.evict(victim);
    this.pages.delete(victim);
  }

  get expired(): number {
    return this.normal.expired;
  }

  get halvings(): number {
    return this.normal.halvings;
  }

  prefixOf(keys: readonly string[]): number {
    const gap = keys.findIndex((key) => !this.pages.has(key));
    return gap < 0 ? keys.length : gap;
  }

  get rivals(): ReadonlySet<string> {
    return this.normal.rivals;
  }

  get awaitedEvictions(): number {
    return this.normal.awaitedEvictions;
  }

  get demoted(): number {
    return this.model.demoted;
  }

  isPinned(key: string): boolean {
    return this.pins.has(key);
  }
}

function same(found: unknown, expected: unknown, what: string): void {
  if (found !== expected) throw new Error(`${what}: ${String(found)}, the model has ${String(expected)}`);
}

/** A step in 30 bits: what is done, to which conversation, and from which page on. */
function step(pair: Pair, word: number): void {
  const kind = word & 15;
  const conversation = (word >>> 4) & 31;
  const first = (word >>> 9) & 7;
  const length = 1 + ((word >>> 12) & 15);
  const caller = (word >>> 16) & 3;
  const said = (word >>> 18) & 7;
  const request: RequestOptions = {
    hint: HINTS[((word >>> 21) & 7) % HINTS.length] as RequestHint,
    ...(caller < 3 ? { caller: caller * 65 } : {}),
    ...(said < 2 ? { continues: said === 0 } : {}),
    endsElsewhere: said === 2 || said === 0,
  };
  const keys = Array.from({ length }, (_, i) => keyOf(conversation, first + i));
  // A key twice in a call, now and then.
  if (kind === 1) keys.push(keys[0] as string);
  const key = keys[0] as string;
  pair.pass((word >>> 22) & 1023);
  const priority = pair.hasPriorities ? (PRIORITIES[(word >>> 24) & 3] as PagePriority) : 'normal';
  if (kind < 6) {
    const free = keys.filter((one) => !pair.isPinned(one));
    pair.publish(free, { ...request, priority });
  } else if (kind < 9) pair.read(keys, request, false);
  else if (kind === 9) pair.read(keys, request, true);
  else if (kind === 10) pair.pin(key);
  else if (kind < 13) pair.unpin(key);
  else if (kind === 13) pair.remove(key);
  else if (kind === 14 && pair.hasPriorities && ((word >>> 26) & 1) === 0) pair.setPriority(keys, priority);
  else if (kind === 14 && ((word >>> 27) & 1) === 0) pair.renew(keys);
  else if (kind === 14) pair.expect(keys, WAITS_MS[(word >>> 28) & 3] as number);
  else pair.evictNext();
}

/** The first three pages are the same for all conversations. */
function keyOf(conversation: number, index: number): string {
  return index < 3 ? `s${index}` : `c${conversation}.${index}`;
}

for (const name of BINARIES) {
  test(`pool: yield decides as the naive model over random requests (${name})`, (t) => {
    const core = freshCore(name);
    const words = fc.array(fc.nat({ max: 2 ** 30 - 1 }), { minLength: 50, maxLength: 2 * REQUESTS_A_RUN, size: 'max' });
    const sum = { steps: 0, evictions: 0, demoted: 0, awaited: 0 };
    const capacities = fc.constantFrom(1, 7, 30, 100, 200);
    const property = fc.property(capacities, words, fc.boolean(), (capacity, steps, hasPriorities) => {
      const pair = new Pair(capacity, core, hasPriorities);
      try {
        for (const [i, word] of steps.entries()) {
          step(pair, word);
          if (i % 16 === 0) pair.check();
        }
        pair.check();
        sum.steps += steps.length;
        sum.evictions += pair.evictions;
        sum.demoted += pair.demoted;
        sum.awaited += pair.awaitedEvictions;
      } finally {
        pair.pool.free();
      }
    });
    // A few runs may all have a pool in which nothing is awaited and evicted: then there are more of them.
    for (let part = 0; part < PARTS_MAX_COUNT && Math.min(sum.awaited, sum.demoted) <= RUNS; part++) {
      // Without shrinking, which takes minutes here; the seed is in the message.
      t.notThrows(() => fc.assert(property, { numRuns: RUNS, endOnFailure: true, includeErrorInReport: true }));
    }
    t.log(JSON.stringify(sum));
    t.true(sum.demoted > RUNS, 'high pages become too many');
    t.true(sum.evictions > sum.steps, 'the steps reach what they are there for');
    t.true(sum.awaited > RUNS, 'awaited pages are evicted');
  });

  test(`pool: yield decides as the naive model when old counts are halved (${name})`, (t) => {
    // 2,048 ticks are 512 pages here.
    const pair = new Pair(16, freshCore(name));
    for (let i = 0; i < 9000; i++) converse(pair, i, 3 * ((i * 7) % 5));
    pair.check();
    t.true(pair.halvings > 0);
  });

  test(`pool: yield decides as the naive model where LRU does better, whatever callers expect (${name})`, (t) => {
    const pair = new Pair(400, freshCore(name));
    const random = seededRandom(1);
    for (let i = 0; i < 1500; i++) {
      work(pair, random, i < 700);
      if (i % 300 === 0) pair.check();
    }
    pair.check();
    t.log([...pair.rivals].join());
    t.deepEqual([...pair.rivals], ['values', 'last use', 'expectations'], 'what decides, one after the other');
  });

  test(`pool: yield decides as the naive model when ghosts expire (${name})`, (t) => {
    const pair = new Pair(1500, freshCore(name));
    // Some conversations go on after so long that their ghosts may have expired.
    for (let i = 0; i < 16_000; i++) converse(pair, i, 3 * (i % 4 === 0 ? (i * 7) % 3000 : (i * 7) % 300));
    pair.check();
    t.true(pair.expired > 1000, `${pair.expired} ghosts expired`);
  });
}

/** A request of one of 8 agents, whose sessions of 40 requests grow. Misled: half of them are told to be the last. */
function work(pair: Pair, random: RandomSource, isMisled: boolean): void {
  const agent = random.u32() % 8;
  const turn = pair.turns[agent] ?? 0;
  pair.turns[agent] = turn + 1;
  const session = `a${agent}.${Math.floor(turn / 40)}`;
  const keys = Array.from({ length: 10 + 4 * (turn % 40) }, (_, j) => `${session}.${j}`);
  const caller = agent;
  const prefix = pair.prefixOf(keys);
  if (prefix > 0) pair.read(keys.slice(0, prefix), { caller }, false);
  if (prefix < keys.length) pair.publish(keys.slice(prefix), { caller });
  if (isMisled && random.u32() % 2 === 0) pair.expect(keys, Number.POSITIVE_INFINITY);
  pair.pass(1000);
}

/** The first of three requests of a conversation, or a later one of a conversation that began so much earlier. */
function converse(pair: Pair, i: number, back: number): void {
  const turn = i % 3;
  const conversation = turn === 0 ? i : i - turn - back;
  const keys = Array.from({ length: 8 + 3 * turn }, (_, j) => `c${conversation}.${j}`);
  if (turn > 0) pair.read(keys.slice(0, 8), {}, false);
  pair.publish(keys.slice(turn > 0 ? 8 : 0), i % 11 === 0 ? { hint: 'closed' } : {});
  if (i % 1500 === 0) pair.check();
}
