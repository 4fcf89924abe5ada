import type { KeyEncoder, PublishRequest, RequestOptions } from '../../core/index.js';
import type { ServedPage } from '../../pool/published-pool.js';
import type { CallLimits, MissReason, Reasons, RefusalReason, TimedOptions } from '../call/call-options.js';
import type { CallerPage } from '../call/caller-page.js';
import type { MayTake } from '../copied-reads.js';
import type { FoundPages, PageRoom, PlacedPage } from '../found-pages.js';
import type { ClientPins, Pinning } from '../holding/pinning.js';
import type { ClientPrefetching } from '../holding/prefetching.js';
import type { PageStore } from '../page-store.js';
import type { SessionNews } from '../sessions/session-book.js';
import type { SessionHints } from '../sessions/session-hints.js';
import { MAIN_POOL } from './hybrid.js';

/**
 * Options of calls. When the signal is aborted or the time is over, reads end early, as misses; nothing touches their
 * memory after they have resolved.
 */
export interface PageOptions extends RequestOptions, TimedOptions {
  readonly pool: string;
}

/** Options of calls that read pages. */
export interface PageReadOptions extends PageOptions {
  /** Collects the reason for each page that was not read, if the caller wants it. */
  readonly reasons?: Reasons<MissReason> | undefined;
}

/** Options of calls that set pages. */
export interface PageWriteOptions extends PageOptions, PublishRequest {
  /** Whether the newest content wins; otherwise all contents are equally good. */
  readonly isNamed: boolean;
  /** Milliseconds after which the pages expire. Default: they do not expire. */
  readonly expiresInMs?: number | undefined;
  /** Collects the reason for each page that was not set, if the caller wants it. */
  readonly refusals?: Reasons<RefusalReason> | undefined;
}

/** Options of calls that pin pages: for a time, or until the pin is ended by its name. */
export type PagePinOptions = PageOptions &
  (
    | {
        /** Milliseconds for which the pages stay pinned. */
        readonly forMs: number;
        readonly name?: undefined;
      }
    | { readonly forMs?: undefined; readonly name: string }
  );

/** Options of calls that prefetch pages. */
export interface PagePrefetchOptions extends PageOptions {
  /** Milliseconds from now by which the pages should be in the pool. */
  readonly inMs: number;
}

/** What a session of the caller does next, and the pool of the pages that it lists. */
export interface PageSessionNews extends SessionNews {
  readonly pool: string;
}

/** What a client of a node may ask for pages that it does not read yet. */
export interface PageCare {
  readonly pins: ClientPins;
  /** Pins with names, which outlive the client. */
  readonly pinning: Pick<Pinning, 'pinNamed' | 'endNamed'>;
  readonly prefetching: Pick<ClientPrefetching, 'prefetch'>;
  readonly sessions: Pick<SessionHints, 'note'>;
}

/**
 * Access to the pages of one namespace, by the program's own keys and pool names; one result for each key. Methods
 * throw `ArgumentError` for invalid keys synchronously.
 */
export interface NamespacePages {
  exists(keys: readonly string[], options: PageOptions): Promise<boolean[]>;
  /** Reads pages. If a result is false, the content of the page's memory is undefined. */
  get(keys: readonly string[], pages: readonly CallerPage[], options: PageReadOptions): Promise<boolean[]>;
  /** Reads a copy that the caller owns; null: a miss. */
  getCopy(key: string, options: PageReadOptions): Promise<Uint8Array | null>;
  /** Reads copies that the caller owns; null: a miss. */
  getCopies(keys: readonly string[], options: PageReadOptions): Promise<(Uint8Array | null)[]>;
  /** Sets pages. If the call ends early, writes that have begun may still take effect. */
  set(keys: readonly string[], pages: readonly CallerPage[], options: PageWriteOptions): Promise<boolean[]>;
  delete(keys: readonly string[], options: PageOptions): Promise<boolean[]>;
  /**
   * Keeps pages in the node's pool for a time; true for each pinned page. Rejects with `ArgumentError` for a time that
   * is not allowed.
   */
  pin(keys: readonly string[], options: PagePinOptions): Promise<boolean[]>;
  /** Ends the pins with a name; returns the number of pages that had it. */
  endPins(name: string): Promise<number>;
  /** Ends pins of this client; true for each page that it had pinned. */
  unpin(keys: readonly string[], options: PageOptions): Promise<boolean[]>;
  /** Brings pages into the node's pool; true for each page that is there afterwards. */
  prefetch(keys: readonly string[], options: PagePrefetchOptions): Promise<boolean[]>;
  /** Tells the node what a session does next; a hint, which may be wrong. */
  tell(session: string, news: PageSessionNews): Promise<void>;
  /**
   * Drops everything that the node has of the namespace, in these pools and in those used there since the node started.
   */
  clear(pools: readonly string[], options?: CallLimits): Promise<void>;
}

/** The pages of a namespace in this node's store. */
export class StoredPages implements NamespacePages {
  readonly keyEncoder: KeyEncoder;
  readonly #pages: PageStore;
  readonly #care: PageCare | undefined;

  /** `care`: for the client that uses the pages; without it the client can only read and set them. */
  constructor(pages: PageStore, keyEncoder: KeyEncoder, care?: PageCare) {
    this.#pages = pages;
    this.keyEncoder = keyEncoder;
    this.#care = care;
  }

  exists(keys: readonly string[], { pool, ...call }: PageOptions): Promise<boolean[]> {
    return this.#pages.exists(this.keyEncoder.encodeBatch(keys, poolName(pool)), call);
  }

