import { assert, assertAtMost, assertEqual, reduced } from '../base/assert.js';
import { within } from '../base/environment/clock.js';
import { COPIED_POOL_FRACTION, POOL_SERVED_WAIT_MS, SERVED_POOL_FRACTION } from '../base/limits.js';
import { PageCopies } from '../memory/page-copies.js';
import { STAMP_BYTES } from '../memory/page-stamp.js';
import type { PublishedPage } from './page-index.js';
import type { PoolGround } from './pool-ground.js';

/**
 * Most bytes of pages that the calling thread checks itself, in less than half a millisecond: waiting for other threads
 * takes longer.
 */
const CHECKED_HERE_MAX_BYTES = 4 * 2 ** 20;

/** A page that is sent directly from the pool. */
export interface ServedPage {
  readonly length: number;
  /** The page's bytes, in order. They do not change until {@link release}, even if the page is removed meanwhile. */
  readonly views: readonly Uint8Array[];
  /** Whether a new page under this key waits for {@link release}. */
  readonly isWanted: boolean;
  /** Called once when a new page under this key starts to wait; set by the user of the page. */
  onWanted: () => void;
  /** Returns the range to the pool; nothing may read the views afterwards. Idempotent. */
  release(): void;
}

/**
 * Purpose of holding a page: to send it directly from the pool, at the receiver's pace, or to have other threads copy
 * it.
 */
type Use = 'send' | 'copy';

class Served implements ServedPage {
  onWanted: () => void = () => {};
  isWanted = false;
  isReleased = false;

  constructor(
    readonly key: string,
    readonly use: Use,
    readonly length: number,
    readonly views: readonly Uint8Array[],
    readonly onRelease: (served: Served) => void,
  ) {}

  release(): void {
    if (this.isReleased) return;
    this.isReleased = true;
    this.onRelease(this);
  }
}

/**
 * Pages of one pool that are being sent, or copied by other threads. Each is held: it is not evicted, and if it is
 * removed its range stays untouched, but no other page can be placed under its key. A writer of the key therefore
 * claims it and waits: running sends are told to hurry, and no new use begins.
 *
 * Accounting: each served page is one hold of its key in the index; `#heldBytes` has the sums of their lengths.
 */
export class PageServing {
  readonly #ground: PoolGround;
  readonly #maxBytes: Readonly<Record<Use, number>>;
  readonly #byKey = new Map<string, Set<Served>>();
  /** For each key that is being set, the number of writers. */
  readonly #claims = new Map<string, number>();
  readonly #waiting = new Map<string, (() => void)[]>();
  readonly #heldBytes: Record<Use, number> = { send: 0, copy: 0 };

  constructor(ground: PoolGround) {
    this.#ground = ground;
    this.#maxBytes = { send: ground.capacity * SERVED_POOL_FRACTION, copy: ground.capacity * COPIED_POOL_FRACTION };
  }

  get isIdle(): boolean {
    return this.#byKey.size === 0;
  }

  /** Holds pages and checks them together; see `PublishedPool.serve`. */
  async serve(keys: readonly string[], isVerified: boolean): Promise<(ServedPage | 'damaged' | null)[]> {
    const { index, copyThreads } = this.#ground;
    const pages = index.lookupBatch(keys);
    const tails = new Uint8Array(new SharedArrayBuffer(keys.length * STAMP_BYTES));
    const served = pages.map((page, i) => {
      if (page === null) return null;
      return this.#take(keys[i] as string, 'send', page.length, this.#viewsOf(page, tails.subarray(i * STAMP_BYTES)));
    });
    const copies = new PageCopies();
    const held: number[] = [];
    let bytes = 0;
    for (const [i, page] of served.entries()) {
      if (page === null) continue;
      copies.add(page.views, null);
      held.push(i);
      bytes += page.length;
    }
    if (!isVerified || held.length === 0) return served;
    const isForThreads = bytes > CHECKED_HERE_MAX_BYTES && copyThreads.take(held.length, bytes);
    const sums = isForThreads ? await copyThreads.copy(copies) : copies.run();
    const results: (ServedPage | 'damaged' | null)[] = served;
    for (const [j, i] of held.entries()) {
      const isIntact = sums[j] === pages[i]?.checksum;
      if (isIntact && !index.isFreed) continue;
      if (!isIntact && !index.isFreed) this.#ground.remove(keys[i] as string);
      served[i]?.release();
      results[i] = isIntact ? null : 'damaged';
    }
    return results;
  }

