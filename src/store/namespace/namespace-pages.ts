import type { KeyEncoder, RequestOptions } from '../../core/index.js';
import type { CallerPage } from '../call/caller-page.js';
import type { PageStore } from '../page-store.js';

/**
 * Options of calls. When the signal is aborted, reads end early, as misses; nothing touches their memory after they
 * have resolved.
 */
export interface PageOptions extends RequestOptions {
  readonly pool: string;
  readonly signal?: AbortSignal | undefined;
}

/** Access to the pages of one namespace, by the program's own keys and the names of pools; one result for each key. */
export interface NamespacePages {
  exists(keys: readonly string[], options: PageOptions): Promise<boolean[]>;
  /** Reads pages. If a result is false, the page's memory is undefined. */
  get(keys: readonly string[], pages: readonly CallerPage[], options: PageOptions): Promise<boolean[]>;
  /** Reads a copy that the caller owns; null: a miss. */
  getCopy(key: string, options: PageOptions): Promise<Uint8Array | null>;
  /**
   * Sets pages. `isNamed`: the newest content wins; otherwise any content is as good as another. Writes that have begun
   * when the signal is aborted may take effect.
   */
  set(
    keys: readonly string[],
    pages: readonly CallerPage[],
    options: PageOptions & { readonly isNamed: boolean },
  ): Promise<boolean[]>;
  delete(keys: readonly string[], options: { readonly pool: string }): Promise<boolean[]>;
  /** Drops everything that the node has of the namespace, in these pools and in those used there since its start. */
  clear(pools: readonly string[]): Promise<void>;
}

/** The pool of a call that names no pool. */
const MAIN_POOL = 'kv';

/** The pages of a namespace in the store of this node. Throws `ArgumentError` for invalid keys. */
export class StoredPages implements NamespacePages {
  readonly keyEncoder: KeyEncoder;
  readonly #pages: PageStore;

  constructor(pages: PageStore, keyEncoder: KeyEncoder) {
    this.#pages = pages;
    this.keyEncoder = keyEncoder;
  }

  async exists(keys: readonly string[], { pool, signal }: PageOptions): Promise<boolean[]> {
    return this.#pages.exists(this.keyEncoder.encodeBatch(keys, poolName(pool)), { signal });
  }

  get(keys: readonly string[], pages: readonly CallerPage[], options: PageOptions): Promise<boolean[]> {
    return this.#pages.get(this.keyEncoder.encodeBatch(keys, poolName(options.pool)), pages, options);
  }

  async getCopy(key: string, { pool, ...call }: PageOptions): Promise<Uint8Array | null> {
    return this.#pages.getCopy(this.objectKeys([key], pool)[0] as string, call);
  }

  /** {@link getCopy} of a page of at most `maxBytes` bytes. */
  async getCopyWithin(
    key: string,
    { pool, ...call }: PageOptions & { readonly maxBytes: number },
  ): Promise<Uint8Array | 'too-large' | null> {
    return this.#pages.getCopyWithin(this.objectKeys([key], pool)[0] as string, call);
  }

  async set(
    keys: readonly string[],
    pages: readonly CallerPage[],
    { pool, isNamed, ...call }: PageOptions & { readonly isNamed: boolean },
  ): Promise<boolean[]> {
    return this.#pages.set(this.objectKeys(keys, pool), pages, isNamed ? 'named' : 'computed', call);
  }

  async delete(keys: readonly string[], { pool }: { readonly pool: string }): Promise<boolean[]> {
    return this.#pages.delete(this.objectKeys(keys, pool));
  }

  async clear(pools: readonly string[]): Promise<void> {
    return this.#pages.clear(this.keyEncoder.prefixesOf([MAIN_POOL, ...pools.map(poolName)]));
  }

  /** The keys as they are in the directory. */
  objectKeys(keys: readonly string[], pool: string): string[] {
    return this.keyEncoder.encodeKeys(keys, poolName(pool));
  }
}

function poolName(pool: string): string {
  return pool === '' ? MAIN_POOL : pool;
}
