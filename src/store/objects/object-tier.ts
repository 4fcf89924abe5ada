import type { CancelSignal } from '../../base/concurrency/cancellation.js';
import { ObjectStoreError } from '../../base/errors.js';
import { OBJECT_STALL_MS, OBJECT_WINDOW_MAX_PAGES } from '../../base/limits.js';
import { OwnMarker } from '../../objects/clear-marker.js';
import { isStorable, type ObjectHeader, writerIdOf } from '../../objects/object-format.js';
import type { ObjectStore, ObjectStoreStats } from '../../objects/object-store.js';
import type { CopyThreads } from '../../pool/copy-threads.js';
import type { PageFollower } from '../call/page-feed.js';
import type { PageStatements } from '../ground/page-statements.js';
import type { StoreGround } from '../ground/store-ground.js';
import { ObjectReads, type WantedObjects } from './object-reads.js';
import { ObjectSearch } from './object-search.js';
import { ObjectWrites } from './object-writes.js';

/** An object store and the settings for its use. */
export interface ObjectStoreUse {
  readonly store: ObjectStore;
  /** Bytes per second sent to the store, on average. */
  readonly bytesPerS: number;
  readonly copyThreads: CopyThreads;
}

/** Counters of reads and writes of the object store; see `ObjectStoreStats`. */
export interface ObjectTierStats extends ObjectStoreStats {
  readonly readPages: number;
  readonly sentPages: number;
  readonly queuePages: number;
}

/** The coldest tier: computed pages in an object store, which clusters in different places may share. */
export class ObjectTier implements PageFollower {
  readonly #store: ObjectStore;
  readonly #writer: string;
  readonly #marker: OwnMarker;
  readonly #reads: ObjectReads;
  readonly #writes: ObjectWrites;

  constructor(ground: StoreGround, use: ObjectStoreUse, statements: PageStatements) {
    const { store, bytesPerS, copyThreads } = use;
    this.#store = store;
    this.#writer = writerIdOf(ground.cluster.nodeId);
    this.#marker = new OwnMarker(store, this.#writer, ground.clock);
    const search = new ObjectSearch(ground, store, statements);
    this.#reads = new ObjectReads(ground, { store, copyThreads, search, statements });
    this.#writes = new ObjectWrites(ground, { store, bytesPerS, search, marker: this.#marker, writer: this.#writer });
  }

  /** Pages read and sent since the store was created, and the store's own counters. */
  stats(): ObjectTierStats {
    return { readPages: this.#reads.readPages, ...this.#writes.stats(), ...this.#store.stats() };
  }

  /** Notes that pages which this node holds have been read. */
  readHere(keys: readonly string[]): void {
    this.#writes.used(keys);
  }

  /**
   * Runs a call that sets pages. Meanwhile hardly any page is sent to the store, so that the call is not slowed down.
   */
  async whileSetting<T>(set: () => Promise<T>): Promise<T> {
    this.#writes.setBegins();
    try {
      return await set();
    } finally {
      this.#writes.setEnds();
    }
  }

  /** Brings pages from the store into the pool; see {@link WantedObjects}. */
  bring(wanted: WantedObjects): Promise<void> {
    return this.#reads.bring(wanted);
  }

  /** Which of the pages the store has; see `ObjectReads.exists`. */
  exists(keys: readonly string[], signal?: CancelSignal): Promise<boolean[]> {
    return this.#reads.exists(keys, signal);
  }

  touched(keys: readonly string[]): void {
    this.#writes.used(keys);
  }

  /** Removes deleted pages from the queue. */
  deleted(keys: readonly string[]): void {
    this.#writes.dropped(keys);
  }

  /**
   * Replaces pages that every node of the cluster has dropped by deletion marks, so that nobody reads them and a write
   * in flight does not bring one back. True for each page that the store has confirmed.
   */
  async delete(keys: readonly string[], version: number, signal?: CancelSignal): Promise<boolean[]> {
    const store = this.#store;
    const deleted = keys.map(() => false);
    let next = 0;
    const deleteNext = async (): Promise<void> => {
      while (next < keys.length && signal?.aborted !== true) {
        const i = next++;
        const key = keys[i] as string;
        const header: ObjectHeader = {
          ...{ kind: 'deleted', key, version, length: 0, checksum: 0, expires: 0 },
          ...{ generation: 0, writer: this.#writer },
        };
        deleted[i] =
          !isStorable(key) ||
          (await store.write(store.names.ofPage(key), header, { timeoutMs: OBJECT_STALL_MS })) === 'done';
      }
    };
    await Promise.all(Array.from({ length: Math.min(OBJECT_WINDOW_MAX_PAGES, keys.length) }, deleteNext));
    return deleted;
  }

  /**
   * Makes everything that this node has stored void, including pages in flight. Until the pages are removed, nothing is
   * stored and nothing enters the pool. Rejects if the store does not confirm it; the node then retries before it
   * stores anything else.
   */
  async clear(prefixes: readonly string[] | undefined, removed: Promise<void>): Promise<void> {
    this.#writes.cleared();
    const ended = removed.catch(() => {});
    const confirmed = this.#marker.clear(prefixes, ended);
    this.#reads.clearing(confirmed);
    if (await confirmed) return;
    throw new ObjectStoreError(
      'clear: the object store does not confirm that the pages of this node are cleared there; they can still be read. ' +
        'Call clear again when the store answers: `meshcache doctor` says what is wrong with it',
      { retryable: true },
    );
  }

  /** Stops; resolves when nothing touches the pool any more. */
  async close(): Promise<void> {
    this.#reads.close();
    const ended = this.#writes.close();
    await ended;
    this.#store.close();
  }

  /** Throws `InvariantError` unless everything is within its limits. */
  verify(): void {
    this.#writes.verify();
  }
}