  get(keys: readonly string[], pages: readonly CallerPage[], options: PageReadOptions): Promise<boolean[]> {
    return this.#pages.get(this.keyEncoder.encodeBatch(keys, poolName(options.pool)), pages, options);
  }

  getCopy(key: string, { pool, ...call }: PageReadOptions): Promise<Uint8Array | null> {
    return this.#pages.getCopy(this.objectKeys([key], pool)[0] as string, call);
  }

  /** Like {@link getCopy}, if memory for the page may be taken. */
  getCopyWithin(
    key: string,
    { pool, ...call }: PageReadOptions & { readonly mayTake: MayTake },
  ): Promise<Uint8Array | 'too-large' | null> {
    return this.#pages.getCopyWithin(this.objectKeys([key], pool)[0] as string, call);
  }

  getCopies(keys: readonly string[], { pool, ...call }: PageReadOptions): Promise<(Uint8Array | null)[]> {
    return this.#pages.getCopies(this.objectKeys(keys, pool), call);
  }

  /** Looks pages up, to read them part by part; see `PageStore.find`. */
  find(keys: readonly string[], { pool, ...call }: PageReadOptions): Promise<FoundPages> {
    return this.#pages.find(this.objectKeys(keys, pool), call);
  }

  /** Reads pages of any length into a room; see `PageStore.getPlaced`. */
  getPlaced(
    keys: readonly string[],
    room: PageRoom,
    { pool, ...call }: PageReadOptions,
  ): Promise<(PlacedPage | null)[]> {
    return this.#pages.getPlaced(this.objectKeys(keys, pool), room, call);
  }

  /** Lengths of the pages in this node's pool; null: the page is not there. */
  lengthsHere(keys: readonly string[], pool = ''): (number | null)[] {
    return this.#pages.lengthsHere(this.keyEncoder.encodeBatch(keys, poolName(pool)));
  }

  /** Holds pages of this node's pool so that they can be sent directly from there; see `PageStore.serve`. */
  serve(keys: readonly string[], pool = ''): Promise<(ServedPage | null)[]> {
    return this.#pages.serve(this.objectKeys(keys, pool));
  }

  set(
    keys: readonly string[],
    pages: readonly CallerPage[],
    { pool, isNamed, ...call }: PageWriteOptions,
  ): Promise<boolean[]> {
    const objectKeys = this.keyEncoder.encodeBatch(keys, poolName(pool));
    return this.#pages.set(objectKeys, pages, isNamed ? 'named' : 'computed', call);
  }

  /** Milliseconds until each page expires; see `PageStore.remainingMs`. */
  remainingMs(keys: readonly string[], { pool, ...call }: PageOptions): Promise<(number | null)[]> {
    return this.#pages.remainingMs(this.objectKeys(keys, pool), call);
  }

  delete(keys: readonly string[], { pool, ...call }: PageOptions): Promise<boolean[]> {
    return this.#pages.delete(this.objectKeys(keys, pool), call);
  }

  async pin(keys: readonly string[], { pool, forMs, name, ...call }: PagePinOptions): Promise<boolean[]> {
    const objectKeys = this.objectKeys(keys, pool);
    if (name !== undefined) {
      return this.#care?.pinning.pinNamed(this.#nameOf(name), objectKeys, call) ?? keys.map(() => false);
    }
    return this.#care?.pins.pin(objectKeys, forMs, call) ?? keys.map(() => false);
  }

  async unpin(keys: readonly string[], { pool }: PageOptions): Promise<boolean[]> {
    const objectKeys = this.objectKeys(keys, pool);
    return this.#care?.pins.unpin(objectKeys) ?? keys.map(() => false);
  }

  async endPins(name: string): Promise<number> {
    return this.#care?.pinning.endNamed(this.#nameOf(name)) ?? 0;
  }

  /** The name of a session or pin of this namespace, unlike those of all others. */
  #nameOf(name: string): string {
    return `${this.keyEncoder.prefixesOf([MAIN_POOL])[0]}${name}`;
  }

  /** Ends all pins of the client that uses these pages, but those with names. */
  endClient(): void {
    this.#care?.pins.end();
  }

  async prefetch(keys: readonly string[], { pool, ...call }: PagePrefetchOptions): Promise<boolean[]> {
    const objectKeys = this.objectKeys(keys, pool);
    return this.#care?.prefetching.prefetch(objectKeys, call) ?? keys.map(() => false);
  }

  async tell(session: string, { pool, keys, ...news }: PageSessionNews): Promise<void> {
    await this.#care?.sessions.note(this.#nameOf(session), { ...news, keys: keys && this.objectKeys(keys, pool) });
  }

  async clear(pools: readonly string[], options?: CallLimits): Promise<void> {
    return this.#pages.clear(this.keyEncoder.prefixesOf([MAIN_POOL, ...pools.map(poolName)]), options);
  }

  /** The keys of the pages that this node has in the pool, in slices; see `PageStore.keysInSlices`. */
  async *keysInSlices({ pool, ...call }: PageOptions): AsyncGenerator<string[], void> {
    const prefix = this.objectKeys([''], pool)[0] as string;
    for await (const keys of this.#pages.keysInSlices(prefix, call)) {
      yield keys.map((key) => key.slice(prefix.length));
    }
  }

  /** Converts keys to object keys, as used in the directory. */
  objectKeys(keys: readonly string[], pool: string): string[] {
    return this.keyEncoder.encodeKeys(keys, poolName(pool));
  }
}

function poolName(pool: string): string {
  return pool === '' ? MAIN_POOL : pool;
}
