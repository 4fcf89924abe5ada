import type { RequestOptions } from '../../../src/core/index.js';
import { type Decides, NaiveDuel } from './naive-duel.js';
import { NaiveLruShadow } from './naive-lru-shadow.js';
import { CLASSES, half, learnedValues, STAGES } from './naive-values.js';

const LISTS = CLASSES * STAGES;
const GHOSTS_MIN = 16_384;
const BUCKET_MS = 8192;
const HINTS = { open: 1, closed: 2, 0: 0, 1: 1, 2: 2, 3: 3 } as const;

interface Entry {
  /** Bucket of the time at which the page is expected; Infinity: never again; undefined: nothing is expected. */
  expected?: number | undefined;
  hits: number;
  isLast: boolean;
  hint: number;
  /** Stage of the page's list, or of the list that it would be in if it were not pinned. */
  stage: number;
  /** Time of the last use. */
  tick: number;
  call: number;
  units: number;
  state: 'page' | 'pinned' | 'ghost';
}

interface Caller {
  /** The last page of the request so far, and the call that had it. */
  last: string | undefined;
  lastCall: number;
  firstCall: number;
  keys: number;
  /** The most keys of one of its reads, and of one of its writes. */
  longest: [number, number];
  isWrite: boolean;
}

const newCaller = (): Caller => ({
  last: undefined,
  lastCall: 0,
  firstCall: 0,
  keys: 0,
  longest: [0, 0],
  isWrite: false,
});

/**
 * The policy `yield` in plain arrays: the stage of a page is the list that holds it, never computed from its age.
 * Numbers stay below 2^53, so that they are exact.
 */
export class NaiveYield {
  /** Number of ghosts removed for younger ones; the number of times that old counts were halved follows. */
  expired = 0;
  halvings = 0;
  /** Number of awaited pages that were evicted. */
  awaitedEvictions = 0;
  private readonly entries = new Map<string, Entry>();
  private readonly pages: string[][] = Array.from({ length: LISTS }, () => []);
  private readonly pinned = new Set<Entry>();
  private readonly ghosts: string[][] = Array.from({ length: LISTS }, () => []);
  private readonly hits = new Array<number>(LISTS).fill(0);
  private readonly survived = new Array<number>(LISTS).fill(0);
  private values: number[] = [];
  private ranked: number[] = [];
  private readonly callers = new Map<number, Caller>();
  private readonly tickUnits: number;
  private tick = 1;
  private waitingUnits = 0;
  private requests = 0;
  private requested = 0;
  private learned = { pages: 0, tick: 0 };
  private halved = { pages: 0, tick: 0 };
  private ghostsMax = GHOSTS_MIN;
  private call = 0;
  private hint = 0;
  private caller = newCaller();
  private endsElsewhere = false;
  private mayRepeat = false;
  private isTold = false;
  private readonly goesOnWith = new Map<number, number>();
  private previous: string | undefined;
  private previousCall = 0;
  private unpinned: { key: string; call: number } | undefined;
  /** Awaited pages by bucket, first to go first. */
  private readonly awaited = new Map<number, string[]>();
  private nowMs = 0;
  private present = 0;
  private pace = { tick: 0, ms: 0, msPerTick: 0 };
  private readonly shadow = new NaiveLruShadow(1);
  private readonly duel = new NaiveDuel();

  constructor(
    capacityBytes: number,
    private readonly unitBytes: number,
  ) {
    this.tickUnits = Math.max(1, Math.floor(Math.floor(capacityBytes / unitBytes) / 64));
    this.learn();
  }

  /** What has come to decide, in order, each once. */
  get rivals(): ReadonlySet<Decides> {
    return this.duel.rivals;
  }

