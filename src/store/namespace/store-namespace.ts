import type { FairTurns } from '../../base/concurrency/fair-turns.js';
import { ArgumentError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import {
  checkOptions,
  type MissReason,
  NO_OPTIONS,
  type ReadOptions,
  Reasons,
  type RefusalReason,
  type WaitOptions,
  type WriteOptions,
} from '../call/call-options.js';
import {
  blamed,
  checkCall,
  type GetResult,
  isOptions,
  type ReadResult,
  type SetResult,
  type SizeAndOptions,
  sizeAndOptions,
  tell,
  withReason,
} from './call-arguments.js';
import {
  checkDistinct,
  checkedKeys,
  checkHostPool,
  type HostIndices,
  type HostMemPool,
  type HostPages,
  hostPoolPages,
  type PageMemory,
  pointerPages,
  withPage,
} from './host-pool.js';
import {
  checkTransfers,
  furtherPools,
  type HybridHits,
  hybridHits,
  MAIN_POOL,
  type PoolTransfer,
  prefixLength,
} from './hybrid.js';
import { NamespaceCare } from './namespace-care.js';
import type { NamespacePages } from './namespace-pages.js';
import { newsOf } from './session-options.js';

/**
 * The pages of one namespace, read and written through one node. Stores and namespaces with the same parts share their
 * pages, on whichever node they are; others never do.
 *
 * Pointers are addresses within live `HostRegion`s. A buffer passed to a call is in use until the call's promise has
 * resolved; nothing reads or writes it afterwards. Lists of keys, pointers and sizes may change once the call is made.
 * A miss is `false`, `null` or a shorter prefix, never an exception. Wrong arguments throw `ArgumentError` before
 * anything is touched; any call after `close()` throws `ClosedError`.
 *
 * The last argument of every call has options: `signal` and `timeoutMs` end it early, as a miss; `onMiss` and
 * `onRefused` are told the reason for each page that was not read or set; `hint` and `caller` describe the request. The
 * keys of a call are in the order of a prefix, its head first. The eviction policy `yield` learns from both; for other
 * policies they are only counted.
 */
export class StoreNamespace extends NamespaceCare {
  readonly #pages: NamespacePages;
  readonly #turns: FairTurns;
  readonly #onLookup: (asked: number, found: number) => void;
  readonly #hostPools = new Map<string, HostMemPool>();

  /**
   * `onLookup` is called for each lookup with the number of keys asked for, and the number found before the first gap.
   *
   * @internal
   */
  constructor(pages: NamespacePages, turns: FairTurns, onLookup: (asked: number, found: number) => void) {
    super(pages, turns);
    this.#pages = pages;
    this.#turns = turns;
    this.#onLookup = onLookup;
  }

  /**
   * Registers the framework's main host buffer; a later one replaces it. {@link hostPages} describes consecutive pages.
   */
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
  batchSetV1(keys: string[], hostIndices: HostIndices, options: WriteOptions = NO_OPTIONS): Promise<boolean[]> {
    return this.#turns.run(() => {
      checkCall('batchSetV1', options);
      const pages = this.#hostPages('batchSetV1', MAIN_POOL, keys, hostIndices);
      return this.#set('batchSetV1', pages, options, { isNamed: false });
    });
  }

  /**
   * Reads pages into the registered host pool, page i to `hostIndices[i * pageSize]`; true for each page whose buffer
   * holds exactly the bytes that were set. Anything else is a miss. The buffers are in use until the call resolves.
   * Throws `ArgumentError` before anything is touched.
   */
  batchGetV1(keys: string[], hostIndices: HostIndices, options: ReadOptions = NO_OPTIONS): Promise<boolean[]> {
    return this.#turns.run(() => {
      checkCall('batchGetV1', options);
      const pages = this.#hostPages('batchGetV1', MAIN_POOL, keys, hostIndices);
      checkDistinct('batchGetV1', pages.pages);
      return this.#get('batchGetV1', pages, options);
    });
  }

  /** Counts the keys that exist before the first gap. Does not count as a use. */
  async batchExists(keys: string[], options: WaitOptions = NO_OPTIONS): Promise<number> {
    return this.#turns.run(() => this.#prefix('batchExists', keys, options));
  }

  /**
   * Publishes the pages of several pools; one list of results for each transfer, by its name. A transfer without keys
   * moves nothing.
   */
  async batchSetV2(
    transfers: readonly PoolTransfer[],
    options: WriteOptions = NO_OPTIONS,
  ): Promise<Record<string, boolean[]>> {
    return this.#turns.run(() => {
      checkCall('batchSetV2', options);
      const prepared = this.#prepare('batchSetV2', transfers);
      return this.#moveAll(prepared, (pages) => this.#set('batchSetV2', pages, options, { isNamed: false }));
    });
  }

  /**
   * Reads the pages of several pools; one list of results for each transfer, by its name, as from {@link batchGetV1}.
   */
  async batchGetV2(
    transfers: readonly PoolTransfer[],
    options: ReadOptions = NO_OPTIONS,
  ): Promise<Record<string, boolean[]>> {
    return this.#turns.run(async () => {
      checkCall('batchGetV2', options);
      const prepared = this.#prepare('batchGetV2', transfers);
      checkDistinct(
        'batchGetV2',
        prepared.flatMap(({ pages }) => pages),
      );
      return this.#moveAll(prepared, (pages) => this.#get('batchGetV2', pages, options));
    });
  }

  /** The longest prefix that the KV pool and every pool of `transfers` can serve together. */
  async batchExistsV2(
    keys: readonly string[],
    transfers: readonly PoolTransfer[] = [],
    options: WaitOptions = NO_OPTIONS,
  ): Promise<HybridHits> {
    return this.#turns.run(async () => {
      checkOptions('batchExistsV2', options);
      const own = checkedKeys('batchExistsV2', keys);
      const extra = furtherPools('batchExistsV2', transfers);
      const pools = [MAIN_POOL, ...extra.map(({ name }) => name)];
      const [kv, ...others] = await blamed('batchExistsV2', () =>
        Promise.all(pools.map((pool) => this.#pages.exists(own, { ...options, pool }))),
      );
      const hits = hybridHits(
        prefixLength(kv as boolean[]),
        extra.map((pool, i) => ({ ...pool, present: others[i] as boolean[] })),
      );
      this.#onLookup(own.length, hits.kvHitPages);
      return hits;
    });
  }

  set(key: string, data: PageMemory, options?: WriteOptions): Promise<boolean>;
  set(key: string, ptr: bigint, size: number, options?: WriteOptions): Promise<boolean>;
  set(key: string, source: bigint | PageMemory, size?: number): Promise<boolean>;
  /**
   * Publishes one entry from memory at `ptr`, or from `data`: a Buffer, any other typed array, a DataView or a whole
   * buffer.
   */
  async set(key: string, source: bigint | PageMemory, ...rest: SizeAndOptions<WriteOptions>): Promise<boolean> {
    return this.#turns.run(() => this.#setOne('set', { key, source, ...sizeAndOptions('set', rest) }));
  }

  setDetailed(key: string, data: PageMemory, options?: WriteOptions): Promise<SetResult>;
  setDetailed(key: string, ptr: bigint, size: number, options?: WriteOptions): Promise<SetResult>;
  /**
   * Publishes one entry, as {@link set} does, and says why if it has not been set.
   *
   * @example
   * import { MeshCacheStore } from 'meshcache';
   *
   * await using store = await MeshCacheStore.create({ discoveryAddr: '127.0.0.1:31990' });
   * const { isSet, reason } = await store.setDetailed('weights', new Float32Array(1024));
   * if (!isSet) console.warn(`not cached: ${reason}`); // for example too_large
   */
  async setDetailed(
    key: string,
    source: bigint | PageMemory,
    ...rest: SizeAndOptions<WriteOptions>
  ): Promise<SetResult> {
    return this.#turns.run(async () => {
      const { size, options } = sizeAndOptions('setDetailed', rest);
      let reason: RefusalReason = 'unknown';
      const onRefused: WriteOptions['onRefused'] = (index, why, pool) => {
        reason = why;
        options.onRefused?.(index, why, pool);
      };
      const isSet = await this.#setOne('setDetailed', { key, source, size, options: { ...options, onRefused } });
      return isSet ? { isSet } : { isSet, reason };
    });
  }

  get(key: string, options?: ReadOptions): Promise<Uint8Array | null>;
  get(key: string, into: PageMemory, options?: ReadOptions): Promise<boolean>;
  get(key: string, ptr: bigint, size: number, options?: ReadOptions): Promise<boolean>;
  /** Reads one entry; a size other than the stored length is a miss. */
  async get(
    key: string,
    target?: bigint | PageMemory | ReadOptions,
    ...rest: SizeAndOptions<ReadOptions>
  ): Promise<Uint8Array | boolean | null> {
    return this.#turns.run(() => this.#getOne('get', key, target, rest));
  }

  getDetailed(key: string, options?: ReadOptions): Promise<GetResult>;
  getDetailed(key: string, into: PageMemory, options?: ReadOptions): Promise<ReadResult>;
  getDetailed(key: string, ptr: bigint, size: number, options?: ReadOptions): Promise<ReadResult>;
  /**
   * Reads one entry, as {@link get} does, and says why if it has not been read.
   *
   * @example
   * import { MeshCacheStore } from 'meshcache';
   *
   * await using store = await MeshCacheStore.create({ discoveryAddr: '127.0.0.1:31990' });
   * const { page, reason } = await store.getDetailed('greeting', { timeoutMs: 200 });
   * console.log(page ?? `not read: ${reason}`); // for example absent, or timed_out
   */
  async getDetailed(
    key: string,
    target?: bigint | PageMemory | ReadOptions,
    ...rest: SizeAndOptions<ReadOptions>
  ): Promise<GetResult | ReadResult> {
    return this.#turns.run(async () => {
      let reason: MissReason = 'unknown';
      const found = await this.#getOne('getDetailed', key, target, rest, (why) => {
        reason = why;
      });
      if (typeof found === 'boolean') return found ? { isRead: found } : { isRead: found, reason };
      return found === null ? { page: found, reason } : { page: found };
    });
  }

  /**
   * Reads copies of entries of any length, which the caller owns; null for each one that has not been read.
   *
   * @example
   * import { MeshCacheStore } from 'meshcache';
   *
   * await using store = await MeshCacheStore.create({ discoveryAddr: '127.0.0.1:31990' });
   * const [first, second] = await store.getMany(['a', 'b'], { timeoutMs: 500 });
   * console.log(first?.length, second?.length);
   */
  getMany(keys: readonly string[], options: ReadOptions = NO_OPTIONS): Promise<(Uint8Array | null)[]> {
    return this.#turns.run(async () => {
      checkCall('getMany', options);
      const own = checkedKeys('getMany', keys);
      const reasons = options.onMiss && new Reasons<MissReason>();
      const copies = await this.#inSession({ keys: own, pool: MAIN_POOL, options }, () =>
        blamed('getMany', () => this.#pages.getCopies(own, { ...options, pool: MAIN_POOL, reasons })),
      );
      if (reasons !== undefined) {
        tell(
          copies.map((copy) => copy !== null),
          (i) => options.onMiss?.(i, reasons.of(i) ?? 'unknown', MAIN_POOL),
        );
      }
      return copies;
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
    options: WriteOptions = NO_OPTIONS,
  ): Promise<boolean[]> {
    return this.#turns.run(() => {
      checkCall('batchSet', options);
      const own = checkedKeys('batchSet', keys);
      const pages = pointerPages('batchSet', own.length, ptrs, sizes);
      return this.#set('batchSet', { keys: own, pages, pool: MAIN_POOL }, options, { isNamed: true });
    });
  }

  /** Reads pages to `ptrs`; results are as from {@link batchGetV1}. A size other than the stored length is a miss. */
  batchGet(
    keys: string[],
    ptrs: ArrayLike<bigint>,
    sizes: ArrayLike<number>,
    options: ReadOptions = NO_OPTIONS,
  ): Promise<boolean[]> {
    return this.#turns.run(() => {
      checkCall('batchGet', options);
      const own = checkedKeys('batchGet', keys);
      const pages = pointerPages('batchGet', own.length, ptrs, sizes);
      checkDistinct('batchGet', pages);
      return this.#get('batchGet', { keys: own, pages, pool: MAIN_POOL }, options);
    });
  }

  /** Whether the directory has the key. Does not count as a use. */
  async exists(key: string, options: WaitOptions = NO_OPTIONS): Promise<boolean> {
    return this.#turns.run(async () => (await this.#prefix('exists', [key], options)) === 1);
  }

  /**
   * Deletes entries everywhere: in the pool and on the disk of every node, and in the directory. True: no node can read
   * the entry any more, except by reads that had begun before. False: a node did not answer within RPC_CALL_TIMEOUT_MS,
   * or the call was ended early. All others have dropped the entry, and that node is told again until it answers or is
   * no longer a member; until then it may still read the entry itself, and serve it to readers that ask it for a
   * location. A key that no node has is true.
   */
  async delete(keys: readonly string[], options: WaitOptions = NO_OPTIONS): Promise<boolean[]> {
    return this.#turns.run(() => {
      checkOptions('delete', options);
      const own = checkedKeys('delete', keys);
      return blamed('delete', () => this.#pages.delete(own, { ...options, pool: MAIN_POOL }));
    });
  }

  /**
   * Drops everything that this node has of the namespace, in its pool, copies included, on its disk and in the
   * directory, and the copies that other nodes have made of it unless another node has set the page. Of the pools of
   * {@link batchSetV2}, it clears those that this node has used since its start. When the signal is aborted or the time
   * is over, it rejects with the signal's reason, a `TimeoutError` for the time: the pages have gone here, and other
   * nodes are still being told.
   */
  async clear(options: WaitOptions = NO_OPTIONS): Promise<void> {
    return this.#turns.run(() => {
      checkOptions('clear', options);
      return this.#pages.clear([], options);
    });
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

  async #prefix(method: string, keys: readonly string[], options: WaitOptions): Promise<number> {
    checkOptions(method, options);
    const own = checkedKeys(method, keys);
    const found = prefixLength(await blamed(method, () => this.#pages.exists(own, { ...options, pool: MAIN_POOL })));
    this.#onLookup(own.length, found);
    return found;
  }

  async #setOne(method: string, { key, source, size, options }: OnePage): Promise<boolean> {
    const keys = checkedKeys(method, [key]);
    return withPage(method, source, size, async (page) => {
      const one = { keys, pages: [page], pool: MAIN_POOL };
      return (await this.#set(method, one, options, { isNamed: true }))[0] === true;
    });
  }

  async #getOne(
    method: string,
    key: string,
    target: bigint | PageMemory | ReadOptions | undefined,
    rest: SizeAndOptions<ReadOptions>,
    onReason?: (reason: MissReason) => void,
  ): Promise<Uint8Array | boolean | null> {
    const keys = checkedKeys(method, [key]);
    const isCopy = target === undefined || isOptions(target);
    const { size, options: given } = sizeAndOptions<ReadOptions>(
      method,
      isOptions(target) ? [target as ReadOptions] : rest,
    );
    const options = onReason === undefined ? given : withReason(given, onReason);
    if (!isCopy) {
      return withPage(method, target, size, async (page) => {
        return (await this.#get(method, { keys, pages: [page], pool: MAIN_POOL }, options))[0] === true;
      });
    }
    const reasons = options.onMiss && new Reasons<MissReason>();
    const copy = await this.#inSession({ keys, pool: MAIN_POOL, options }, () =>
      blamed(method, () => this.#pages.getCopy(key, { ...options, pool: MAIN_POOL, reasons })),
    );
    if (copy === null) options.onMiss?.(0, reasons?.of(0) ?? 'unknown', MAIN_POOL);
    return copy;
  }

  /** Reads pages, and reports the reasons for misses if the caller wants them. */
  #get(method: string, { keys, pages, pool }: HostPages, options: ReadOptions): Promise<boolean[]> {
    const { onMiss } = options;
    const reasons = onMiss && new Reasons<MissReason>();
    const reading = blamed(method, () => this.#pages.get(keys, pages, { ...options, pool, reasons }));
    if (onMiss === undefined && options.session === undefined) return reading;
    return this.#inSession({ keys, pool, options }, async () => {
      const results = await reading;
      if (onMiss !== undefined) tell(results, (i) => onMiss(i, reasons?.of(i) ?? 'unknown', pool));
      return results;
    });
  }

  /** Sets pages, and reports the reasons for failures if the caller wants them. */
  #set(
    method: string,
    { keys, pages, pool }: HostPages,
    options: WriteOptions,
    { isNamed }: { readonly isNamed: boolean },
  ): Promise<boolean[]> {
    const { onRefused } = options;
    const refusals = onRefused && new Reasons<RefusalReason>();
    const setting = blamed(method, () => this.#pages.set(keys, pages, { ...options, pool, isNamed, refusals }));
    if (onRefused === undefined && options.session === undefined) return setting;
    return this.#inSession({ keys, pool, options }, async () => {
      const results = await setting;
      if (onRefused !== undefined) tell(results, (i) => onRefused(i, refusals?.of(i) ?? 'unknown', pool));
      return results;
    });
  }

  /** Ends a call, and then tells what its session does next, if it has one; the caller does not wait for that. */
  async #inSession<T>({ keys, pool, options }: SessionCall, end: () => Promise<T>): Promise<T> {
    const { session } = options;
    if (session === undefined) return end();
    const told = [...keys];
    const result = await end();
    this.#pages.tell(session, { ...newsOf(options), keys: told, pool }).catch(() => {});
    return result;
  }

  /** Object keys and pages of a call on a host pool; throws all argument errors. */
  #hostPages(method: string, name: string, keys: readonly string[], hostIndices: HostIndices): HostPages {
    const own = checkedKeys(method, keys);
    const pages = hostPoolPages(method, this.#hostPools.get(name), own.length, hostIndices);
    return { pool: name, keys: own, pages };
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
    // All transfers must end before a failure is passed on: until then they use the caller's memory.
    await Promise.allSettled(moved);
    return Object.fromEntries(await Promise.all(moved));
  }
}

/** The pages of a call, and its options. */
interface SessionCall {
  readonly keys: readonly string[];
  readonly pool: string;
  readonly options: ReadOptions | WriteOptions;
}

/** One entry to set. */
interface OnePage {
  readonly key: string;
  readonly source: bigint | PageMemory;
  readonly size: number | undefined;
  readonly options: WriteOptions;
}
