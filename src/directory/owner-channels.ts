import type { HybridClock } from '../base/concurrency/hybrid-clock.js';
import type { Environment } from '../base/environment/environment.js';
import type { MetricsSink } from '../base/environment/metrics-sink.js';
import type { Endpoint } from '../base/environment/network.js';
import { DIRECTORY_REQUESTS_IN_FLIGHT_MAX_COUNT } from '../base/limits.js';
import { RpcClient } from '../rpc/client.js';
import type { DataLocation } from '../types.js';
import { countFailure } from './directory-metrics.js';
import { decodeKeys, encodeKeys } from './key-column.js';
import { LocationColumns } from './location-columns.js';
import { type KeyBatch, type RequestKind, RequestQueue } from './request-queue.js';
import type { DirectoryShard } from './shard.js';
import {
  asFields,
  DirectoryMethod,
  keyFields,
  locationFields,
  type PutAnswer,
  readFlags,
  readLocations,
  readPutAnswer,
} from './wire.js';

/** Address of a node's control port; undefined while it is not known. */
export type ResolveControl = (nodeId: string) => Endpoint | undefined;

/** What goes to an owner in order: locations, or which of whose to drop. */
interface Statement extends KeyBatch {
  readonly columns?: LocationColumns;
  readonly unlessHeld?: boolean;
  readonly dropped?: Dropped;
}

/** What a node has stated up to a generation, and with `withCopies` the copies of it. */
export interface Dropped {
  readonly nodeId: string;
  readonly incarnation: number;
  readonly generation: number;
  readonly withCopies: boolean;
}

/** Keys to be found, and the nodes by which they could not be read. */
export interface Search extends KeyBatch {
  readonly avoided: readonly string[];
}

/** Reads a location out of an answer. */
export type FoundLocations = (i: number) => DataLocation | null;

export interface OwnerChannelsOptions {
  /** The own node, whose shard is asked without a socket. */
  readonly nodeId: string;
  readonly localShard: DirectoryShard | undefined;
  /** See `DirectoryServerOptions`: for what the own shard displaces. */
  readonly displacedTold: () => Promise<void>;
  readonly resolveControl: ResolveControl;
  /** Used, not closed. Undefined: one of its own. */
  readonly rpc: RpcClient | undefined;
  readonly env: Environment;
  readonly timeoutMs: number | undefined;
  /** Sees the versions that shards know of. */
  readonly versions: HybridClock;
}

/**
 * The ways to the shards of directory owners: the own one by a call, the others by requests, of which a few are under way to each
 * owner at once. Puts and deletes to one owner arrive in the order of their calls. Nothing here rejects.
 */
export class OwnerChannels {
  readonly #nodeId: string;
  readonly #localShard: DirectoryShard | undefined;
  readonly #displacedTold: () => Promise<void>;
  readonly #resolveControl: ResolveControl;
  readonly #rpc: RpcClient;
  readonly #ownsRpc: boolean;
  readonly #timeoutMs: number | undefined;
  readonly #metrics: MetricsSink;
  readonly #versions: HybridClock;
  /** By owner; an owner that nothing is asked of has none. */
  readonly #statements = new Map<string, RequestQueue<Statement, PutAnswer>>();
  readonly #gets = new Map<string, RequestQueue<Search, FoundLocations>>();
  readonly #existences = new Map<string, RequestQueue<KeyBatch, Uint8Array>>();

  constructor(options: OwnerChannelsOptions) {
    this.#nodeId = options.nodeId;
    this.#localShard = options.localShard;
    this.#displacedTold = options.displacedTold;
    this.#resolveControl = options.resolveControl;
    this.#rpc = options.rpc ?? new RpcClient({ env: options.env });
    this.#ownsRpc = options.rpc === undefined;
    this.#timeoutMs = options.timeoutMs;
    this.#metrics = options.env.metrics;
    this.#versions = options.versions;
  }

