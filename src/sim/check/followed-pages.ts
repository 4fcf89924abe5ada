import type { MeshCacheStore } from '../../node/meshcache-store.js';
import type { PageEvent } from '../../store/events/page-events.js';

/** A router's list of a node's pages, built from the node's events alone. */
export class FollowedPages {
  /** Tiers by object key. */
  readonly pages = new Map<string, string>();
  /** Position of the last event that has one. */
  position: string | undefined;
  /** How often the stream has started over with a new list. */
  resets = 0;
  isComplete = false;
  #stop = new AbortController();
  #following: Promise<void> = Promise.resolve();

  /** Follows the events of a store from the last position. */
  follow(store: MeshCacheStore): void {
    this.#stop = new AbortController();
    this.#following = this.#read(store.pageEvents({ after: this.position, signal: this.#stop.signal }));
  }

  /** Stops following. Resolves when the stream has ended. */
  async end(): Promise<void> {
    this.#stop.abort();
    await this.#following;
  }

  /**
   * Compares this list with the one that a new reader gets now. Returns the pages that this list lacks and those that
   * it should not have.
   */
  async differences(store: MeshCacheStore): Promise<string[]> {
    const now = new FollowedPages();
    for await (const event of store.pageEvents()) {
      now.#take(event);
      if (now.isComplete) break;
    }
    const [kept, listed] = [new Set(linesOf(this.pages)), new Set(linesOf(now.pages))];
    return [
      ...[...listed].filter((line) => !kept.has(line)).map((line) => `not told: ${line}`),
      ...[...kept].filter((line) => !listed.has(line)).map((line) => `not taken back: ${line}`),
    ];
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

/** Pages as sorted lines of object key and tier. */
export function linesOf(pages: Iterable<readonly [key: string, tier: string]>): string[] {
  return Array.from(pages, ([key, tier]) => `${key} ${tier}`).toSorted();
}
