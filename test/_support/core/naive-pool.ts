import type { PagePriority, PoolAllocatorOptions, PoolAllocatorStats } from '../../../src/core/index.js';
import { NaivePriorities, type Order } from './naive-priorities.js';
import { NaiveYield } from './naive-yield.js';

interface Range {
  readonly offset: number;
  readonly size: number;
}

interface Page extends Range {
  readonly bytes: number;
  pins: number;
}

interface Waiting extends Range {
  readonly releaseMs: number;
}

class NaiveLru implements Order {
  private order: string[] = [];
  insert(key: string): void {
    this.order.push(key);
  }
  restore(key: string): void {
    this.order.push(key);
  }
  use(key: string): void {
    this.remove(key);
    this.order.push(key);
  }
  remove(key: string): void {
    this.order.splice(this.order.indexOf(key), 1);
  }
  evict(key: string): void {
    this.remove(key);
  }
  victim(): string | undefined {
    return this.order[0];
  }
  keys(): string[] {
    return [...this.order];
  }
}

interface S3Page {
  readonly bytes: number;
  frequency: number;
  isMain: boolean;
}

class NaiveS3Fifo implements Order {
  private readonly pages = new Map<string, S3Page>();
  private small: string[] = [];
  private main: string[] = [];
  private ghosts: { key: string; bytes: number }[] = [];
  private pagesMax = 0;

  constructor(private readonly capacityBytes: number) {}

  insert(key: string, bytes: number): void {
    const isMain = this.ghosts.some((ghost) => ghost.key === key);
    this.forget(key);
    this.pages.set(key, { bytes, frequency: 0, isMain });
    this.restore(key);
    this.pagesMax = Math.max(this.pagesMax, this.small.length + this.main.length);
  }
  forget(key: string): void {
    this.ghosts = this.ghosts.filter((ghost) => ghost.key !== key);
  }
  restore(key: string): void {
    (this.page(key).isMain ? this.main : this.small).push(key);
  }
  use(key: string): void {
    const page = this.page(key);
    page.frequency = Math.min(3, page.frequency + 1);
  }
  remove(key: string): void {
    const queue = this.page(key).isMain ? this.main : this.small;
    queue.splice(queue.indexOf(key), 1);
  }
  evict(key: string): void {
    this.remove(key);
    const { bytes, isMain } = this.page(key);
    if (!isMain) this.remember({ key, bytes: Math.max(1, bytes) });
  }
  victim(): string | undefined {
    for (;;) {
      const smallBytes = this.small.reduce((sum, key) => sum + this.page(key).bytes, 0);
      const isSmallDue = smallBytes >= Math.floor(this.capacityBytes / 10) || this.main.length === 0;
      const key = isSmallDue && this.small.length > 0 ? this.small[0] : this.main[0];
      if (key === undefined) return undefined;
      const page = this.page(key);
      if (page.frequency < (page.isMain ? 1 : 2)) return key;
      this.remove(key);
      page.frequency = page.isMain ? page.frequency - 1 : 0;
      page.isMain = true;
      this.main.push(key);
    }
  }
  keys(): string[] {
    return [...this.small, ...this.main];
  }

  private page(key: string): S3Page {
    return this.pages.get(key) as S3Page;
  }
  private remember(ghost: { key: string; bytes: number }): void {
    const maxBytes = this.capacityBytes - Math.floor(this.capacityBytes / 10);
    if (ghost.bytes > maxBytes) return;
    this.ghosts.push(ghost);
    const sum = (): number => this.ghosts.reduce((total, { bytes }) => total + bytes, 0);
    while (sum() > maxBytes || this.ghosts.length > this.pagesMax) this.ghosts.shift();
  }
}

type Fields = Required<Omit<PoolAllocatorOptions, 'core' | 'tenants' | 'keepsHeads'>>;

/** The real pool's answer to a publish, for the model to judge. */
export interface PublishAnswer {
  readonly offset: number;
  readonly evicted: readonly string[];
  readonly earlyReuses: number;
  /** The priority that was asked for. Default: `normal`. */
  readonly priority?: PagePriority;
}

/**
 * The pool's rules in lists that are searched from end to end. The place of a page is the allocator's own choice, so
 * the model gets the answers and judges them; it knows everything else by itself. Throws at the first contradiction.
 */
export class NaivePool {
  private pages = new Map<string, Page>();
  private held = new Map<string, Page>();
  private waiting: Waiting[] = [];
  private readonly order: NaivePriorities;
  private nowMs = 0;
  private evictions = 0;
  private earlyReuses = 0;

  constructor(private readonly options: Fields) {
    const { policy, capacityBytes, alignmentBytes } = options;
    const normal: Order =
      policy === 'lru'
        ? new NaiveLru()
        : policy === 's3fifo'
          ? new NaiveS3Fifo(capacityBytes)
          : new NaiveYield(capacityBytes, alignmentBytes);
    this.order = new NaivePriorities(normal, capacityBytes, alignmentBytes);
  }

