import type { PagePriority, RequestOptions } from '../../../src/core/index.js';

/** Order of eviction in plain arrays. It reads only the lengths of the pool's pages. */
export interface Order {
  /** Notes a call that uses or inserts pages. */
  begin?(keys: number, request: RequestOptions, isWrite: boolean): void;
  end?(): void;
  /** The history of a page that is about to be published, for `insert`. */
  recall?(key: string): number;
  insert(key: string, bytes: number, known: number): void;
  /** Adds a page that existed before a restart; default: `insert`. */
  adopt?(key: string, bytes: number): void;
  /** Forgets an evicted page, if it is remembered. */
  forget?(key: string): void;
  /** Notes a use; also of a pinned page if the order has `pin`. */
  use(key: string): void;
  /** Makes a page the newest one without a use; default: `use`. */
  renew?(key: string): void;
  /** Notes that a page is pinned; default: `remove`. */
  pin?(key: string): void;
  restore(key: string): void;
  /** Removes a page; a pinned one only if the order has `pin`. */
  remove(key: string): void;
  evict(key: string): void;
  victim(): string | undefined;
  keys(): string[];
  /** Notes the time; default: it does not matter. */
  tellTime?(nowMs: number): void;
  /** Notes that an unpinned page is expected in so many milliseconds; default: it does not matter. */
  expect?(key: string, inMs: number, newer: string | undefined): void;
}

interface Page {
  readonly units: number;
  readonly bytes: number;
  priority: PagePriority;
  isPinned: boolean;
}

/** Low pages, then those of another order, then high ones: all by the rules, in plain arrays. */
export class NaivePriorities implements Order {
  /** Number of high pages that have become normal because there were too many. */
  demoted = 0;
  private readonly pages = new Map<string, Page>();
  private readonly lists: { low: string[]; high: string[] } = { low: [], high: [] };

  constructor(
    private readonly normal: Order,
    private readonly capacityBytes: number,
    private readonly unitBytes: number,
  ) {}

  begin(keys: number, request: RequestOptions, isWrite: boolean): void {
    this.normal.begin?.(keys, request, isWrite);
  }

  end(): void {
    this.normal.end?.();
  }

  recall(key: string): number {
    return this.listOf(key) === undefined ? (this.normal.recall?.(key) ?? 0) : 0;
  }

  insert(key: string, bytes: number, known: number, priority: PagePriority = 'normal'): void {
    this.note(key, bytes, priority);
    if (priority === 'normal') {
      this.normal.insert(key, bytes, known);
      return;
    }
    this.normal.forget?.(key);
    this.enlist(key);
  }

  adopt(key: string, bytes: number): void {
    this.note(key, bytes, 'normal');
    this.adoptNormal(key);
  }

  use(key: string): void {
    if (this.listOf(key) !== undefined) this.useListed(key);
    else if (!this.page(key).isPinned || this.normal.pin) this.normal.use(key);
  }

  renew(key: string): void {
    if (this.listOf(key) !== undefined) this.useListed(key);
    else if (this.normal.renew) this.normal.renew(key);
    else this.use(key);
  }

  pin(key: string): void {
    this.page(key).isPinned = true;
    if (this.listOf(key) !== undefined) this.unlist(key);
    else if (this.normal.pin) this.normal.pin(key);
    else this.normal.remove(key);
  }

  restore(key: string): void {
    this.page(key).isPinned = false;
    if (this.listOf(key) !== undefined) this.enlist(key);
    else this.normal.restore(key);
  }

  remove(key: string): void {
    if (this.listOf(key) !== undefined) this.unlist(key);
    else if (!this.page(key).isPinned || this.normal.pin) this.normal.remove(key);
    this.pages.delete(key);
  }

  evict(key: string): void {
    if (this.listOf(key) !== undefined) this.unlist(key);
    else this.normal.evict(key);
    this.pages.delete(key);
  }

  tellTime(nowMs: number): void {
    this.normal.tellTime?.(nowMs);
  }

  expect(key: string, inMs: number, newer: string | undefined): void {
    if (this.listOf(key) === undefined && !this.page(key).isPinned) this.normal.expect?.(key, inMs, newer);
  }

  victim(): string | undefined {
    return this.lists.low[0] ?? this.normal.victim() ?? this.lists.high[0];
  }

  keys(): string[] {
    return [...this.lists.low, ...this.normal.keys(), ...this.lists.high];
  }

  setPriority(key: string, priority: PagePriority): void {
    const page = this.page(key);
    if (page.priority === priority) return;
    const { bytes, isPinned } = page;
    this.remove(key);
    this.note(key, bytes, priority).isPinned = isPinned;
    if (priority !== 'normal') {
      if (!isPinned) this.enlist(key);
      return;
    }
    this.adoptNormal(key);
    if (!isPinned) return;
    if (this.normal.pin) this.normal.pin(key);
    else this.normal.remove(key);
  }

  private adoptNormal(key: string): void {
    const { bytes } = this.page(key);
    if (this.normal.adopt) this.normal.adopt(key, bytes);
    else this.normal.insert(key, bytes, 0);
  }

  private note(key: string, bytes: number, priority: PagePriority): Page {
    const page = { bytes, units: Math.max(1, Math.ceil(bytes / this.unitBytes)), priority, isPinned: false };
    this.pages.set(key, page);
    return page;
  }

  private page(key: string): Page {
    return this.pages.get(key) as Page;
  }

  /** The list that the page is in unless it is pinned; undefined: the page is normal, or not there. */
  private listOf(key: string): string[] | undefined {
    const priority = this.pages.get(key)?.priority ?? 'normal';
    return priority === 'normal' ? undefined : this.lists[priority];
  }

  private enlist(key: string): void {
    this.listOf(key)?.push(key);
    const { high } = this.lists;
    const units = (): number => high.reduce((sum, one) => sum + this.page(one).units, 0);
    while (units() > Math.floor(this.capacityBytes / this.unitBytes / 2)) {
      const oldest = high.shift() as string;
      this.page(oldest).priority = 'normal';
      this.adoptNormal(oldest);
      this.demoted++;
    }
  }

  private unlist(key: string): void {
    const list = this.listOf(key) as string[];
    const index = list.indexOf(key);
    if (index >= 0) list.splice(index, 1);
  }

  private useListed(key: string): void {
    if (this.page(key).isPinned) return;
    this.unlist(key);
    this.listOf(key)?.push(key);
  }
}
