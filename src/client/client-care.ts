import { MeshCacheError } from '../base/errors.js';
import { PREFETCH_LEAD_MS } from '../base/limits.js';
import { encodeEndPins, encodePin, encodePrefetch, encodeTell } from '../clients/wire/care-messages.js';
import { Capability, encodeKeyRequest, RequestType } from '../clients/wire/messages.js';
import type {
  PageOptions,
  PagePinOptions,
  PagePrefetchOptions,
  PageSessionNews,
} from '../store/namespace/namespace-pages.js';
import type { Call, ClientCalls } from './client-calls.js';

const U32_MAX = 2 ** 32 - 1;
/** What a node can do that has a capability, for errors. */
const NEEDS = { pins: 'pin pages', sessions: 'prefetch pages, nor pin them by name' } as const;

/** What a client asks its node for pages that it does not read yet: pins, prefetching and hints about sessions. */
export class ClientCare {
  readonly #calls: ClientCalls;

  constructor(calls: ClientCalls) {
    this.#calls = calls;
  }

  /**
   * Pins pages in the pool of the node. Throws `ERR_REMOTE` if the node's version cannot pin, and `ArgumentError` for a
   * time that the node does not allow.
   */
  async pin(keys: readonly string[], { forMs = 0, name, ...options }: PagePinOptions): Promise<boolean[]> {
    const { pool } = options;
    const call = this.#callWith(name === undefined ? 'pins' : 'sessions', keys, options);
    return this.#calls.inSlices(call, keys, {
      type: RequestType.pin,
      bodyOf: (some) => encodePin({ pool, forMs: Math.min(Math.ceil(forMs), U32_MAX), name, keys: some }),
      headBytes: 0,
    });
  }

  /** Ends the pins with a name; returns the number of pages that had it, 0 if the node does not answer. */
  async endPins(name: string): Promise<number> {
    const call = this.#callWith('sessions', [], { pool: '' });
    const answer = await this.#calls.ask(call, RequestType.endPins, encodeEndPins(name));
    return answer?.length === 4 ? answer.readUInt32LE() : 0;
  }

  async unpin(keys: readonly string[], options: PageOptions): Promise<boolean[]> {
    const call = this.#callWith('pins', keys, options);
    return this.#calls.inSlices(call, keys, {
      type: RequestType.unpin,
      bodyOf: (some) => encodeKeyRequest(options.pool, some, { hasFlags: false }),
      headBytes: 0,
    });
  }

  /**
   * Brings pages into the pool of the node. Throws `ERR_REMOTE` if the node's version cannot. A node answers at once to
   * a request for pages that are expected later than PREFETCH_LEAD_MS, so the request is made then.
   */
  async prefetch(keys: readonly string[], { inMs, ...options }: PagePrefetchOptions): Promise<boolean[]> {
    const { pool, signal } = options;
    const timeoutMs = options.timeoutMs ?? inMs + this.#calls.timeoutMs;
    const laterMs = Math.max(0, inMs - PREFETCH_LEAD_MS);
    this.#callWith('sessions', keys, { pool });
    if (laterMs > 0 && !(await this.#calls.wait(Math.min(laterMs, timeoutMs), signal))) return keys.map(() => false);
    const call = this.#callWith('sessions', keys, { pool, signal, timeoutMs: timeoutMs - laterMs });
    return this.#calls.inSlices(call, keys, {
      type: RequestType.prefetch,
      bodyOf: (some) => encodePrefetch({ pool, inMs: inMs - laterMs, keys: some }),
      headBytes: 0,
    });
  }

  /** Tells the node about a session, if there is a node and its version takes hints about sessions. */
  async tell(session: string, { keys = [], ...news }: PageSessionNews): Promise<void> {
    const call = this.#calls.begin(keys, { pool: news.pool });
    if (call === undefined || (call.link.hello.capabilities & Capability.sessions) === 0) return;
    const slices = [...this.#calls.slices(call, keys)];
    for (const { start, keys: some } of slices.slice(0, -1)) {
      const { pool, branched, shared = 0 } = news;
      const part = { pool, session, branched: branched === true && start === 0, shared: Math.max(0, shared - start) };
      await this.#calls.ask(call, RequestType.tell, encodeTell({ ...part, keys: some }));
    }
    const { start = 0, keys: last = [] } = slices.at(-1) ?? {};
    const shared = Math.max(0, (news.shared ?? 0) - start);
    const branched = news.branched === true && start === 0;
    await this.#calls.ask(call, RequestType.tell, encodeTell({ ...news, session, branched, shared, keys: last }));
  }

  /** Begins a call that needs a capability. Throws `ERR_REMOTE` if the node's version does not have it. */
  #callWith(needed: keyof typeof NEEDS, keys: readonly string[], options: PageOptions): Call | undefined {
    const call = this.#calls.begin(keys, options);
    const hello = call?.link.hello;
    if (hello === undefined || (hello.capabilities & Capability[needed]) !== 0) return call;
    throw new MeshCacheError(
      'ERR_REMOTE',
      `node ${hello.nodeId} has version ${hello.packageVersion}, which cannot ${NEEDS[needed]}; update the node`,
    );
  }
}
