import { Semaphore } from '../../base/concurrency/mutex.js';
import { SESSION_LOOKUPS_AT_ONCE_COUNT } from '../../base/limits.js';
import type { StoreGround } from '../ground/store-ground.js';
import { type ExpectedPages, SessionBook, type SessionNews } from './session-book.js';

/** Tells an owner that its pages will be read in so many milliseconds; Infinity: never. */
export type TellOwner = (nodeId: string, keys: readonly string[], inMs: number) => void;

/**
 * Passes on what callers know of their sessions: to the eviction policy of this node's pool, and to the nodes that hold
 * further pages of a session. Best effort: pages that nobody has, and lookups beyond the limit, are passed over.
 */
export class SessionHints {
  readonly #ground: StoreGround;
  readonly #tellOwner: TellOwner;
  readonly #book = new SessionBook();
  readonly #lookups = new Semaphore(SESSION_LOOKUPS_AT_ONCE_COUNT);
  #lookingUp = 0;

  constructor(ground: StoreGround, tellOwner: TellOwner) {
    [this.#ground, this.#tellOwner] = [ground, tellOwner];
  }

  /** Notes news of a session, whose name no other namespace uses. Never rejects. */
  async note(name: string, news: SessionNews): Promise<void> {
    await Promise.all(this.#book.note(name, news).map((expected) => this.#expect(expected)));
  }

  /** The known pages of a session, its head first. */
  keysOf(name: string): string[] {
    return this.#book.keysOf(name);
  }

  /** Has the tiers of this node expect pages; pages that are not in its pool are passed over. */
  expectHere({ keys, inMs }: ExpectedPages): void {
    const { pool, disk } = this.#ground;
    pool.expectBatch(keys, inMs);
    disk?.expect(keys, inMs);
  }

  async #expect({ keys, inMs }: ExpectedPages): Promise<void> {
    const { pool } = this.#ground;
    const isHere = pool.hasBatch(keys);
    const here = keys.filter((_, i) => isHere[i] === 1);
    if (here.length > 0) this.expectHere({ keys: here, inMs });
    const elsewhere = keys.filter((_, i) => isHere[i] === 0);
    if (elsewhere.length === 0 || this.#ground.cluster.members().size < 2) return;
    if (this.#lookingUp >= 2 * SESSION_LOOKUPS_AT_ONCE_COUNT) return;
    this.#lookingUp++;
    try {
      await this.#lookups.use(() => this.#tellOwners(elsewhere, inMs));
    } catch {
      // The directory does not answer; the pages are evicted as if nothing were known of them.
    } finally {
      this.#lookingUp--;
    }
  }

  async #tellOwners(keys: readonly string[], inMs: number): Promise<void> {
    const { directory, cluster } = this.#ground;
    const locations = await directory.get(keys);
    const byNode = new Map<string, string[]>();
    for (const [i, location] of locations.entries()) {
      if (location === null || location.tier !== 'memory' || location.nodeId === cluster.nodeId) continue;
      const ofNode = byNode.get(location.nodeId);
      if (ofNode === undefined) byNode.set(location.nodeId, [keys[i] as string]);
      else ofNode.push(keys[i] as string);
    }
    for (const [nodeId, ofNode] of byNode) this.#tellOwner(nodeId, ofNode, inMs);
  }

  /** Throws `InvariantError` unless the accounting of its parts holds. */
  verify(): void {
    this.#book.verify();
    this.#lookups.verify();
  }
}
