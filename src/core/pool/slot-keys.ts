const NO_SLOT = -1;

/** What a batch of publishes has done to the slots of a pool: which pages left them, and which entered them. */
export interface SlotChanges {
  /** The module's memory, and where in it the slot that each key took, or -1, begins. */
  readonly words: Uint32Array;
  readonly slotsAt: number;
  /** Where in `words` the number of slots begins that were evicted up to each key. */
  readonly endsAt: number;
  /** Evicted slots in order. One slot may be evicted and taken again, even several times. */
  readonly evictedSlots: Uint32Array;
}

/** The keys of a pool's pages by their slots. What it has for a vacant slot is stale or undefined. */
export class SlotKeys {
  private keys: (string | undefined)[] = [];

  set(slot: number, key: string | undefined): void {
    this.keys[slot] = key;
  }

  forget(slot: number): void {
    this.keys[slot] = undefined;
  }

  /** Returns and forgets the key of an evicted page; null for slot -1, which stands for no page. */
  take(slot: number): string | null {
    if (slot === NO_SLOT) return null;
    const key = this.keys[slot] as string;
    this.keys[slot] = undefined;
    return key;
  }

  /** Keys of the pages in these slots; the result for a slot whose page has since gone is arbitrary. */
  of(slots: Uint32Array): (string | undefined)[] {
    return Array.from(slots, (slot) => this.keys[slot]);
  }

  /** Follows a batch of publishes of these keys, change by change; returns the keys of the evicted pages in order. */
  follow(published: readonly string[], { words, slotsAt, endsAt, evictedSlots }: SlotChanges): string[] {
    const { keys } = this;
    const evicted = new Array<string>(evictedSlots.length);
    let done = 0;
    for (let i = 0; i < published.length; i++) {
      for (const end = words[endsAt + i] as number; done < end; done++) {
        const slot = evictedSlots[done] as number;
        evicted[done] = keys[slot] as string;
        keys[slot] = undefined;
      }
      const slot = (words[slotsAt + i] as number) | 0;
      if (slot !== NO_SLOT) keys[slot] = published[i];
    }
    return evicted;
  }

  clear(): void {
    this.keys = [];
  }
}
