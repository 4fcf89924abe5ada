import type { CancelSignal } from '../../base/concurrency/cancellation.js';
import { ArgumentError } from '../../base/errors.js';
import { CLIENT_POOL_NAME_MAX_BYTES, CLIENT_POOLS_MAX_COUNT } from '../../base/limits.js';
import type { KeyNamespace, RequestOptions } from '../../core/index.js';
import type { CallerPage } from '../../store/call/caller-page.js';
import type { MayTake } from '../../store/copied-reads.js';
import type { FollowOptions, PageEvent } from '../../store/events/page-events.js';
import type { PageRoom, PlacedPage } from '../../store/found-pages.js';
import type {
  PageOptions,
  PagePinOptions,
  PagePrefetchOptions,
  PageSessionNews,
  PageWriteOptions,
  StoredPages,
} from '../../store/namespace/namespace-pages.js';
import type { DataLocation, Tier } from '../../types.js';
import { Status } from '../wire/messages.js';
import { RequestError } from '../wire/request-error.js';

/** The nodes that hold a page. */
export interface PageHolders {
  /** Bytes of the page. */
  readonly length: number;
  readonly holders: readonly { readonly node_id: string; readonly tier: Tier }[];
}

/** Looks up all known locations of each object key. */
export type HoldersOf = (objectKeys: readonly string[]) => Promise<(readonly DataLocation[])[]>;

/** The events of all pages of this node. */
export type FollowPages = (options: FollowOptions) => AsyncGenerator<PageEvent, void>;

/** What a namespace needs from the node in addition to its pages. */
export interface ClientNamespaceParts {
  readonly holdersOf: HoldersOf;
  readonly follow: FollowPages;
}

/** The pages of one namespace as clients ask for them. Throws {@link RequestError} for invalid keys and pools. */
export class ClientNamespace {
  readonly #pages: StoredPages;
  readonly #holdersOf: HoldersOf;
  /** The events of all pages of this node, including those of other namespaces. */
  readonly follow: FollowPages;

  constructor(pages: StoredPages, { holdersOf, follow }: ClientNamespaceParts) {
    this.#pages = pages;
    this.#holdersOf = holdersOf;
    this.follow = follow;
  }

  exists(keys: readonly string[], pool: string, signal: CancelSignal): Promise<boolean[]> {
    return this.#in(pool, () => this.#pages.exists(keys, { pool, signal }));
  }

  get(
    keys: readonly string[],
    pages: readonly CallerPage[],
    options: RequestOptions & { readonly pool: string; readonly signal: CancelSignal },
  ): Promise<boolean[]> {
    return this.#in(options.pool, () => this.#pages.get(keys, pages, options));
  }

  /** Reads a page into a copy that then belongs to the caller; null if it is a miss. */
  getCopy(
    key: string,
    options: RequestOptions & { readonly pool: string; readonly mayTake: MayTake; readonly signal: CancelSignal },
  ): Promise<Uint8Array | 'too-large' | null> {
    return this.#in(options.pool, () => this.#pages.getCopyWithin(key, options));
  }

  /** Reads pages of any length into the given memory. */
  getPlaced(
    keys: readonly string[],
    room: PageRoom,
    options: RequestOptions & { readonly pool: string; readonly signal: CancelSignal },
  ): Promise<(PlacedPage | null)[]> {
    return this.#in(options.pool, () => this.#pages.getPlaced(keys, room, options));
  }

  set(
    keys: readonly string[],
    pages: readonly CallerPage[],
    options: RequestOptions &
      Pick<PageWriteOptions, 'pool' | 'isNamed' | 'expiresInMs' | 'priority' | 'time'> & {
        readonly signal: CancelSignal;
      },
  ): Promise<boolean[]> {
    return this.#in(options.pool, () => this.#pages.set(keys, pages, options));
  }

  delete(keys: readonly string[], options: Pick<PageOptions, 'pool' | 'time'>): Promise<boolean[]> {
    return this.#in(options.pool, () => this.#pages.delete(keys, options));
  }

  /** Pins pages for this client; see `ClientPins.pin`. */
  pin(keys: readonly string[], options: PagePinOptions & { readonly signal: CancelSignal }): Promise<boolean[]> {
    return this.#in(options.pool, () => this.#pages.pin(keys, options));
  }

  unpin(keys: readonly string[], pool: string): Promise<boolean[]> {
    return this.#in(pool, () => this.#pages.unpin(keys, { pool }));
  }

  /** Brings pages into the node's pool; see `Prefetching.prefetch`. */
  prefetch(keys: readonly string[], options: PagePrefetchOptions): Promise<boolean[]> {
    return this.#in(options.pool, () => this.#pages.prefetch(keys, options));
  }

  /** Notes what a session of the client does next. */
  tell(session: string, news: PageSessionNews): Promise<void> {
    return this.#in(news.pool, () => this.#pages.tell(session, news));
  }

  /** Ends the pins with a name; see `Pinning.endNamed`. */
  endPins(name: string): Promise<number> {
    return this.#in('', () => this.#pages.endPins(name));
  }

  /** Ends all pins of this client, but those with names. */
  endClient(): void {
    this.#pages.endClient();
  }

  /** Drops this node's pages of the namespace, in these pools and in all pools used since the node started. */
  async clear(pools: readonly string[]): Promise<void> {
    for (const pool of pools) this.#checkPool(pool);
    return this.#pages.clear(pools);
  }

  /** Looks up the nodes that hold each page; null if no holder is known. */
  stat(keys: readonly string[], pool: string): Promise<(PageHolders | null)[]> {
    return this.#in(pool, async () => {
      const found = await this.#holdersOf(this.#pages.objectKeys(keys, pool));
      return found.map((locations) => {
        const [first] = locations;
        if (first === undefined) return null;
        return { length: first.length, holders: locations.map(({ nodeId, tier }) => ({ node_id: nodeId, tier })) };
      });
    });
  }

  /** The settings of the namespace. */
  get settings(): KeyNamespace {
    return this.#pages.keyEncoder.namespace;
  }

  /** Prefix of all object keys of the main pool, without the slash. */
  get digest(): string {
    return (this.#pages.objectKeys([''], '')[0] as string).slice(0, -1);
  }

  /** Returns the prefix of all object keys of a pool. */
  prefixOf(pool: string): string {
    this.#checkPool(pool);
    return this.#pages.objectKeys([''], pool)[0] as string;
  }

  async #in<T>(pool: string, use: () => Promise<T>): Promise<T> {
    this.#checkPool(pool);
    try {
      return await use();
    } catch (error) {
      if (error instanceof ArgumentError) throw new RequestError(Status.badRequest, error.message);
      throw error;
    }
  }

  /** Throws {@link RequestError} if the name of a new pool is too long or the namespace has too many pools. */
  #checkPool(pool: string): void {
    const { keyEncoder } = this.#pages;
    if (pool === '' || keyEncoder.hasPool(pool)) return;
    const bytes = Buffer.byteLength(pool);
    if (bytes > CLIENT_POOL_NAME_MAX_BYTES) {
      throw new RequestError(
        Status.badRequest,
        `the name of a pool has ${bytes} bytes; allowed are ${CLIENT_POOL_NAME_MAX_BYTES}`,
      );
    }
    if (keyEncoder.poolCount >= CLIENT_POOLS_MAX_COUNT) {
      throw new RequestError(
        Status.tooMuch,
        `${CLIENT_POOLS_MAX_COUNT} pools of this namespace are in use, no more are allowed`,
      );
    }
  }
}
