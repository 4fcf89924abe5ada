import { type Clear, UNDATED_VERSION } from './known-clears.js';
import type { LocationLists } from './location-lists.js';
import type { NodeRecord } from './node-records.js';
import type { VoidVersions } from './void-versions.js';

/** Drops the locations of a key for which `test` returns true. */
type Unlink = (key: string, test: (record: NodeRecord, slot: number) => boolean) => void;

export interface VoidLocationsParts {
  readonly lists: LocationLists;
  readonly voids: VoidVersions;
  /** Tells the holder of a location to drop its page if it is older than `voidBelow`. */
  readonly displace: (key: string, record: NodeRecord, voidBelow: number) => void;
  /** Drops locations, and remembers the version of the last named one; see `DirectoryShard`. */
  readonly unlinkAndNote: Unlink;
}

/**
 * Frees locations that a shard lists although they are void. Walks over all keys in slices, between which other work
 * runs. An abandoned walk starts again from the beginning.
 */
export class VoidLocations {
  readonly #parts: VoidLocationsParts;
  /** Whether locations below their record's floor may exist. */
  #hasRenounced = false;
  /** Whether undated copies may exist. */
  #hasUndated = false;

  constructor(parts: VoidLocationsParts) {
    this.#parts = parts;
  }

  /** Notes that a copy was taken whose content was set at an unknown time. */
  undatedTaken(): void {
    this.#hasUndated = true;
  }

  /** Makes all statements of this start of a node up to `generation` void. */
  renounced(nodeId: string, incarnation: number, generation: number): void {
    for (const record of this.#parts.lists.records) {
      if (record.nodeId !== nodeId || record.incarnation !== incarnation || record.floor >= generation) continue;
      record.floor = generation;
      this.#hasRenounced = true;
    }
  }

  /** Frees renounced locations, which are handed out until then. */
  *dropRenounced(sliceKeys: number): Generator<void, void> {
    if (!this.#hasRenounced) return;
    this.#hasRenounced = false;
    const { slab } = this.#parts.lists;
    yield* this.#walk(sliceKeys, (key) =>
      this.#parts.unlinkAndNote(key, (record, slot) => slab.generationOf(slot) <= record.floor),
    );
  }

  /**
   * Frees undated copies of cleared pages and tells their holders to drop them, because nobody knows whether they were
   * set before the clear.
   */
  *dropUndated(clears: readonly Clear[], sliceKeys: number): Generator<void, void> {
    if (!this.#hasUndated) return;
    const { lists, displace } = this.#parts;
    yield* this.#walk(sliceKeys, (key) => {
      const cleared = clears.filter(({ prefixes }) => prefixes?.some((prefix) => key.startsWith(prefix)) !== false);
      lists.unlinkWhere(key, (record, slot) => {
        const setBy = lists.slab.setByOf(slot);
        if (setBy === 0 || lists.slab.versionOf(slot) > UNDATED_VERSION) return false;
        const isCleared = cleared.some(({ origin }) => origin === 0 || origin === setBy);
        if (isCleared) displace(key, record, UNDATED_VERSION + 1);
        return isCleared;
      });
    });
  }

  /** Frees locations that are void by other nodes' notes, and tells their holders to drop the pages. */
  *dropNoted(sliceKeys: number): Generator<void, void> {
    const { lists, voids, displace } = this.#parts;
    while (voids.isTaking) {
      const upTo = voids.takenCount;
      yield* this.#walk(sliceKeys, (key) => {
        lists.unlinkWhere(key, (record, slot) => {
          const version = lists.slab.versionOf(slot);
          const voidBelow = version === 0 ? 0 : voids.laterThan(key, version);
          if (voidBelow > 0) displace(key, record, voidBelow);
          return voidBelow > 0;
        });
      });
      voids.applied(upTo);
    }
  }

  *#walk(sliceKeys: number, visit: (key: string) => void): Generator<void, void> {
    let left = sliceKeys;
    for (const key of this.#parts.lists.keys.keys()) {
      visit(key);
      if (--left > 0) continue;
      yield;
      left = sliceKeys;
    }
  }
}
