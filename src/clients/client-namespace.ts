import type { StoredPages } from '../store/namespace-pages.js';
import type { DataLocation, Tier } from '../types.js';

/** Who has a page. */
export interface PageHolders {
  /** Bytes of the page. */
  readonly length: number;
  readonly holders: readonly { readonly node_id: string; readonly tier: Tier }[];
}

/** What a client of a namespace is served from; clients of one namespace share it. */
export interface ClientNamespace {
  readonly pages: StoredPages;
  /** One list an object key, of all that is known of it. */
  readonly holdersOf: (objectKeys: readonly string[]) => Promise<(readonly DataLocation[])[]>;
}

/** Who has each page; null: nobody that is known. */
export async function statOf(
  { pages, holdersOf }: ClientNamespace,
  keys: readonly string[],
  pool: string,
): Promise<(PageHolders | null)[]> {
  const found = await holdersOf(pages.objectKeys(keys, pool));
  return found.map((locations) => {
    const [first] = locations;
    if (first === undefined) return null;
    return { length: first.length, holders: locations.map(({ nodeId, tier }) => ({ node_id: nodeId, tier })) };
  });
}
