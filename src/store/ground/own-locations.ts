import { type CancelSignal, unlessAborted } from '../../base/concurrency/cancellation.js';
import { INLINE_PAGE_MAX_BYTES } from '../../base/limits.js';
import { type Keys, pickKeys, stringsOf } from '../../core/binding/key-batch.js';
import { MARK_ABSENT, MARK_SURE, MARK_THERE, type PageMark } from '../../core/map/page-map.js';
import type { DirectoryClient } from '../../directory/client.js';
import {
  LocationColumns,
  type LocationNode,
  NAMED,
  NO_LOCATION,
  ON_DISK,
} from '../../directory/messages/location-columns.js';
import type { PageOrigin, PublishedPage } from '../../pool/published-pool.js';
import type { DataLocation } from '../../types.js';
import { indicesWhere } from '../call/key-steps.js';
import type { StoreGround } from './store-ground.js';

/**
 * Why a page that this node has published is not set: no owner has accepted its location, or another writer's content
 * has won.
 */
export type StatementRefusal = 'directory' | 'superseded';

/** Keys of pages that are not set, with the reason. */
export type RefusedKeys = ReadonlyMap<string, StatementRefusal>;

/** Positions of pages whose announcement had a special outcome; all other pages are in the directory. */
export interface Announced {
  /** Pages that no owner has accepted. */
  readonly refused: number[];
  /** Pages for which an owner knows a newer content. */
  readonly outdated: number[];
  /** Pages that another node has. */
  readonly held: number[];
}

/** Pages and their locations: the location of key `i` is at position `i` of the columns. */
export interface KeyedLocations {
  readonly keys: Keys;
  readonly columns: LocationColumns;
}

/** Version, kind and expiry of a page, as announced to the directory. */
type Content = Pick<PageOrigin, 'version' | 'kind' | 'expires'>;

/** Locations of this node's pages, for the directory. The generation is not filled in. */
export class OwnLocations {
  readonly #ground: StoreGround;
  /** Endpoint at which other nodes read the pool. */
  readonly #endpoint: string;
  /** First address of the pool. A number holds it exactly, because no machine has addresses above 2^53. */
  readonly #baseAddr: number;

  constructor(ground: StoreGround) {
    this.#ground = ground;
    this.#endpoint = ground.transport.localEndpoint();
    this.#baseAddr = Number(ground.pool.baseAddr);
  }

  /** Location of each page: in the pool if it is there, else on the disk; none if this node does not have it. */
  find(keys: Keys): LocationColumns {
    const columns = this.findInPool(keys);
    const onDisk = this.#ground.disk?.peekBatch(keys) ?? [];
    for (let i = 0; i < onDisk.length; i++) {
      const page = onDisk[i] ?? null;
      if (page === null || columns.has(i)) continue;
      describe(columns, i, page, page);
      columns.flags[i] = (columns.flags[i] as number) | ON_DISK;
      columns.setBy[i] = page.setBy;
    }
    return columns;
  }

  /** Like {@link find}, but in the pool only. */
  findInPool(keys: Keys): LocationColumns {
    return this.#located(this.#ground.pool.peekBatch(keys));
  }

  /** Like {@link findInPool}, but only pages that readers may find. */
  findLive(keys: Keys): LocationColumns {
    return this.#located(this.#ground.pool.peekLive(keys));
  }

  /**
   * Like {@link findLive}, but only computed pages that this node has set itself: for those it needs no directory owner
   * to know that there is no newer content, and no clear of an original, of which it has not been told.
   */
  findSure(keys: Keys): LocationColumns {
    const columns = this.findLive(keys);
    for (let i = 0; i < columns.count; i++) {
      const isSure = ((columns.flags[i] as number) & NAMED) === 0 && columns.setBy[i] === 0;
      if (columns.has(i) && !isSure) columns.node[i] = NO_LOCATION;
    }
    return columns;
  }

  /** Whether this node has each page, and is sure of it: can name it as {@link findSure} does. */
  marksOf(keys: readonly string[]): PageMark[] {
    const { pool, disk } = this.#ground;
    const isOnDisk = disk?.hasBatch(keys);
    return pool.peekBatch(keys).map((page, i) => {
      if (page === null) return isOnDisk?.[i] === 1 ? MARK_THERE : MARK_ABSENT;
      if (page.state !== 'stated') return MARK_ABSENT;
      return page.kind === 'computed' && page.setBy === 0 ? MARK_SURE : MARK_THERE;
    });
  }