  begin(
    keys: number,
    { hint = 0, caller = 0, continues, endsElsewhere = false }: RequestOptions,
    isWrite: boolean,
  ): void {
    const state = this.callers.get(caller % 64) ?? newCaller();
    const isSlice = state.isWrite === isWrite ? state.keys >= state.longest[isWrite ? 1 : 0] : isWrite;
    const isContinued = continues ?? (state.last !== undefined && isSlice);
    if (!isContinued || this.waitingUnits >= (continues === true ? 1024 : 64) * this.tickUnits) this.advance();
    if (this.duel.judge(this.tick)) this.changeJudge();
    this.ghostsMax = Math.max(this.ghostsMax, keys, count([...this.pages, ...this.awaited.values()]) + GHOSTS_MIN);
    this.call++;
    this.hint = HINTS[hint];
    this.callers.set(caller % 64, state);
    this.caller = state;
    this.endsElsewhere = endsElsewhere;
    this.previous = state.last;
    this.previousCall = state.lastCall;
    if (!this.isPrevious('page', 'pinned', 'ghost')) this.previous = undefined;
    const longest = state.longest[isWrite ? 1 : 0];
    this.mayRepeat = isContinued && continues === undefined;
    this.isTold = continues === true;
    this.goesOnWith.set(this.call, isContinued ? this.previousCall : this.call);
    if (!isContinued) this.beginRequest();
    else if (this.mayRepeat && state.isWrite === isWrite) this.duel.beginRequest();
    state.keys = keys;
    state.isWrite = isWrite;
    state.longest[isWrite ? 1 : 0] = Math.max(longest, keys);
  }

  end(): void {
    this.caller.last = !this.endsElsewhere && this.isPrevious('page', 'pinned', 'ghost') ? this.previous : undefined;
    this.caller.lastCall = this.previousCall;
  }

  recall(key: string): number {
    const entry = this.entries.get(key);
    if (entry === undefined) return 0;
    const hits = this.isRepeated(entry) ? entry.hits : this.hit(entry);
    if (entry.state === 'ghost') this.shadow.leave(entry.tick, entry.units);
    return hits;
  }

  insert(key: string, bytes: number, hits: number): void {
    if (hits === 0) this.duel.count(0, false, false);
    const old = this.entries.get(key);
    if (old !== undefined) this.unlink(key);
    const entry = this.newEntry(bytes, hits);
    this.entries.set(key, entry);
    this.shadow.roomUnits += entry.units;
    this.note(entry);
    this.link(key, this.previous);
    this.follow(key);
  }

  adopt(key: string, bytes: number): void {
    const entry = { ...this.newEntry(bytes, 0), hint: 0 };
    this.waitingUnits += entry.units;
    this.advance();
    entry.tick = this.tick;
    this.entries.set(key, entry);
    this.shadow.roomUnits += entry.units;
    this.shadow.enter(this.tick, entry.units);
    this.link(key, undefined);
  }

  use(key: string): void {
    const entry = this.entry(key);
    if (this.isRepeated(entry)) return;
    const hits = this.hit(entry);
    this.shadow.leave(entry.tick, entry.units);
    this.unlink(key);
    Object.assign(entry, { hits, isLast: false, hint: this.hint, stage: 0, tick: this.tick, call: this.call });
    this.note(entry);
    if (entry.state === 'pinned') return;
    this.link(key, this.previous);
    this.follow(key);
  }

  renew(key: string): void {
    const entry = this.entry(key);
    this.waitingUnits += entry.units;
    this.advance();
    this.unlink(key);
    this.shadow.leave(entry.tick, entry.units);
    Object.assign(entry, { stage: 0, tick: this.tick });
    this.shadow.enter(this.tick, entry.units);
    if (entry.state === 'page') this.link(key, undefined);
  }

  pin(key: string): void {
    const entry = this.entry(key);
    this.unlink(key);
    entry.state = 'pinned';
    this.pinned.add(entry);
  }

  restore(key: string): void {
    const entry = this.entry(key);
    this.shadow.leave(entry.tick, entry.units);
    Object.assign(entry, { state: 'page', stage: 0, tick: this.tick });
    this.shadow.enter(this.tick, entry.units);
    this.pinned.delete(entry);
    const last = this.unpinned;
    const isThere = last !== undefined && this.entries.get(last.key)?.call === last.call;
    const isNext = isThere && this.continues(entry.call, last.call);
    this.link(key, isNext ? last.key : undefined);
    this.unpinned = { key, call: entry.call };
  }

