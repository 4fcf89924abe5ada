import { assertAtMost, assertEqual } from '../../base/assert.js';
import { CLEAR_MAX_PREFIXES, CLEARED_ORIGINS_MAX_COUNT } from '../../base/limits.js';

/** Version of copies that do not say when their content was set: they come from the object store. */
export const UNDATED_VERSION = 1;

/** A clear: what a node has set before is void, and so is every copy of it. */
export interface Clear {
  /** The node, see `originOf`; 0: any node. */
  readonly origin: number;
  /** What is older than this version is void. */
  readonly voidBelow: number;
  /** Only pages whose keys begin with one of these; undefined: all. */
  readonly prefixes: readonly string[] | undefined;
}

/**
 * The clears that a node knows of: its own, and those that it has heard of. They never lapse, but where there are too
 * many, the earliest ones are joined to wider ones: first to a clear of all keys, then to one of the copies of all
 * nodes. So what was cleared stays void, and what was not may be a miss.
 */
export class KnownClears {
  /** Origin -> version below which everything is void. */
  readonly #all = new Map<number, number>();
  /**
   * Origin -> prefix -> version below which pages with that prefix are void, the one that was noted first at the
   * beginning.
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
   * Whether a copy of a page of this version is void, by the origin that it names; 0: it is no copy. What is undated is
   * never void here.
   */
  isVoid(key: string, version: number, setBy: number): boolean {
    if (setBy === 0 || version <= UNDATED_VERSION || this.isEmpty) return false;
    if (version < this.#allBelow(setBy)) return true;
    for (const [prefix, below] of this.#some.get(setBy) ?? [])
      if (version < below && key.startsWith(prefix)) return true;
    return false;
  }

  /** All of them, as few as say the same. */
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

  /** Forgets all: they are of a clock that was ahead. */
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

  /** Drops what a wider clear says as well. */
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