  /** The bytes of a page in the pool at a location; undefined: the page is not there any more, or not short enough. */
  bytesAt(key: string, columns: LocationColumns, row: number, maxBytes: number): readonly Uint8Array[] | undefined {
    const { cluster, pool } = this.#ground;
    const length = columns.length[row] as number;
    if (length > Math.min(maxBytes, INLINE_PAGE_MAX_BYTES)) return undefined;
    const { nodeId, incarnation } = columns.nodes[columns.node[row] as number] as LocationNode;
    if (nodeId !== cluster.nodeId || incarnation !== cluster.incarnation) return undefined;
    if (((columns.flags[row] as number) & ON_DISK) !== 0) return undefined;
    const [page = null] = pool.peekLive([key]);
    if (page === null || page.length !== length || this.#baseAddr + page.offset !== columns.addressAt(row)) {
      return undefined;
    }
    return pool.stampOf(page).stamp === columns.stamp[row] ? pool.viewsOf(page) : undefined;
  }

  #located(pages: readonly (PublishedPage | null)[]): LocationColumns {
    const columns = this.#columns(pages.length);
    for (let i = 0; i < pages.length; i++) {
      const page = pages[i] ?? null;
      if (page === null) continue;
      this.#place(columns, i, page, page);
      columns.setBy[i] = page.setBy;
    }
    return columns;
  }

  /** Locations of pages that have just been set and are not copies; `contentOf` gives the content of each. */
  ofSet(pages: readonly PublishedPage[], contentOf: (page: PublishedPage) => Content): LocationColumns {
    const columns = this.#columns(pages.length);
    for (let i = 0; i < pages.length; i++) {
      const page = pages[i] as PublishedPage;
      this.#place(columns, i, page, contentOf(page));
    }
    return columns;
  }

  #columns(count: number): LocationColumns {
    const { nodeId, incarnation } = this.#ground.cluster;
    return new LocationColumns(count, [{ nodeId, incarnation, endpoint: this.#endpoint }]);
  }

  #place(columns: LocationColumns, i: number, page: PublishedPage, content: Content): void {
    const { pool } = this.#ground;
    const { stamp, tail } = pool.stampOf(page);
    describe(columns, i, page, content);
    columns.setAddress(i, this.#baseAddr + page.offset);
    columns.rkey[i] = pool.rkey;
    columns.stamp[i] = stamp;
    columns.tail[i] = tail;
  }
}

/** The wanted pages that have a location, each key once. The columns may be shared. */
export function presentOf(
  { keys, columns }: KeyedLocations,
  isWanted: (position: number) => boolean = () => true,
): KeyedLocations {
  const strings = stringsOf(keys);
  const seen = new Set<string>();
  const positions: number[] = [];
  for (let i = 0; i < columns.count; i++) {
    if (!columns.has(i) || !isWanted(i) || seen.has(strings[i] as string)) continue;
    seen.add(strings[i] as string);
    positions.push(i);
  }
  return { keys: pickKeys(keys, positions), columns: columns.pick(positions) };
}

/** The keys of pages that have no location. */
export function absentOf({ keys, columns }: KeyedLocations): Keys {
  const positions: number[] = [];
  for (let i = 0; i < columns.count; i++) if (!columns.has(i)) positions.push(i);
  return pickKeys(keys, positions);
}

function describe(columns: LocationColumns, i: number, page: PublishedPage, { version, kind, expires }: Content): void {
  columns.node[i] = 0;
  columns.length[i] = page.length;
  columns.checksum[i] = page.checksum;
  columns.version[i] = version;
  columns.expires[i] = expires;
  columns.flags[i] = kind === 'named' ? NAMED : 0;
}

/**
 * One location for each key: on this node if it has the page, else from the directory. Null: neither has it, or the
 * signal was aborted before the answer.
 */
export async function locatePages(
  keys: readonly string[],
  own: (DataLocation | null)[],
  { directory, signal }: { directory: DirectoryClient; signal: CancelSignal | undefined },
): Promise<(DataLocation | null)[]> {
  const unknown = indicesWhere(own, (location) => location === null);
  if (unknown.length === 0 || signal?.aborted) return own;
  const found = await unlessAborted(directory.get(unknown.map((i) => keys[i] as string)), signal);
  unknown.forEach((i, j) => {
    own[i] = found?.[j] ?? null;
  });
  return own;
}
