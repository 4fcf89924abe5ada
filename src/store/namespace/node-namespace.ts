import { checkOptions, NO_OPTIONS, type WaitOptions } from '../call/call-options.js';
import { blamed } from './call-arguments.js';
import type { StoredPages } from './namespace-pages.js';
import { StoreNamespace, type StoreNamespaceParts } from './store-namespace.js';

/** Options of `keys`. */
export interface KeysOptions extends WaitOptions {
  /** Name of the pool. Default: `kv`, the main one. */
  readonly pool?: string | undefined;
}

/** Parts of a namespace of this node. */
export interface NodeNamespaceParts extends StoreNamespaceParts {
  readonly namespacePages: StoredPages;
}

/**
 * A namespace of a node of this process: in addition to reading and writing, it lists the pages that the node has
 * itself.
 */
export class NodeNamespace extends StoreNamespace {
  readonly #pages: StoredPages;

  /** @internal */
  constructor(parts: NodeNamespaceParts) {
    super(parts);
    this.#pages = parts.namespacePages;
  }

  /**
   * Keys of the pages that this node itself has, in its pool and on its disk, the next victims of eviction first. It
   * does not count as a use. The event loop has its turn every few thousand keys; pages that come or go meanwhile may
   * be left out, or come twice. Rejects with the signal's reason when it is aborted, a `TimeoutError` when the time is
   * over, and with `ClosedError` when the store is closed.
   *
   * @example
   * import { MeshCacheStore } from 'meshcache';
   *
   * await using store = await MeshCacheStore.create({ discoveryAddr: '127.0.0.1:31990' });
   * for await (const key of store.keys()) console.log(key);
   */
  async *keys(options: KeysOptions = NO_OPTIONS): AsyncGenerator<string, void> {
    checkOptions('keys', options, 'pool');
    const { pool = '', signal, timeoutMs } = options;
    const slices = blamed('keys', () => this.#pages.keysInSlices({ pool, signal, timeoutMs }));
    for await (const keys of slices) yield* keys;
  }
}