  remove(key: string): void {
    const entry = this.entry(key);
    this.shadow.leave(entry.tick, entry.units);
    this.shadow.roomUnits -= entry.units;
    this.discard(key);
  }

  forget(key: string): void {
    if (this.entries.get(key)?.state === 'ghost') this.discard(key);
  }

  evict(key: string): void {
    const entry = this.entry(key);
    if (entry.expected !== undefined) this.awaitedEvictions++;
    this.unlink(key);
    entry.state = 'ghost';
    this.shadow.roomUnits -= entry.units;
    at(this.ghosts, listOf(entry)).push(key);
    while (count(this.ghosts) > this.ghostsMax) this.expireGhost();
  }

  victim(): string | undefined {
    const ended = this.awaited.get(Number.POSITIVE_INFINITY)?.[0];
    if (ended !== undefined) return ended;
    const last = Math.max(...[...this.awaited].filter(([, keys]) => keys.length > 0).map(([bucket]) => bucket));
    const other = this.victimOfLists();
    if (!Number.isFinite(last)) return other;
    if (other !== undefined && !this.isLater(last, other)) return other;
    return this.awaited.get(last)?.[0];
  }

  keys(): string[] {
    const awaited = [...this.awaited].sort(([a], [b]) => b - a).flatMap(([, keys]) => keys);
    const lists = [...this.ranked];
    if (this.duel.decides === 'last use') lists.sort((a, b) => (b % STAGES) - (a % STAGES) || a - b);
    return [...awaited, ...lists.flatMap((list) => at(this.pages, list))];
  }

  tellTime(nowMs: number): void {
    if (nowMs <= this.nowMs) return;
    this.nowMs = nowMs;
    this.present = Math.floor(nowMs / BUCKET_MS);
    for (const bucket of [...this.awaited.keys()].sort((a, b) => a - b)) {
      if (bucket > this.present) continue;
      for (const key of [...ofMap(this.awaited, bucket)]) this.putBack(key);
    }
    const ticks = this.tick - this.pace.tick;
    if (ticks < 16) return;
    const pace = (nowMs - this.pace.ms) / ticks;
    const { msPerTick } = this.pace;
    const known = this.pace.ms > 0;
    this.pace = { tick: this.tick, ms: nowMs, msPerTick: !known ? 0 : msPerTick === 0 ? pace : (msPerTick + pace) / 2 };
  }

  expect(key: string, inMs: number, newer: string | undefined): void {
    this.duel.hasExpectations = true;
    const entry = this.entry(key);
    if (this.duel.decides !== 'expectations' || entry.state !== 'page') return;
    this.unlink(key);
    const inBuckets = Math.min(Math.floor((this.nowMs + inMs) / BUCKET_MS), this.present + 253);
    const bucket = inMs === Number.POSITIVE_INFINITY ? inMs : inBuckets;
    if (bucket <= this.present) {
      at(this.pages, listOf(entry)).push(key);
      return;
    }
    entry.expected = bucket;
    const keys = this.awaited.get(bucket) ?? [];
    this.awaited.set(bucket, keys);
    const index = newer === undefined ? -1 : keys.indexOf(newer);
    keys.splice(index < 0 ? keys.length : index, 0, key);
  }

  private victimOfLists(): string | undefined {
    const filled = this.ranked.filter((list) => at(this.pages, list).length > 0);
    if (this.duel.decides === 'last use') return this.leastRecent(filled);
    const limit = 8 * at(this.values, filled[0] ?? 0);
    const heads = filled.filter((list) => 7 * at(this.values, list) <= limit).map((list) => at(this.pages, list)[0]);
    const oldest = Math.min(...heads.map((key) => this.entry(key as string).tick));
    return heads.find((key) => this.entry(key as string).tick === oldest);
  }