  /** Number of high pages that have become normal because there were too many. */
  get demoted(): number {
    return this.order.demoted;
  }

  publish(key: string, bytes: number, nowMs: number, answer: PublishAnswer): void {
    this.begin(nowMs);
    this.order.begin(1, {}, true);
    this.publishIn(key, bytes, answer);
    this.order.end();
  }

  /** Restores a page; returns whether it was accepted. */
  restore(key: string, bytes: number, offset: number): boolean {
    const { capacityBytes, segmentBytes } = this.options;
    const size = this.sizeOf(bytes);
    const end = offset + size;
    const isInside = end <= capacityBytes && offset % segmentBytes <= segmentBytes - size;
    const isFree = this.ranges().every((range) => range.offset >= end || range.offset + range.size <= offset);
    if (!isInside || !isFree || this.pages.has(key)) return false;
    this.place(key, { offset, size, bytes, pins: 0 });
    this.order.adopt(key, bytes);
    return true;
  }

  /** The page that must be evicted next, or null. */
  evictNext(nowMs: number): string | null {
    this.begin(nowMs);
    const victim = this.isQuarantineClosed() ? undefined : this.order.victim();
    if (victim !== undefined) this.drop(victim);
    return victim ?? null;
  }

  /** The place of a page; undefined for a miss. */
  lookup(key: string): { offset: number; bytes: number } | undefined {
    const page = this.pages.get(key);
    this.order.begin(1, {}, false);
    if (page !== undefined) this.order.use(key);
    this.order.end();
    return page && { offset: page.offset, bytes: page.bytes };
  }

  has(key: string): boolean {
    return this.pages.has(key);
  }

  remove(key: string, nowMs: number): boolean {
    this.begin(nowMs);
    return this.removePage(key) !== 'absent';
  }

  pin(key: string): boolean {
    const page = this.pages.get(key);
    if (page === undefined) return false;
    if (page.pins++ > 0) return true;
    this.order.pin(key);
    return true;
  }

  setPriority(key: string, priority: PagePriority): void {
    if (this.pages.has(key)) this.order.setPriority(key, priority);
  }

  unpin(key: string): boolean {
    const page = this.pages.get(key) ?? this.held.get(key);
    if (page === undefined || page.pins === 0) return false;
    if (--page.pins > 0) return true;
    if (this.held.delete(key)) this.giveBack(page);
    else this.order.restore(key);
    return true;
  }

  clear(nowMs: number, slotsInOrder: readonly string[]): void {
    this.begin(nowMs);
    for (const key of slotsInOrder) this.removePage(key);
  }

  keys(): { ordered: string[]; pinned: Set<string> } {
    const pinned = [...this.pages].filter(([, page]) => page.pins > 0).map(([key]) => key);
    return { ordered: this.order.keys(), pinned: new Set(pinned) };
  }

  checkStats(stats: PoolAllocatorStats): void {
    const { alignmentBytes, capacityBytes } = this.options;
    const live = [...this.pages.values()];
    const usedBytes = live.reduce((sum, page) => sum + page.bytes, 0);
    const quarantinedBytes = sizes([...this.waiting, ...this.held.values()]);
    const expected = {
      entries: live.length,
      usedBytes,
      quarantinedBytes,
      freeBytes: capacityBytes - sizes(live) - quarantinedBytes,
      paddingBytes: sizes(live) - usedBytes,
      evictions: this.evictions,
      earlyReuses: this.earlyReuses,
      pinned: live.filter((page) => page.pins > 0).length,
      largestFreeBytes: Math.max(0, ...this.gaps()),
      capacityBytes,
    };
    for (const [name, value] of Object.entries(expected)) {
      expect(stats[name as keyof PoolAllocatorStats] === value, `${name} should be ${value} (unit ${alignmentBytes})`);
    }
  }

  private publishIn(key: string, bytes: number, answer: PublishAnswer): void {
    const size = this.sizeOf(bytes);
    const isPinned = this.held.has(key) || (this.pages.get(key)?.pins ?? 0) > 0;
    const known = isPinned ? 0 : this.order.recall(key);
    if (!this.held.has(key)) this.removePage(key);
    if (isPinned || size > this.options.segmentBytes) {
      expect(answer.offset === -1 && answer.evicted.length === 0, 'a publish that must be refused at once was not');
      return;
    }
    for (const victim of answer.evicted) this.evict(victim, size);
    this.releaseEarly(answer.earlyReuses);
    if (answer.offset === -1) {
      this.judgeRefusal(size);
      return;
    }
    this.place(key, { offset: answer.offset, size, bytes, pins: 0 });
    this.order.insert(key, bytes, known, answer.priority);
  }

  private begin(nowMs: number): void {
    this.nowMs = nowMs;
    while (this.waiting[0] !== undefined && this.waiting[0].releaseMs <= nowMs) this.waiting.shift();
  }

  private sizeOf(bytes: number): number {
    const { alignmentBytes } = this.options;
    return Math.max(1, Math.ceil(bytes / alignmentBytes)) * alignmentBytes;
  }

