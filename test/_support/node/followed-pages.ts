import type { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import type { PageEvent } from '../../../src/store/events/page-events.js';

/** A router's list of a node's pages, kept from its events alone. */
export class FollowedPages {
  /** Object key -> tier. */
  readonly pages = new Map<string, string>();
  /** Position of the last event that has one. */
  position: string | undefined;
  /** How often the stream has begun with a new list. */
  resets = 0;
  isComplete = false;
  #stop = new AbortController();
  #following: Promise<void> = Promise.resolve();

  /** Follows the events of a store from the last position on. */
  follow(store: MeshCacheStore): void {
    this.#stop = new AbortController();
    this.#following = this.#read(store.pageEvents({ after: this.position, signal: this.#stop.signal }));
  }

  /** Resolves when the stream has ended. */
  async end(): Promise<void> {
    this.#stop.abort();
    await this.#following;
  }

  async #read(events: AsyncIterable<PageEvent>): Promise<void> {
    for await (const event of events) this.#take(event);
  }

  #take(event: PageEvent): void {
    if (event.kind === 'reset') {
      this.pages.clear();
      this.resets++;
      this.isComplete = false;
      this.position = undefined;
      return;
    }
    if (event.kind === 'complete') this.isComplete = true;
    if (event.kind !== 'listed') this.position = event.position;
    if (event.kind === 'complete') return;
    for (const { key, tier } of event.changes) {
      if (tier === null) this.pages.delete(key);
      else this.pages.set(key, tier);
    }
  }
}

/** The pages that a store has, as its events should tell of them: sorted lines of object key and tier. */
export function linesOf(pages: Iterable<readonly [key: string, tier: string]>): string[] {
  return Array.from(pages, ([key, tier]) => `${key} ${tier}`).toSorted();
}

export function holdingsOf(store: MeshCacheStore): string[] {
  return linesOf(Array.from(store.holdings(), ([key, { tier }]) => [key, tier] as const));
}
