import type { KeyEncoder } from '../core/index.js';
import type { CallerPage, PageStore } from '../store/page-store.js';
import type { DataLocation, Tier } from '../types.js';

/** Who has a page. */
export interface PageHolders {
  /** Bytes of the page. */
  readonly length: number;
  readonly holders: readonly { readonly node_id: string; readonly tier: Tier }[];
}

/** The pages of one namespace, as the node's store has them; clients of one namespace share it. */
export class ClientNamespace {
  readonly #pages: PageStore;
  readonly #encoder: KeyEncoder;
  readonly #holdersOf: (objectKeys: readonly string[]) => Promise<(readonly DataLocation[])[]>;

  constructor(
    pages: PageStore,
    encoder: KeyEncoder,
    holdersOf: (objectKeys: readonly string[]) => Promise<(readonly DataLocation[])[]>,
  ) {
    this.#pages = pages;
    this.#encoder = encoder;
    this.#holdersOf = holdersOf;
  }

  exists(keys: readonly string[], pool: string, signal: AbortSignal): Promise<boolean[]> {
    return this.#pages.exists(this.#objectKeys(keys, pool), { signal });
  }

  get(
    keys: readonly string[],
    pages: readonly CallerPage[],
    { pool, signal }: { readonly pool: string; readonly signal: AbortSignal },
  ): Promise<boolean[]> {
    return this.#pages.get(this.#objectKeys(keys, pool), pages, { signal });
  }

  /** A copy that is the caller's; null: a miss. */
  getCopy(
    key: string,
    { pool, ...options }: { readonly pool: string; readonly maxBytes: number; readonly signal: AbortSignal },
  ): Promise<Uint8Array | 'too-large' | null> {
    const [objectKey] = this.#objectKeys([key], pool);
    return this.#pages.getCopyWithin(objectKey as string, options);
  }

  set(
    keys: readonly string[],
    pages: readonly CallerPage[],
    { pool, isNamed }: { readonly pool: string; readonly isNamed: boolean },
  ): Promise<boolean[]> {
    return this.#pages.set(this.#objectKeys(keys, pool), pages, isNamed ? 'named' : 'computed');
  }

  delete(keys: readonly string[], pool: string): Promise<boolean[]> {
    return this.#pages.delete(this.#objectKeys(keys, pool));
  }

  /** Drops what this node has of the namespace, in the pools that have been used here since its start, and in these. */
  clear(pools: readonly string[]): Promise<void> {
    return this.#pages.clear(this.#encoder.prefixesOf(['kv', ...pools.map(poolName)]));
  }

  async stat(keys: readonly string[], pool: string): Promise<(PageHolders | null)[]> {
    const found = await this.#holdersOf(this.#objectKeys(keys, pool));
    return found.map((locations) => {
      const [first] = locations;
      if (first === undefined) return null;
      return { length: first.length, holders: locations.map(({ nodeId, tier }) => ({ node_id: nodeId, tier })) };
    });
  }

  #objectKeys(keys: readonly string[], pool: string): string[] {
    return this.#encoder.encodeKeys(keys, poolName(pool));
  }
}

function poolName(pool: string): string {
  return pool === '' ? 'kv' : pool;
}
