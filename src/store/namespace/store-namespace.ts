import type { FairTurns } from '../../base/concurrency/fair-turns.js';
import { ArgumentError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import type { RequestOptions } from '../../core/index.js';
import type { CallerPage } from '../call/caller-page.js';
import { checkRequest } from '../call/request-calls.js';
import {
  checkDistinct,
  checkHostPool,
  checkKeys,
  type HostIndices,
  type HostMemPool,
  hostPoolPages,
  pointerPages,
  withPage,
} from './host-pool.js';
import { checkTransfers, type HybridHits, hybridHits, type PoolTransfer, prefixLength } from './hybrid.js';
import type { NamespacePages } from './namespace-pages.js';

/** The pool that `batchSetV1`, `batchGetV1`, `set` and `get` use. */
const MAIN_POOL = 'kv';

interface HostPages {
  readonly pool: string;
  readonly keys: readonly string[];
  readonly pages: readonly CallerPage[];
}

/** Parts of a namespace. */
export interface StoreNamespaceParts {
  readonly namespacePages: NamespacePages;
  readonly turns: FairTurns;
  /** Called with each lookup: the number of keys asked for, and of those found from the first on without a gap. */
  readonly onLookup?: (asked: number, found: number) => void;
}

/**
 * The pages of one namespace, read and written through one node. Stores and namespaces with the same parts share their
 * pages, on whichever node they are; others never do.
 *
 * Pointers are addresses within live `HostRegion`s. A buffer passed to a call is in use until the call's promise has
 * resolved; nothing reads or writes it afterwards. A miss is `false`, `null` or a shorter prefix, never an exception.
 * Wrong arguments throw `ArgumentError` before anything is touched; any call after the store's `close()` throws
 * `ClosedError`.
 *
 * The last argument of reads and writes describes their request: a hint, and the caller's number. The keys of a call
 * are in the order of a prefix, its head first. The eviction policy `yield` learns from both; for other policies they
 * are only counted.
 */
export class StoreNamespace {
  readonly #pages: NamespacePages;
  readonly #turns: FairTurns;
  readonly #onLookup: (asked: number, found: number) => void;
  readonly #hostPools = new Map<string, HostMemPool>();

  /** @internal */
  constructor({ namespacePages, turns, onLookup = () => {} }: StoreNamespaceParts) {
    this.#pages = namespacePages;
    this.#turns = turns;
    this.#onLookup = onLookup;
  }

  /** Registers the framework's main host buffer; a later one replaces it. */
  async registerMemPoolHost(pool: HostMemPool): Promise<void> {
    await this.#registerHostPool('registerMemPoolHost', pool, MAIN_POOL);
  }

  /** Registers the host buffer of a further pool of a hybrid model, by its name (`kv` is the main one). */
  async registerMemHostPoolV2(pool: HostMemPool, name: string): Promise<void> {
    await this.#registerHostPool('registerMemHostPoolV2', pool, name);
  }

  /**
   * Publishes pages of the registered host pool, page i from `hostIndices[i * pageSize]`; true for each page that is in
   * the pool and known to the directory. The buffers are in use until the call resolves. Throws `ArgumentError` before
   * anything is touched.
   */
  batchSetV1(keys: string[], hostIndices: HostIndices, request: RequestOptions = {}): Promise<boolean[]> {
    return this.#turns.run(() => {
      checkRequest('batchSetV1', request);
      const { pages } = this.#hostPages('batchSetV1', MAIN_POOL, keys, hostIndices);
      return this.#pages.set(keys, pages, { ...request, pool: MAIN_POOL, isNamed: false });
    });
  }

  /**
   * Reads pages into the registered host pool, page i to `hostIndices[i * pageSize]`; true for each page whose buffer
   * holds exactly the bytes that were set. Anything else is a miss. The buffers are in use until the call resolves.
   * Throws `ArgumentError` before anything is touched.
   */
  batchGetV1(keys: string[], hostIndices: HostIndices, request: RequestOptions = {}): Promise<boolean[]> {
    return this.#turns.run(() => {
      checkRequest('batchGetV1', request);
      const { pages } = this.#hostPages('batchGetV1', MAIN_POOL, keys, hostIndices);
      checkDistinct('batchGetV1', pages);
      return this.#pages.get(keys, pages, { ...request, pool: MAIN_POOL });
    });
  }

  /** Number of keys that exist from the first on without a gap. Does not count as a use. */
  async batchExists(keys: string[]): Promise<number> {
    return this.#turns.run(async () => {
      checkKeys('batchExists', keys);
      const found = prefixLength(await this.#pages.exists(keys, { pool: MAIN_POOL }));
      this.#onLookup(keys.length, found);
      return found;
    });
  }

  /**
   * Publishes the pages of several pools; one list of results for each transfer, by its name. A transfer without keys
   * moves nothing.
   */
  async batchSetV2(
    transfers: readonly PoolTransfer[],
    request: RequestOptions = {},
  ): Promise<Record<string, boolean[]>> {
    return this.#turns.run(() => {
      checkRequest('batchSetV2', request);
      return this.#moveAll(this.#prepare('batchSetV2', transfers), ({ keys, pages, pool }) =>
        this.#pages.set(keys, pages, { ...request, pool, isNamed: false }),
      );
    });
  }

  /**
   * Reads the pages of several pools; one list of results for each transfer, by its name, as from {@link batchGetV1}.
   */
  async batchGetV2(
    transfers: readonly PoolTransfer[],
    request: RequestOptions = {},
  ): Promise<Record<string, boolean[]>> {
    return this.#turns.run(async () => {
      checkRequest('batchGetV2', request);
      const prepared = this.#prepare('batchGetV2', transfers);
      checkDistinct(
        'batchGetV2',
        prepared.flatMap(({ pages }) => pages),
      );
      return this.#moveAll(prepared, ({ keys, pages, pool }) => this.#pages.get(keys, pages, { ...request, pool }));
    });
  }

  /** The longest prefix that the KV pool and every pool of `transfers` can serve together. */
  async batchExistsV2(keys: readonly string[], transfers: readonly PoolTransfer[] = []): Promise<HybridHits> {
    return this.#turns.run(async () => {
      checkKeys('batchExistsV2', keys);
      checkTransfers('batchExistsV2', transfers);
      const extra = transfers.filter((transfer) => transfer.name !== MAIN_POOL);
      const [kv, ...others] = await Promise.all(
        [MAIN_POOL, ...extra.map((transfer) => transfer.name)].map((pool) => this.#pages.exists(keys, { pool })),
      );
      const hits = hybridHits(
        prefixLength(kv as boolean[]),
        extra.map((transfer, i) => ({
          name: transfer.name,
          present: others[i] as boolean[],
          trailingCount: transfer.hitPolicy === 'trailing_pages' ? Math.max(1, transfer.keys?.length ?? 0) : undefined,
        })),
      );
      this.#onLookup(keys.length, hits.kvHitPages);
      return hits;
    });
  }

  set(key: string, data: Uint8Array, request?: RequestOptions): Promise<boolean>;
  set(key: string, ptr: bigint, size: number, request?: RequestOptions): Promise<boolean>;
  set(key: string, source: bigint | Uint8Array, size?: number): Promise<boolean>;
  /** Publishes one entry from memory at `ptr`, or from `data`. */
  async set(key: string, source: bigint | Uint8Array, ...rest: SizeAndRequest): Promise<boolean> {
    return this.#turns.run(async () => {
      checkKeys('set', [key]);
      const { size, request } = sizeAndRequest('set', rest);
      return withPage('set', source, size, async (page) => {
        const [ok] = await this.#pages.set([key], [page], { ...request, pool: MAIN_POOL, isNamed: true });
        return ok === true;
      });
    });
  }

  get(key: string, request?: RequestOptions): Promise<Uint8Array | null>;
  get(key: string, into: Uint8Array, request?: RequestOptions): Promise<boolean>;
  get(key: string, ptr: bigint, size: number, request?: RequestOptions): Promise<boolean>;
  /** Reads one entry; a size other than the stored length is a miss. */
  async get(
    key: string,
    target?: bigint | Uint8Array | RequestOptions,
    ...rest: SizeAndRequest
  ): Promise<Uint8Array | boolean | null> {
    return this.#turns.run(async () => {
      checkKeys('get', [key]);
      if (target !== undefined && !isTold(target)) {
        const { size, request } = sizeAndRequest('get', rest);
        return withPage('get', target, size, async (page) => {
          const [ok] = await this.#pages.get([key], [page], { ...request, pool: MAIN_POOL });
          return ok === true;
        });
      }
      const request = target ?? {};
      checkRequest('get', request);
      return this.#pages.getCopy(key, { ...request, pool: MAIN_POOL });
    });
  }

  /**
   * Publishes `sizes` bytes each from `ptrs`, in registered or {@link HostRegion} memory; results are as from
   * {@link batchSetV1}.
   */
  batchSet(
    keys: string[],
    ptrs: ArrayLike<bigint>,
    sizes: ArrayLike<number>,
    request: RequestOptions = {},
  ): Promise<boolean[]> {
    return this.#turns.run(() => {
      checkRequest('batchSet', request);
      checkKeys('batchSet', keys);
      const pages = pointerPages('batchSet', keys.length, ptrs, sizes);
      return this.#pages.set(keys, pages, { ...request, pool: MAIN_POOL, isNamed: true });
    });
  }

  /** Reads pages to `ptrs`; results are as from {@link batchGetV1}. A size other than the stored length is a miss. */
  batchGet(
    keys: string[],
    ptrs: ArrayLike<bigint>,
    sizes: ArrayLike<number>,
    request: RequestOptions = {},
  ): Promise<boolean[]> {
    return this.#turns.run(() => {
      checkRequest('batchGet', request);
      checkKeys('batchGet', keys);
      const pages = pointerPages('batchGet', keys.length, ptrs, sizes);
      checkDistinct('batchGet', pages);
      return this.#pages.get(keys, pages, { ...request, pool: MAIN_POOL });
    });
  }

  /** Whether the directory has the key. Does not count as a use. */
  async exists(key: string): Promise<boolean> {
    return (await this.batchExists([key])) === 1;
  }

  /**
   * Deletes entries everywhere: in the pool and on the disk of every node, and in the directory. True: no node can read
   * the entry any more, except by reads that had begun before. False: a node did not answer within RPC_CALL_TIMEOUT_MS.
   * All others have dropped the entry, and that node is told again until it answers or is no longer a member; until
   * then it may still read the entry itself, and serve it to readers that ask it for a location. A key that no node has
   * is true.
   */
  async delete(keys: readonly string[]): Promise<boolean[]> {
    return this.#turns.run(() => {
      checkKeys('delete', keys);
      return this.#pages.delete(keys, { pool: MAIN_POOL });
    });
  }

  /**
   * Drops everything that this node has of the namespace, in its pool, copies included, on its disk and in the
   * directory, and the copies that other nodes have made of it unless another node has set the page. Of the pools of
   * {@link batchSetV2}, it clears those that this node has used since its start.
   */
  async clear(): Promise<void> {
    return this.#turns.run(() => this.#pages.clear([]));
  }

  #registerHostPool(method: string, pool: HostMemPool, name: string): Promise<void> {
    return this.#turns.run(() => {
      if (typeof name !== 'string' || name === '') {
        throw new ArgumentError(`${method}: name must be non-empty text, got ${shown(name)}`);
      }
      checkHostPool(method, pool);
      this.#hostPools.set(name, pool);
    });
  }

  /** Object keys and pages of a call on a host pool; every error of its arguments is thrown here. */
  #hostPages(method: string, name: string, keys: readonly string[], hostIndices: HostIndices): HostPages {
    checkKeys(method, keys);
    const pages = hostPoolPages(method, this.#hostPools.get(name), keys.length, hostIndices);
    return { pool: name, keys, pages };
  }

  #prepare(method: string, transfers: readonly PoolTransfer[]): HostPages[] {
    checkTransfers(method, transfers);
    return transfers.map(({ name, keys, hostIndices }) =>
      keys ? this.#hostPages(method, name, keys, hostIndices ?? []) : { pool: name, keys: [], pages: [] },
    );
  }

  async #moveAll(
    prepared: readonly HostPages[],
    move: (pages: HostPages) => Promise<boolean[]>,
  ): Promise<Record<string, boolean[]>> {
    const moved = prepared.map(async (some) => [some.pool, await move(some)] as const);
    // All transfers have ended before a failure is passed on: until then they use the caller's memory.
    await Promise.allSettled(moved);
    return Object.fromEntries(await Promise.all(moved));
  }
}

/** Arguments after the memory of one page: its size, if the memory is an address, and the facts about the request. */
type SizeAndRequest = [size?: number | RequestOptions, request?: RequestOptions];

function sizeAndRequest(
  method: string,
  [first, second]: SizeAndRequest,
): { readonly size: number | undefined; readonly request: RequestOptions } {
  const request = (isTold(first) ? first : second) ?? {};
  checkRequest(method, request);
  return { size: isTold(first) ? undefined : first, request };
}

/** Whether the argument describes a request and is not memory. */
function isTold(value: unknown): value is RequestOptions {
  return typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}
