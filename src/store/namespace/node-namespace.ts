import type { FairTurns } from '../../base/concurrency/fair-turns.js';
import { ArgumentError } from '../../base/errors.js';
import { FINGERPRINT, FINGERPRINT_ALLOWED } from '../../base/settings/fields.js';
import { checkNames } from '../../base/settings/known-names.js';
import { shown } from '../../base/shown.js';
import { NAMESPACE_PARTS } from '../../core/binding/key-encoder.js';
import type { KeyNamespace } from '../../core/index.js';
import { checkOptions, NO_OPTIONS, type WaitOptions } from '../call/call-options.js';
import { blamed } from './call-arguments.js';
import type { StoredPages } from './namespace-pages.js';
import { StoreNamespace } from './store-namespace.js';

/** Options of `keys`. */
export interface KeysOptions extends WaitOptions {
  /** Name of the pool. Default: `kv`, the main one. */
  readonly pool?: string | undefined;
}

/** A namespace of a node in this process. Besides reading and writing, it lists the pages that the node itself has. */
export class NodeNamespace extends StoreNamespace {
  readonly #pages: StoredPages;

  /** @internal */
  constructor(pages: StoredPages, turns: FairTurns, onLookup: (asked: number, found: number) => void) {
    super(pages, turns, onLookup);
    this.#pages = pages;
  }

  /**
   * Lists the keys of the pages that this node itself has, in its pool and on its disk, the next victims of eviction
   * first. Does not count as a use. The event loop gets its turn every few thousand keys; pages that come or go
   * meanwhile may be missing, or appear twice. Rejects with the signal's reason on abort, with a `TimeoutError` when
   * the time is over, and with `ClosedError` when the store is closed.
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

/**
 * Namespace parts of a configuration that does not set them, so that a store with that configuration and this namespace
 * share their pages.
 */
const DEFAULT_PARTS = { dtype: '', layout: '', tag: '', tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };

/**
 * Fills in missing parts of a namespace, as for the configuration of a store: texts are empty, except the name of the
 * model; ranks are 0 and sizes 1. Throws `ArgumentError` for unknown parts.
 */
export function wholeNamespace(parts: Partial<KeyNamespace>): KeyNamespace {
  if (typeof parts !== 'object' || parts === null) {
    throw new ArgumentError(`namespace: must be an object, got ${shown(parts)}`);
  }
  checkNames('namespace', parts, NAMESPACE_PARTS, 'part');
  const { fingerprint = '' } = parts;
  if (fingerprint !== '' && !(typeof fingerprint === 'string' && FINGERPRINT.test(fingerprint))) {
    throw new ArgumentError(`namespace: fingerprint ${shown(fingerprint)}; allowed are ${FINGERPRINT_ALLOWED}`);
  }
  const given = Object.entries(parts).filter(([, part]) => part !== undefined);
  return { ...DEFAULT_PARTS, ...Object.fromEntries(given) };
}