  /**
   * The page's bytes. The tail is copied to `place`, because its own place may be taken by another page's tail after
   * this page has been removed.
   */
  #viewsOf(page: PublishedPage, place: Uint8Array): Uint8Array[] {
    const views = this.#ground.viewsOf(page);
    const tail = views.at(-1) as Uint8Array;
    if (tail.length > STAMP_BYTES) return views;
    place.set(tail);
    return [...views.slice(0, -1), place.subarray(0, tail.length)];
  }

  /**
   * Holds pages that have just been found while other threads copy them, until the returned function is called. Null:
   * too much of the pool is held, or one of the keys is being set.
   */
  holdCopied(keys: readonly string[], lengths: readonly number[]): (() => void) | null {
    const held: ServedPage[] = [];
    const release = (): void => {
      for (const page of held) page.release();
    };
    for (const [i, key] of keys.entries()) {
      const page = this.#take(key, 'copy', lengths[i] as number, []);
      if (page === null) {
        release();
        return null;
      }
      held.push(page);
    }
    return release;
  }

  /** Stops new uses of pages with these keys until the returned function is called; uses in progress continue. */
  claim(keys: readonly string[]): () => void {
    for (const key of keys) this.#claims.set(key, (this.#claims.get(key) ?? 0) + 1);
    return () => {
      for (const key of keys) {
        const others = (this.#claims.get(key) ?? 0) - 1;
        if (others > 0) this.#claims.set(key, others);
        else this.#claims.delete(key);
      }
    };
  }

  /** Waits until no page of these keys is served, at most POOL_SERVED_WAIT_MS. */
  async awaitFor(keys: readonly string[]): Promise<void> {
    const served = keys.filter((key) => this.#byKey.has(key)).map((key) => this.#ended(key));
    if (served.length > 0) await within(this.#ground.clock, POOL_SERVED_WAIT_MS, Promise.all(served));
  }

  /** Resolves when no page is served any more. */
  async ended(): Promise<void> {
    await Promise.all([...this.#byKey.keys()].map((key) => this.#ended(key)));
  }

  /** Holds the page currently found under the key; null: too much of the pool is held, or the key is being set. */
  #take(key: string, use: Use, length: number, views: readonly Uint8Array[]): ServedPage | null {
    if (this.#heldBytes[use] + length > this.#maxBytes[use] || this.#claims.has(key)) return null;
    const served = new Served(key, use, length, views, (ended) => this.#released(ended));
    const others = this.#byKey.get(key);
    if (others === undefined) this.#byKey.set(key, new Set([served]));
    else others.add(served);
    this.#heldBytes[use] += length;
    this.#ground.index.hold([key]);
    return served;
  }

  #ended(key: string): Promise<void> {
    return new Promise((resolve) => {
      const waiting = this.#waiting.get(key);
      if (waiting === undefined) this.#waiting.set(key, [resolve]);
      else waiting.push(resolve);
      for (const served of [...(this.#byKey.get(key) ?? [])]) {
        if (served.isWanted) continue;
        served.isWanted = true;
        served.onWanted();
      }
    });
  }

  #released(served: Served): void {
    const { key, use, length } = served;
    const others = this.#byKey.get(key);
    others?.delete(served);
    this.#heldBytes[use] = reduced('page serving: held bytes', this.#heldBytes[use], length);
    if (!this.#ground.index.isFreed) this.#ground.index.release([key]);
    if (others === undefined || others.size > 0) return;
    this.#byKey.delete(key);
    const waiting = this.#waiting.get(key);
    this.#waiting.delete(key);
    for (const resolve of waiting ?? []) resolve();
  }

  /**
   * Throws `InvariantError` unless the accounting of this class holds, and nobody waits for a page that is not being
   * served.
   */
  verify(): void {
    const bytes: Record<Use, number> = { send: 0, copy: 0 };
    for (const [key, all] of this.#byKey) {
      assert(all.size > 0, () => `page serving: none of ${JSON.stringify(key)}, which is kept`);
      assertAtMost(`page serving: of ${JSON.stringify(key)}, and its holds`, all.size, this.#ground.index.holdsOf(key));
      for (const { use, length } of all) bytes[use] += length;
    }
    assertEqual('page serving: bytes that are sent', this.#heldBytes.send, bytes.send);
    assertEqual('page serving: bytes that are copied', this.#heldBytes.copy, bytes.copy);
    for (const key of this.#waiting.keys()) {
      assert(this.#byKey.has(key), () => `page serving: ${JSON.stringify(key)} is waited for and not served`);
    }
  }
}