  /** The page used longest ago; of one age, last pages of requests first, then those with fewest hits. */
  private leastRecent(filled: readonly number[]): string | undefined {
    const oldest = Math.max(...filled.map((list) => list % STAGES));
    const heads = filled.filter((list) => list % STAGES === oldest).map((list) => at(this.pages, list)[0] as string);
    const rank = (key: string): number => {
      const { isLast, hits, hint } = this.entry(key);
      return (isLast ? 0 : 24) + hits * 8 + hint;
    };
    return heads.sort((a, b) => this.entry(a).tick - this.entry(b).tick || rank(a) - rank(b))[0];
  }

  private isLater(bucket: number, other: string): boolean {
    if (this.pace.msPerTick === 0) return false;
    const ticks = ((bucket - this.present) * BUCKET_MS) / this.pace.msPerTick;
    return ticks * 4 * at(this.values, listOf(this.entry(other))) > 2 ** 32;
  }

  private putBack(key: string): void {
    this.unlink(key);
    at(this.pages, listOf(this.entry(key))).push(key);
  }

  private changeJudge(): void {
    if (this.duel.decides === 'expectations') return;
    const ended = this.awaited.get(Number.POSITIVE_INFINITY) ?? [];
    const others = [...this.awaited.keys()].filter(Number.isFinite).sort((a, b) => b - a);
    for (const key of [...ended, ...others.flatMap((bucket) => [...ofMap(this.awaited, bucket)])]) this.putBack(key);
  }

  /** Removes what is known of a page or ghost. */
  private discard(key: string): void {
    this.unlink(key);
    this.pinned.delete(this.entry(key));
    this.entries.delete(key);
  }

  private entry(key: string): Entry {
    return this.entries.get(key) as Entry;
  }

  private newEntry(bytes: number, hits: number): Entry {
    const units = Math.max(1, Math.ceil(bytes / this.unitBytes));
    return { hits, isLast: false, hint: this.hint, stage: 0, tick: this.tick, call: this.call, units, state: 'page' };
  }

  private isPrevious(...states: readonly Entry['state'][]): boolean {
    const entry = this.previous === undefined ? undefined : this.entries.get(this.previous);
    return entry !== undefined && states.includes(entry.state) && entry.call === this.previousCall;
  }

  private beginRequest(): void {
    this.requests++;
    this.duel.beginRequest();
    this.caller.firstCall = this.call;
    this.goesOnWith.set(this.call, this.call);
    if (this.previous !== undefined && this.isPrevious('page', 'pinned')) this.markLast(this.previous);
    this.previous = undefined;
  }

  private isRepeated({ call }: Entry): boolean {
    return call === this.call || (this.isTold && this.continues(this.call, call));
  }

  /** Whether a call continues another one; known for the last 64 calls. */
  private continues(call: number, other: number): boolean {
    let current = call;
    for (let i = 0; i < 64; i++) {
      if (current === other) return true;
      const before = current > this.call - 64 ? this.goesOnWith.get(current) : undefined;
      if (before === undefined || before === current) return false;
      current = before;
    }
    return false;
  }

  /** Counts a hit; returns the page's number of hits. */
  private hit(entry: Entry): number {
    const isRepeat = this.mayRepeat && entry.call >= this.caller.firstCall;
    this.mayRepeat = false;
    if (isRepeat) this.beginRequest();
    this.duel.count(entry.units, entry.state !== 'ghost', this.shadow.holds(entry.tick));
    add(this.hits, listOf(entry), 1);
    return Math.min(2, entry.hits + 1);
  }

  private note(entry: Entry): void {
    this.mayRepeat = false;
    this.shadow.enter(this.tick, entry.units);
    this.waitingUnits += entry.units;
    this.requested++;
    this.learned.pages++;
    this.halved.pages++;
  }

  private follow(key: string): void {
    this.previous = key;
    this.previousCall = this.call;
  }

  private markLast(key: string): void {
    const entry = this.entry(key);
    if (entry.expected === undefined) this.unlink(key);
    entry.isLast = true;
    if (entry.state === 'page' && entry.expected === undefined) this.link(key, undefined);
  }