  private removePage(key: string): 'absent' | 'held' | 'removed' {
    const page = this.pages.get(key);
    if (page === undefined) return 'absent';
    this.pages.delete(key);
    if (page.pins > 0) {
      this.held.set(key, page);
      this.order.remove(key);
      return 'held';
    }
    this.order.remove(key);
    this.giveBack(page);
    return 'removed';
  }

  private evict(key: string, wanted: number): void {
    expect(this.order.victim() === key, `${key} was evicted out of order`);
    expect(!this.gaps().some((gap) => gap >= this.sureFit(wanted)), `${key} was evicted although there was room`);
    expect(!this.isQuarantineClosed(), `${key} was evicted although the quarantine was at its limit`);
    this.drop(key);
  }

  private isQuarantineClosed(): boolean {
    const { neverReuseEarly, quarantineMs, quarantineMaxBytes } = this.options;
    return neverReuseEarly && quarantineMs > 0 && sizes(this.waiting) >= quarantineMaxBytes;
  }

  private drop(key: string): void {
    this.order.evict(key);
    const page = this.pages.get(key) as Page;
    this.pages.delete(key);
    this.evictions++;
    this.giveBack(page);
  }

  private giveBack(page: Page): void {
    const { quarantineMs, quarantineMaxBytes, neverReuseEarly } = this.options;
    if (quarantineMs === 0) return;
    this.waiting.push({ offset: page.offset, size: page.size, releaseMs: this.nowMs + quarantineMs });
    while (!neverReuseEarly && sizes(this.waiting) > quarantineMaxBytes) {
      this.waiting.shift();
      this.earlyReuses++;
    }
  }

  /** With nothing left to evict, the quarantine may be cut short; only the allocator knows how far. */
  private releaseEarly(total: number): void {
    if (total === this.earlyReuses) return;
    expect(total > this.earlyReuses && !this.options.neverReuseEarly, 'earlyReuses is wrong');
    expect(this.order.victim() === undefined, 'the quarantine was cut short although there was a page to evict');
    for (; this.earlyReuses < total; this.earlyReuses++) {
      expect(this.waiting.shift() !== undefined, 'more ranges were reused early than were waiting');
    }
  }

  private judgeRefusal(size: number): void {
    const { neverReuseEarly } = this.options;
    expect(!this.gaps().some((gap) => gap >= this.sureFit(size)), 'refused although there was room');
    if (this.isQuarantineClosed()) return;
    if (this.order.victim() === undefined && (neverReuseEarly || this.waiting.length === 0)) return;
    const fixed = [...this.held.values(), ...[...this.pages.values()].filter((page) => page.pins > 0)];
    const withheld = neverReuseEarly ? this.waiting : [];
    const isHopeless = !this.gapsBetween([...fixed, ...withheld]).some((gap) => gap >= size);
    expect(isHopeless, 'refused although evicting would have made room');
  }

  private place(key: string, page: Page): void {
    const { alignmentBytes, capacityBytes, segmentBytes } = this.options;
    const end = page.offset + page.size;
    expect(page.offset >= 0 && end <= capacityBytes && page.offset % alignmentBytes === 0, `offset ${page.offset}`);
    expect(Math.floor(page.offset / segmentBytes) === Math.floor((end - 1) / segmentBytes), 'crosses a segment');
    for (const other of this.ranges()) {
      const isApart = other.offset >= end || other.offset + other.size <= page.offset;
      expect(isApart, `${page.offset}..${end} overlaps ${other.offset}..${other.offset + other.size}`);
    }
    this.pages.set(key, page);
  }

  private ranges(): Range[] {
    return [...this.pages.values(), ...this.held.values(), ...this.waiting];
  }

  private gaps(): number[] {
    return this.gapsBetween(this.ranges());
  }

  private gapsBetween(ranges: readonly Range[]): number[] {
    const { capacityBytes, segmentBytes } = this.options;
    const sorted = ranges.toSorted((a, b) => a.offset - b.offset);
    const gaps: number[] = [];
    let next = 0;
    for (let start = 0; start < capacityBytes; start += segmentBytes) {
      const end = Math.min(capacityBytes, start + segmentBytes);
      let at = start;
      for (let range = sorted[next]; range !== undefined && range.offset < end; range = sorted[++next]) {
        if (range.offset > at) gaps.push(range.offset - at);
        at = range.offset + range.size;
      }
      if (end > at) gaps.push(end - at);
    }
    return gaps;
  }

  /** A size for which a free range is always found: bins are exact below 128 units, then 64 for each power of two. */
  private sureFit(size: number): number {
    const units = size / this.options.alignmentBytes;
    if (units < 128) return size;
    const step = 2 ** (Math.floor(Math.log2(units)) - 6);
    return (Math.floor(units / step) + 1) * step * this.options.alignmentBytes;
  }
}

function sizes(ranges: readonly Range[]): number {
  return ranges.reduce((sum, { size }) => sum + size, 0);
}

function expect(holds: boolean, text: string): void {
  if (!holds) throw new Error(`model: ${text}`);
}