  /** Undefined, here and below: the owner is not reachable, failed, or answered what cannot be right. */
  async put(
    ownerId: string,
    keys: readonly string[],
    columns: LocationColumns,
    unlessHeld = false,
  ): Promise<PutAnswer | undefined> {
    const shard = this.#localShard;
    let answer: PutAnswer | undefined;
    if (shard !== undefined && this.#isLocal(ownerId)) {
      // The shard keeps its keys: through the column they become strings that hold on to nothing of the caller's.
      const taken = shard.put(decodeKeys(encodeKeys(keys), true), columns, { unlessHeld });
      await this.#displacedTold();
      answer = { taken, newestVersion: shard.newestVersion };
    } else {
      const statement = { keys, columns, unlessHeld };
      answer = await this.#inQueue(this.#statements, ownerId, statement, this.#statementKind(ownerId));
    }
    if (answer !== undefined) this.#versions.see(answer.newestVersion);
    return answer;
  }

  async get(ownerId: string, search: Search): Promise<FoundLocations | undefined> {
    if (this.#isLocal(ownerId)) {
      const found = this.#localShard?.get(search.keys, this.#nodeId, search.avoided);
      return found && ((i) => found.locationAt(i));
    }
    return this.#inQueue(this.#gets, ownerId, search, {
      canJoin: (a, b) => a.avoided.length === b.avoided.length && a.avoided.every((id, i) => id === b.avoided[i]),
      join: (batches) => ({ ...plainKeys.join(batches), avoided: (batches[0] as Search).avoided }),
      part: (found, from) => (i) => found(from + i),
      send: async ({ keys, avoided }) => {
        const wishes = { asker: this.#nodeId, ...(avoided.length > 0 ? { avoided } : {}) };
        return this.#call(ownerId, 'get', { ...keyFields(keys), ...wishes }, (answer) => {
          const found = readLocations(answer, keys.length);
          return (i: number) => found.locationAt(i);
        });
      },
    });
  }

  async exists(ownerId: string, keys: readonly string[]): Promise<Uint8Array | undefined> {
    if (this.#isLocal(ownerId)) return this.#localShard?.exists(keys);
    return this.#inQueue(
      this.#existences,
      ownerId,
      { keys },
      {
        ...plainKeys,
        part: partOfFlags,
        send: async (batch) =>
          this.#call(ownerId, 'exists', keyFields(batch.keys), (answer) =>
            readFlags(answer, 'found', batch.keys.length),
          ),
      },
    );
  }

  /** False: the owner has not taken it. */
  async delete(ownerId: string, keys: readonly string[], dropped: Dropped): Promise<boolean> {
    if (this.#isLocal(ownerId)) {
      this.#localShard?.delete(keys, dropped, dropped);
      if (dropped.withCopies) await this.#displacedTold();
      return true;
    }
    // An owner that has left keeps nothing.
    if (this.#resolveControl(ownerId) === undefined) return true;
    const answer = await this.#inQueue(this.#statements, ownerId, { keys, dropped }, this.#statementKind(ownerId));
    return answer !== undefined;
  }

  /** Puts and deletes share a queue: a delete must not get before what it is to drop. */
  #statementKind(ownerId: string): RequestKind<Statement, PutAnswer> {
    return {
      canJoin: (a, b) => a.columns !== undefined && b.columns !== undefined && a.unlessHeld === b.unlessHeld,
      join: (batches) => ({
        keys: batches.flatMap(({ keys }) => keys),
        columns: LocationColumns.concat(batches.flatMap(({ columns }) => columns ?? [])),
        unlessHeld: batches[0]?.unlessHeld === true,
      }),
      part: ({ taken, newestVersion }, from, count) => ({ taken: partOfFlags(taken, from, count), newestVersion }),
      send: async ({ keys, columns, unlessHeld, dropped }) => {
        if (columns !== undefined) {
          const wish = unlessHeld === true ? { unless_held: true } : {};
          const request = { ...keyFields(keys), ...locationFields(columns), ...wish };
          return this.#call(ownerId, 'put', request, (answer) => readPutAnswer(answer, keys.length));
        }
        const { nodeId, incarnation, generation, withCopies } = dropped as Dropped;
        const wish = withCopies ? { with_copies: true } : {};
        const request = { ...keyFields(keys), node_id: nodeId, incarnation, generation, ...wish };
        return this.#call(ownerId, 'delete', request, () => NOTHING_TAKEN);
      },
    };
  }

  async #inQueue<B extends KeyBatch, A>(
    queues: Map<string, RequestQueue<B, A>>,
    ownerId: string,
    batch: B,
    kind: RequestKind<B, A>,
  ): Promise<A | undefined> {
    let queue = queues.get(ownerId);
    if (queue === undefined) {
      queue = new RequestQueue(kind, DIRECTORY_REQUESTS_IN_FLIGHT_MAX_COUNT);
      queues.set(ownerId, queue);
    }
    const answer = await queue.ask(batch);
    if (queue.isIdle && queues.get(ownerId) === queue) queues.delete(ownerId);
    return answer;
  }

  /** False: the owner has not answered. */
  async renounce(ownerId: string, of: Omit<Dropped, 'withCopies'>): Promise<boolean> {
    const { nodeId, incarnation, generation } = of;
    if (this.#isLocal(ownerId)) {
      this.#localShard?.renounce(nodeId, incarnation, generation);
      return true;
    }
    const params = { node_id: nodeId, incarnation, generation };
    return (await this.#call(ownerId, 'renounce', params, () => true)) ?? false;
  }

  async discard(ownerId: string, keys: readonly string[], columns: LocationColumns): Promise<void> {
    if (this.#isLocal(ownerId)) this.#localShard?.discard(keys, columns);
    else await this.#call(ownerId, 'discard', { ...keyFields(keys), ...locationFields(columns) }, () => true);
  }

  isReachable(ownerId: string): boolean {
    return this.#isLocal(ownerId) || this.#resolveControl(ownerId) !== undefined;
  }

  /** Closes the connections, unless they belong to an RPC client that was handed in. Idempotent. */
  async close(): Promise<void> {
    if (this.#ownsRpc) await this.#rpc.close();
  }

  #isLocal(ownerId: string): boolean {
    return this.#localShard !== undefined && ownerId === this.#nodeId;
  }

  /** Undefined: the owner is not reachable, failed, or answered what cannot be right. */
  async #call<T>(
    ownerId: string,
    method: keyof typeof DirectoryMethod,
    params: object,
    read: (answer: Readonly<Record<string, unknown>>) => T,
  ): Promise<T | undefined> {
    const endpoint = this.#resolveControl(ownerId);
    const options = this.#timeoutMs === undefined ? {} : { timeoutMs: this.#timeoutMs };
    try {
      if (endpoint !== undefined)
        return read(asFields(await this.#rpc.call(endpoint, DirectoryMethod[method], params, options)));
    } catch {
      // As if there were no such owner.
    }
    countFailure(this.#metrics, method);
    return undefined;
  }

  /** Throws `InvariantError` unless each queue agrees with itself. */
  verify(): void {
    for (const queues of [this.#statements, this.#gets, this.#existences]) {
      for (const queue of queues.values()) queue.verify();
    }
  }
}

const NOTHING_TAKEN: PutAnswer = { taken: new Uint8Array(0), newestVersion: 0 };

/** Of requests that carry keys only. */
const plainKeys = {
  canJoin: () => true,
  join: (batches: readonly KeyBatch[]): KeyBatch => ({ keys: batches.flatMap(({ keys }) => keys) }),
};

function partOfFlags(flags: Uint8Array, from: number, count: number): Uint8Array {
  return flags.subarray(from, from + count);
}
