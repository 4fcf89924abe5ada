import type { MeshCacheStore } from '../../node/meshcache-store.js';
import type { Checker } from './checker.js';
import type { ProcessId } from './statements.js';

/** A computed page that a program has pinned. */
interface PinnedPage {
  /** Name of the key in the `Checker`. */
  readonly name: string;
  /** Time until which it is pinned at least. */
  untilMs: number;
}

/** The pages that the program of one store has pinned: each must be in its pool until the pin is over, unless somebody has removed it. */
export class PinnedPages {
  readonly #store: MeshCacheStore;
  readonly #id: ProcessId;
  readonly #checker: Checker;
  /** By object key. */
  readonly #pages = new Map<string, PinnedPage>();

  constructor(store: MeshCacheStore, id: ProcessId, checker: Checker) {
    this.#store = store;
    this.#id = id;
    this.#checker = checker;
  }

  /** Notes a page that is pinned until then, or longer. */
  pinned(objectKey: string, name: string, untilMs: number): void {
    const known = this.#pages.get(objectKey);
    if (known === undefined) this.#pages.set(objectKey, { name, untilMs });
    else known.untilMs = Math.max(known.untilMs, untilMs);
  }

  /** Notes that a pin may end from now on. */
  unpinning(objectKey: string): void {
    this.#pages.delete(objectKey);
  }

  /** Reports each pinned page that is not in the pool although nobody has removed it. */
  check(): void {
    const nowMs = this.#checker.nowMs();
    for (const [key, { name, untilMs }] of this.#pages) {
      if (untilMs <= nowMs || this.#checker.statements.mayBeRemoved(name)) this.#pages.delete(key);
    }
    if (this.#pages.size === 0) return;
    const missing = new Map(this.#pages);
    for (const [key, { tier }] of this.#store.holdings()) if (tier === 'memory') missing.delete(key);
    for (const [key, { name, untilMs }] of missing) {
      this.#pages.delete(key);
      const detail = `${name}: pinned until ${untilMs.toFixed(3)} ms, and not in the pool at ${nowMs.toFixed(3)} ms`;
      this.#checker.violated('pin', this.#id.node, { rule: '', detail, key: name });
    }
  }
}