  private link(key: string, newer: string | undefined): void {
    const list = at(this.pages, listOf(this.entry(key)));
    const isFirst = newer !== undefined && newer !== key && this.entries.get(newer)?.state === 'ghost';
    const index = newer === undefined ? -1 : isFirst ? 0 : list.indexOf(newer);
    list.splice(index < 0 ? list.length : index, 0, key);
  }

  /** Removes a page from its list; a pinned page is in none. */
  private unlink(key: string): void {
    const entry = this.entry(key);
    if (entry.state === 'pinned') return;
    if (entry.expected !== undefined) {
      const keys = ofMap(this.awaited, entry.expected);
      keys.splice(keys.indexOf(key), 1);
      entry.expected = undefined;
      return;
    }
    const list = at(entry.state === 'ghost' ? this.ghosts : this.pages, listOf(entry));
    list.splice(list.indexOf(key), 1);
  }

  private expireGhost(): void {
    const oldest = Math.max(
      ...this.ranked.filter((list) => at(this.ghosts, list).length > 0).map((list) => list % STAGES),
    );
    const list = this.ghosts.findIndex((keys, i) => i % STAGES === oldest && keys.length > 0);
    this.entries.delete(at(this.ghosts, list).shift() as string);
    add(this.survived, list, 1);
    this.expired++;
  }

  private advance(): void {
    for (; this.waitingUnits >= this.tickUnits; this.waitingUnits -= this.tickUnits) {
      this.tick++;
      let stage = 0;
      while (stage < STAGES - 2 && this.tick % 2 ** (stage + 1) === 0) stage++;
      for (; stage >= 0; stage--) for (let i = stage; i < LISTS; i += STAGES) this.age(i);
    }
    if (this.halved.pages >= 32_768 && this.tick - this.halved.tick >= 2048) {
      this.halved = { pages: 0, tick: this.tick };
      this.halvings++;
      for (const counts of [this.hits, this.survived]) for (const i of counts.keys()) counts[i] = half(at(counts, i));
      this.requests = half(this.requests);
      this.requested = half(this.requested);
    }
    if (this.learned.pages >= 1024 && this.tick - this.learned.tick >= 8) {
      this.learned = { pages: 0, tick: this.tick };
      this.learn();
    }
  }

  private age(list: number): void {
    for (const entry of this.pinned) if (listOf(entry) === list) entry.stage++;
    for (const key of [...this.awaited.values()].flat()) {
      const entry = this.entry(key);
      if (listOf(entry) === list) entry.stage++;
    }
    for (const lists of [this.pages, this.ghosts]) {
      if (at(lists, list).length === 0) continue;
      const keys = at(lists, list).splice(0);
      add(this.survived, list, keys.length);
      for (const key of keys) this.entry(key).stage++;
      at(lists, list + 1).push(...keys);
    }
  }

  private learn(): void {
    const weight = Math.max(20, 8 * Math.floor(this.requested / Math.max(1, this.requests)));
    const risk = this.hits.map(
      (hits, i) => 2 * (hits + at(this.survived, i)) + at(this.pages, i).length + at(this.ghosts, i).length,
    );
    this.values = learnedValues(this.hits, risk, weight);
    this.ranked = Array.from({ length: LISTS }, (_, i) => i).sort(
      (a, b) => at(this.values, a) - at(this.values, b) || (b % STAGES) - (a % STAGES) || a - b,
    );
  }
}

function listOf({ hits, isLast, hint, stage }: Entry): number {
  return (hits * 8 + (isLast ? 4 : 0) + hint) * STAGES + stage;
}

function count(lists: readonly (readonly string[])[]): number {
  return lists.reduce((sum, { length }) => sum + length, 0);
}

function at<T>(values: readonly T[], index: number): T {
  return values[index] as T;
}

function add(values: number[], index: number, by: number): void {
  values[index] = at(values, index) + by;
}

function ofMap<K, V>(values: ReadonlyMap<K, V>, key: K): V {
  return values.get(key) as V;
}
