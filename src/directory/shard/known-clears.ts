import { assertAtMost, assertEqual } from '../../base/assert.js';
import { CLEAR_MAX_PREFIXES, CLEARED_ORIGINS_MAX_COUNT } from '../../base/limits.js';

/** Version of copies that do not say when their content was set: those from the object store. */
export const UNDATED_VERSION = 1;

/** A clear: everything that a node has set before a version is void, and so is every copy of it. */
export interface Clear {
  /** Origin of the node that has set the pages, see `originOf`; 0: any node. */
  readonly origin: number;
  /** Contents older than this version are void. */
  readonly voidBelow: number;
  /** Prefixes of the keys that are cleared; undefined: all keys. */
  readonly prefixes: readonly string[] | undefined;
}

/**
 * The clears that a node knows of: its own, and those that it has heard of. Clears never lapse. If there are too many,
 * the earliest ones are widened: first to all keys, then to the copies of all nodes. Cleared pages thus stay void, and
 * some pages that were not cleared may become misses.
 */
export class KnownClears {
  /** Origin -> version below which everything is void. */
  readonly #all = new Map<number, number>();
  /**
   * Origin -> prefix -> version below which pages with that prefix are void. The prefixes of an origin are in the order
   * in which they were last noted.
   */
  readonly #some = new Map<number, Map<string, number>>();
  #prefixCount = 0;
  /** Version below which the copies of any node are void. */
  #rest = 0;

  get isEmpty(): boolean {
    return this.#all.size === 0 && this.#some.size === 0 && this.#rest === 0;
  }

  /** Notes a clear; false: it is known already. */
  note({ origin, voidBelow, prefixes }: Clear): boolean {
    if (voidBelow <= this.#allBelow(origin)) return false;
    if (origin === 0) this.#noteRest(voidBelow);
    else if (prefixes === undefined) this.#noteAll(origin, voidBelow);
    else return this.#noteSome(origin, voidBelow, prefixes);
    return true;
  }

  /**
   * Whether a copy of a page of this version is void. `setBy` is the origin that the copy names; 0: it is no copy,
   * which is never void here. Undated copies are never void here either.
   */
  isVoid(key: string, version: number, setBy: number): boolean {
    if (setBy === 0 || version <= UNDATED_VERSION || this.isEmpty) return false;
    if (version < this.#allBelow(setBy)) return true;
    for (const [prefix, below] of this.#some.get(setBy) ?? [])
      if (version < below && key.startsWith(prefix)) return true;
    return false;
  }

  /** Yields all clears, merged into as few as possible. */
  *[Symbol.iterator](): Generator<Clear, void> {
    if (this.#rest > 0) yield { origin: 0, voidBelow: this.#rest, prefixes: undefined };
    for (const [origin, voidBelow] of this.#all) yield { origin, voidBelow, prefixes: undefined };
    for (const [origin, belowOf] of this.#some) {
      const prefixesOf = new Map<number, string[]>();
      for (const [prefix, below] of belowOf) {
        const others = prefixesOf.get(below);
        if (others === undefined) prefixesOf.set(below, [prefix]);
        else others.push(prefix);
      }
      for (const [voidBelow, prefixes] of prefixesOf) yield { origin, voidBelow, prefixes };
    }
  }

  /** Forgets all clears, because they come from a clock that was ahead. */
  clear(): void {
    this.#all.clear();
    this.#some.clear();
    this.#prefixCount = 0;
    this.#rest = 0;
  }

  #allBelow(origin: number): number {
    return Math.max(this.#rest, this.#all.get(origin) ?? 0);
  }

  #noteSome(origin: number, voidBelow: number, prefixes: readonly string[]): boolean {
    const belowOf = this.#some.get(origin) ?? new Map<string, number>();
    const news = prefixes.filter((prefix) => voidBelow > (belowOf.get(prefix) ?? 0));
    if (news.length === 0) return false;
    this.#some.set(origin, belowOf);
    for (const prefix of news) {
      if (!belowOf.delete(prefix)) this.#prefixCount++;
      belowOf.set(prefix, voidBelow);
    }
    while (this.#prefixCount > CLEAR_MAX_PREFIXES) {
      const [first] = this.#some as Iterable<[number, Map<string, number>]>;
      const [earliest] = first?.[1].values() ?? [];
      this.#noteAll(first?.[0] as number, earliest as number);
    }
    return true;
  }

  #noteAll(origin: number, voidBelow: number): void {
    const below = Math.max(voidBelow, this.#all.get(origin) ?? 0);
    this.#all.set(origin, below);
    this.#dropSome(origin, below);
    if (this.#all.size > CLEARED_ORIGINS_MAX_COUNT) this.#noteRest(Math.min(...this.#all.values()));
  }

  #noteRest(voidBelow: number): void {
    this.#rest = voidBelow;
    for (const [origin, below] of this.#all) if (below <= voidBelow) this.#all.delete(origin);
    for (const origin of [...this.#some.keys()]) this.#dropSome(origin, voidBelow);
  }

  /** Drops the prefixes that a wider clear covers as well. */
  #dropSome(origin: number, voidBelow: number): void {
    const belowOf = this.#some.get(origin);
    for (const [prefix, below] of belowOf ?? []) if (below <= voidBelow && belowOf?.delete(prefix)) this.#prefixCount--;
    if (belowOf?.size === 0) this.#some.delete(origin);
  }

  /** Throws `InvariantError` unless what is remembered is within its limits. */
  verify(): void {
    assertAtMost('known clears: origins', this.#all.size, CLEARED_ORIGINS_MAX_COUNT);
    assertAtMost('known clears: prefixes', this.#prefixCount, CLEAR_MAX_PREFIXES);
    let count = 0;
    for (const belowOf of this.#some.values()) count += belowOf.size;
    assertEqual('known clears: prefixes', this.#prefixCount, count);
  }
}
