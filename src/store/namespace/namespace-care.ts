import type { FairTurns } from '../../base/concurrency/fair-turns.js';
import { NO_OPTIONS } from '../call/call-options.js';
import {
  blamed,
  type PinOptions,
  type PrefetchOptions,
  pinName,
  pinOptions,
  prefetchOptions,
  type UnpinOptions,
  unpinOptions,
} from './call-arguments.js';
import { checkedKeys } from './host-pool.js';
import { MAIN_POOL } from './hybrid.js';
import type { NamespacePages } from './namespace-pages.js';
import { type TellOptions, tellNews } from './session-options.js';

/** What a program asks of a namespace for pages that it does not read yet: pins, prefetching, news of sessions. */
export class NamespaceCare {
  readonly #pages: NamespacePages;
  readonly #turns: FairTurns;

  /** @internal */
  constructor(pages: NamespacePages, turns: FairTurns) {
    [this.#pages, this.#turns] = [pages, turns];
  }

  /**
   * Keeps pages in the pool of this node: they are not evicted for `forMs` milliseconds. True for each page that is
   * pinned; false: no node has it, or it is above the limits of the node (`pin_max_share`). A page on the disk or on
   * another node is brought into the pool first. Pinning again extends the time. A pin ends with its time, with this
   * store or client, and when its page is deleted, cleared or overwritten.
   *
   * With a `name` in place of a time, such as that of a system prompt, the pages stay pinned until {@link endPins},
   * even when this store's or client's program ends; a restart of the node ends them. Pages may be added to a name.
   *
   * @example
   * import { MeshCacheStore } from 'meshcache';
   *
   * await using store = await MeshCacheStore.create({ discoveryAddr: '127.0.0.1:31990' });
   * await store.pin(['prompt-0', 'prompt-1'], { forMs: 60_000 }); // [true, true]
   */
  async pin(keys: readonly string[], options: PinOptions): Promise<boolean[]> {
    return this.#turns.run(() => {
      const call = pinOptions(options, MAIN_POOL);
      const own = checkedKeys('pin', keys);
      return blamed('pin', () => this.#pages.pin(own, call));
    });
  }

  /** Ends the pins with a name, whoever has made them; returns the number of pages that had it. */
  async endPins(name: string): Promise<number> {
    return this.#turns.run(() => this.#pages.endPins(pinName('endPins', name)));
  }

  /** Ends pins of this store or client; true for each page that it had pinned. */
  async unpin(keys: readonly string[], options: UnpinOptions = NO_OPTIONS): Promise<boolean[]> {
    return this.#turns.run(() => {
      const call = unpinOptions(options, MAIN_POOL);
      const own = checkedKeys('unpin', keys);
      return blamed('unpin', () => this.#pages.unpin(own, call));
    });
  }

  /**
   * Brings pages from the disk, from other nodes or the object store into the pool of this node, before they are read.
   * `by`: seconds from now by which they should be there; default: as soon as possible. Resolves when that has been
   * done, with true for each page that is in the pool. Reads and writes go first. Aborting the signal ends it; what has
   * been brought stays.
   *
   * @example
   * import { MeshCacheStore } from 'meshcache';
   *
   * await using store = await MeshCacheStore.create({ discoveryAddr: '127.0.0.1:31990' });
   * await store.prefetch(['turn-0', 'turn-1'], { by: 20 }); // [true, false]: nobody has the second one
   */
  async prefetch(keys: readonly string[], options: PrefetchOptions = NO_OPTIONS): Promise<boolean[]> {
    return this.#turns.run(() => {
      const call = prefetchOptions(options, MAIN_POOL);
      const own = checkedKeys('prefetch', keys);
      return blamed('prefetch', () => this.#pages.prefetch(own, call));
    });
  }

  /**
   * Tells what a session, a conversation or a run of an agent, does next: that its next request comes in `waiting`
   * seconds, that it goes on from `keys` alone (`branched`), that it has `ended`. The eviction policy `yield` then drops
   * those pages first that are needed last, wherever they are. A hint: it may be wrong, or come late.
   *
   * The pages of a session are those of its calls with the same `session` and the `keys` told here. Pages of several
   * sessions stay as they are.
   *
   * @example
   * import { MeshCacheStore } from 'meshcache';
   *
   * await using store = await MeshCacheStore.create({ discoveryAddr: '127.0.0.1:31990', evictionPolicy: 'yield' });
   * await store.tell('agent-7', { keys: ['turn-0', 'turn-1'], waiting: 120 }); // a test run of two minutes
   * await store.tell('agent-7', { ended: true });
   */
  async tell(session: string, options: TellOptions): Promise<void> {
    return this.#turns.run(() => {
      const news = tellNews(session, options, MAIN_POOL);
      const keys = options.keys === undefined ? undefined : checkedKeys('tell', options.keys);
      return blamed('tell', () => this.#pages.tell(session, { ...news, keys }));
    });
  }
}
