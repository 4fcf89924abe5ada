import type { Clock } from '../base/clock.js';
import { type Environment, systemEnvironment } from '../base/environment.js';
import { ArgumentError } from '../base/errors.js';
import {
  DIRECTORY_KEY_MAX_BYTES,
  DIRECTORY_REQUESTS_IN_FLIGHT_MAX_COUNT,
  RPC_CALL_TIMEOUT_MS,
} from '../base/limits.js';
import type { MetricsSink } from '../base/metrics-sink.js';
import type { Endpoint } from '../base/network.js';
import { RpcClient } from '../rpc/client.js';
import type { DataLocation } from '../types.js';
import { countFailure, countLookups, reportShard } from './directory-metrics.js';
import { decodeKeys, encodeKeys } from './key-column.js';
import { LocationColumns } from './location-columns.js';
import { askOwners } from './owner-search.js';
import { eachRequest, keysByOwner, type OwnerRing, requestsOf } from './owners.js';
import { type KeyBatch, type RequestKind, RequestQueue } from './request-queue.js';
import type { DirectoryShard } from './shard.js';
import { asFields, DirectoryMethod, keyFields, locationFields, readFlags, readLocations } from './wire.js';

/** Address of a node's control port; undefined while it is not known. */
export type ResolveControl = (nodeId: string) => Endpoint | undefined;

/** What a {@link DirectoryClient} takes beside its ring. */
export interface DirectoryClientOptions {
  /** The own node: its shard is asked without a socket, its own locations are useful to it only when there are no others. */
  readonly nodeId?: string;
  /** The own node's start: goes into its locations that have none. Default 0. */
  readonly incarnation?: number;
  /** Used, not closed, by this client. Default: one of its own, which `close` closes. */
  readonly rpc?: RpcClient;
  /** The own node's shard. */
  readonly localShard?: DirectoryShard;
  readonly env?: Environment;
  /** Deadline of one request; default RPC_CALL_TIMEOUT_MS. */
  readonly timeoutMs?: number;
  /**
   * So long after `setRing`, `delete` goes to the owners by the former ring too: until they have forgotten what they do not
   * own any more, they could become owners again and hand it out. For as long, what no owner knows is asked of former ones too.
   * Former rings must stay usable (see `rings`). Default 0.
   */
  readonly formerRingMs?: number;
  /** Whether former owners are asked at all: what they know may be out of date, which nothing but a checksum shows. Default true. */
  readonly asksFormerOwners?: boolean;
}

/** What goes to an owner in order: locations, or which of whose to drop. */
interface Statement extends KeyBatch {
  readonly columns?: LocationColumns;
  readonly dropped?: { readonly nodeId: string; readonly incarnation: number; readonly generation: number };
}

/** Keys to be found, and the nodes by which they could not be read. */
interface Search extends KeyBatch {
  readonly avoided: readonly string[];
}

/** Reads a location out of an answer. */
type FoundLocations = (i: number) => DataLocation | null;

/** Locations given at once, or asked for batch by batch just before each is sent; null: nothing to announce. */
export type LocationSource =
  | readonly (DataLocation | null)[]
  | ((keys: readonly string[]) => readonly (DataLocation | null)[]);

/** Identities that one client remembers having stated locations for: its own, in tests a few more. */
const IDENTITIES_MAX_COUNT = 64;
/** With owners changing faster than former rings expire, deletes follow so many changes. */
const FORMER_RINGS_MAX_COUNT = 16;
/** Keys that `get`, `exists` and `delete` look up and ask about before they leave the thread to others. */
const SLICE_KEYS = 16_384;

/**
 * Asks and tells the shards of a key's owners: one request an owner and batch. A shard that does not answer is a miss or
 * false, never an exception; only wrong arguments throw (`ArgumentError`), before anything is sent.
 *
 * The client owns the node's statement counter: every `put`, `announce` and `delete` is ordered by it, so that a delete
 * that arrives late leaves what was put after it.
 */
export class DirectoryClient {
  readonly #resolveControl: ResolveControl;
  readonly #replicas: number;
  readonly #rpc: RpcClient;
  readonly #ownsRpc: boolean;
  readonly #nodeId: string;
  #incarnation: number;
  readonly #localShard: DirectoryShard | undefined;
  readonly #timeoutMs: number | undefined;
  /** Node id -> incarnation of what was put: whose locations `delete` removes. */
  readonly #identities = new Map<string, number>();
  readonly #clock: Clock;
  readonly #metrics: MetricsSink;
  readonly #formerRingMs: number;
  readonly #asksFormerOwners: boolean;
  /** By owner; an owner that nothing is asked of has none. */
  readonly #statements = new Map<string, RequestQueue<Statement, Uint8Array>>();
  readonly #gets = new Map<string, RequestQueue<Search, FoundLocations>>();
  readonly #existences = new Map<string, RequestQueue<KeyBatch, Uint8Array>>();
  #ring: OwnerRing;
  #formerRings: { readonly ring: OwnerRing; readonly untilMs: number }[] = [];
  #generation: number;
  #isSilent = false;

  constructor(ring: OwnerRing, resolveControl: ResolveControl, replicas: number, options: DirectoryClientOptions = {}) {
    if (!Number.isSafeInteger(replicas) || replicas < 1)
      throw new ArgumentError(`replicas must be 1 or more: ${replicas}`);
    this.#ring = ring;
    this.#resolveControl = resolveControl;
    this.#replicas = replicas;
    this.#ownsRpc = options.rpc === undefined;
    const env = options.env ?? systemEnvironment();
    this.#rpc = options.rpc ?? new RpcClient({ env });
    this.#clock = env.clock;
    this.#metrics = env.metrics;
    this.#formerRingMs = options.formerRingMs ?? 0;
    this.#asksFormerOwners = options.asksFormerOwners ?? true;
    // Without an incarnation, a later client of the same node is told from an earlier one by its statements only.
    this.#generation = options.incarnation === undefined ? Math.floor(env.clock.wallMs()) * 1000 : 0;
    this.#nodeId = options.nodeId ?? '';
    this.#incarnation = options.incarnation ?? 0;
    this.#localShard = options.localShard;
    if (options.localShard !== undefined) reportShard(options.localShard, env.metrics);
    this.#timeoutMs = options.timeoutMs;
    if (options.nodeId !== undefined && options.incarnation !== undefined) {
      this.#identities.set(options.nodeId, options.incarnation);
    }
  }

  /** The last statement up to now. */
  get generation(): number {
    return this.#generation;
  }

  /** True: from now on nothing is stated; `put` is refused, `announce` has nothing to do. False: no longer. */
  setSilent(isSilent: boolean): void {
    this.#isSilent = isSilent;
  }

  /** The own node goes on as another start of itself, under which everything is stated from now on. */
  restartAs(incarnation: number): void {
    this.#incarnation = incarnation;
    this.#identities.set(this.#nodeId, incarnation);
  }

  /** Calls from now on go by this ring. It may also be changed in place. */
  setRing(ring: OwnerRing): void {
    if (ring !== this.#ring && this.#formerRingMs > 0) {
      this.#formerRings.push({ ring: this.#ring, untilMs: this.#clock.nowMs() + this.#formerRingMs });
      if (this.#formerRings.length > FORMER_RINGS_MAX_COUNT) this.#formerRings.shift();
    }
    this.#ring = ring;
  }

  /** The rings that this client may still ask: the current one and, for a while, former ones. */
  rings(): OwnerRing[] {
    const nowMs = this.#clock.nowMs();
    this.#formerRings = this.#formerRings.filter(({ untilMs }) => untilMs > nowMs);
    return [this.#ring, ...this.#formerRings.map(({ ring }) => ring)];
  }

  /**
   * States where pages are; those without a generation get the next one. True: at least one owner has taken it. In the
   * order of the entries.
   */
  async put(entries: ReadonlyMap<string, DataLocation> | Readonly<Record<string, DataLocation>>): Promise<boolean[]> {
    const pairs = entries instanceof Map ? [...entries] : Object.entries(entries as Record<string, DataLocation>);
    const keys = pairs.map(([key]) => key);
    const locations = pairs.map(([, location]) => location);
    this.#check(keys);
    const columns = this.#state(locations);
    const results = new Array<boolean>(keys.length).fill(false);
    if (this.#isSilent) return results;
    // All at once and not slice by slice: a delete that is called later must not get before any of it.
    await eachRequest(keys, keysByOwner(keys, [this.#ring], this.#replicas), async (ownerId, request) => {
      const taken = await this.#putTo(ownerId, pick(keys, request), columns.pick(request));
      request.forEach((i, j) => {
        if (taken?.[j] === 1) results[i] = true;
      });
    });
    return results;
  }

  /** A live location of each key; null: none known, or its owners do not answer. */
  async get(keys: readonly string[]): Promise<(DataLocation | null)[]> {
    const results = new Array<DataLocation | null>(keys.length).fill(null);
    await this.find(keys, (found) => {
      for (const [i, location] of found) results[i] = location;
    });
    return results;
  }

  /**
   * Hands out what {@link get} finds as each owner answers, by the keys' indices: what the own shard knows at once, so that
   * its pages can be read while other owners are being asked. Each index comes once or, when nothing is found, never.
   * Locations of nodes that are `avoided` come only when there are no others: at most DIRECTORY_AVOIDED_MAX_COUNT of them.
   */
  async find(
    keys: readonly string[],
    onFound: (found: readonly (readonly [index: number, location: DataLocation])[]) => void,
    avoided: readonly string[] = [],
  ): Promise<void> {
    let foundCount = 0;
    const lastResort = new Map<number, DataLocation>();
    await this.#ask(keys, async (ownerId, request) => {
      const locationAt = await this.#getFrom(ownerId, { keys: pick(keys, request), avoided });
      if (locationAt === undefined) return request;
      const found: [number, DataLocation][] = [];
      const missing = request.filter((i, j) => {
        const location = locationAt(j);
        // The next owner may know of another node.
        const isAvoided = location !== null && avoided.includes(location.nodeId);
        if (isAvoided) lastResort.set(i, location);
        else if (location !== null) found.push([i, location]);
        return location === null || isAvoided;
      });
      for (const [i] of found) lastResort.delete(i);
      foundCount += found.length;
      if (found.length > 0) onFound(found);
      return missing;
    });
    foundCount += lastResort.size;
    if (lastResort.size > 0) onFound([...lastResort]);
    countLookups(this.#metrics, keys.length, foundCount);
  }

  /** Whether a live location of each key is known; false also when its owners do not answer. */
  async exists(keys: readonly string[]): Promise<boolean[]> {
    const results = new Array<boolean>(keys.length).fill(false);
    await this.#ask(keys, async (ownerId, request) => {
      const found = await this.#existsAt(ownerId, pick(keys, request));
      if (found === undefined) return request;
      return request.filter((i, j) => {
        results[i] = found[j] === 1;
        return !results[i];
      });
    });
    const foundCount = results.reduce((count, isFound) => count + Number(isFound), 0);
    countLookups(this.#metrics, keys.length, foundCount);
    return results;
  }

  /**
   * Drops what this client's node has stated about the keys up to now, or up to `generation`; what it states later stays.
   * An owner that does not answer keeps it: readers then find out by the page's key of access or its checksum.
   */
  async delete(keys: readonly string[], generation = this.#generation): Promise<void> {
    this.#check(keys);
    const identities = [...this.#identities];
    await this.#inSlices(keys, async (slice) => {
      await eachRequest(slice, keysByOwner(slice, this.rings(), this.#replicas), async (ownerId, request) => {
        const picked = pick(slice, request);
        const of = identities.map(([nodeId, incarnation]) => ({ nodeId, incarnation, generation }));
        await Promise.all(of.map((dropped) => this.#deleteAt(ownerId, picked, dropped)));
      });
    });
  }

  /**
   * States locations to one owner, one batch after the other. A function as `locations` is asked for each batch just before
   * it is sent, so that what was dropped meanwhile is not announced. False: the owner did not take all of it (ends at the
   * first batch that fails).
   */
  async announce(ownerId: string, keys: readonly string[], locations: LocationSource): Promise<boolean> {
    this.#check(keys);
    if (this.#isSilent) return true;
    const all = keys.map((_, i) => i);
    let complete = true;
    for (const request of requestsOf(keys, all)) {
      const asked = pick(keys, request);
      const found = typeof locations === 'function' ? locations(asked) : pick(locations, request);
      const present = asked.map((_, j) => j).filter((j) => (found[j] ?? null) !== null);
      if (present.length === 0) continue;
      const batch = pick(found, present) as DataLocation[];
      const taken = await this.#putTo(ownerId, pick(asked, present), this.#state(batch));
      if (taken === undefined) return false;
      if (taken.includes(0)) complete = false;
    }
    return complete;
  }

  /**
   * Tells an owner that it has been told anew of all that the own node still has: what the node had stated up to
   * `generation` and not again since is void there.
   */
  async renounce(ownerId: string, generation: number): Promise<void> {
    const [nodeId, incarnation] = [this.#nodeId, this.#incarnation];
    if (this.#isSilent) return;
    if (this.#isLocal(ownerId)) this.#localShard?.renounce(nodeId, incarnation, generation);
    else await this.#call(ownerId, 'renounce', { node_id: nodeId, incarnation, generation }, () => true);
  }

  /** Closes the connections, unless they belong to an RPC client that was handed in. Idempotent. */
  async close(): Promise<void> {
    if (this.#ownsRpc) await this.#rpc.close();
  }

  #check(keys: readonly string[]): void {
    for (const key of keys) {
      if (typeof key !== 'string') throw new ArgumentError(`a key must be text, got ${typeof key}`);
      if (!key.isWellFormed()) throw new ArgumentError(`a key must be well-formed text, got ${JSON.stringify(key)}`);
      if (key.length * 3 <= DIRECTORY_KEY_MAX_BYTES) continue;
      const bytes = Buffer.byteLength(key);
      if (bytes > DIRECTORY_KEY_MAX_BYTES) {
        throw new ArgumentError(`a key of ${bytes} bytes, at most ${DIRECTORY_KEY_MAX_BYTES} are allowed`);
      }
    }
  }

  /** The locations as statements of now: with the counter's next value. Remembers whose they are. */
  #state(locations: readonly DataLocation[]): LocationColumns {
    const generation = this.#generation + 1;
    const incarnation = this.#incarnation;
    const columns = LocationColumns.of(locations, { nodeId: this.#nodeId, incarnation, generation });
    this.#generation = columns.generation.reduce((highest, value) => Math.max(highest, value), generation);
    for (const node of columns.nodes) {
      if (this.#identities.size < IDENTITIES_MAX_COUNT || this.#identities.has(node.nodeId)) {
        this.#identities.set(node.nodeId, node.incarnation);
      }
    }
    return columns;
  }

  /** `task` for a part of the keys after the other; between them other work has its turn. */
  async #inSlices(keys: readonly string[], task: (slice: readonly string[], start: number) => Promise<void>) {
    if (keys.length <= SLICE_KEYS) return task(keys, 0);
    for (let start = 0; start < keys.length; start += SLICE_KEYS) {
      await task(keys.slice(start, start + SLICE_KEYS), start);
      await this.#clock.yield();
    }
  }

  /** See {@link askOwners}. `ask` returns the indices that it has found nothing for. */
  async #ask(keys: readonly string[], ask: (ownerId: string, request: number[]) => Promise<number[]>): Promise<void> {
    this.#check(keys);
    await this.#inSlices(keys, async (slice, start) => {
      // Owners that are silent cost a deadline each, one rank after the other.
      const formerUntilMs = this.#clock.nowMs() + 2 * (this.#timeoutMs ?? RPC_CALL_TIMEOUT_MS);
      await askOwners(slice, {
        replicas: this.#replicas,
        rings: () => this.rings(),
        asksFormer: () => this.#asksFormerOwners && this.#clock.nowMs() < formerUntilMs,
        ownNode: this.#localShard === undefined ? undefined : this.#nodeId,
        isReachable: (ownerId) => this.#isLocal(ownerId) || this.#resolveControl(ownerId) !== undefined,
        ask: async (ownerId, request) => {
          const indices = request.map((i) => start + i);
          return (await ask(ownerId, indices)).map((i) => i - start);
        },
      });
    });
  }

  async #putTo(ownerId: string, keys: readonly string[], columns: LocationColumns): Promise<Uint8Array | undefined> {
    // The shard keeps its keys: through the column they become strings that hold on to nothing of the caller's.
    if (this.#isLocal(ownerId)) return this.#localShard?.put(decodeKeys(encodeKeys(keys), true), columns);
    return this.#inQueue(this.#statements, ownerId, { keys, columns }, this.#statementKind(ownerId));
  }

  async #getFrom(ownerId: string, search: Search): Promise<FoundLocations | undefined> {
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

  async #existsAt(ownerId: string, keys: readonly string[]): Promise<Uint8Array | undefined> {
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

  async #deleteAt(
    ownerId: string,
    keys: readonly string[],
    dropped: { nodeId: string; incarnation: number; generation: number },
  ): Promise<void> {
    if (this.#isLocal(ownerId)) {
      this.#localShard?.delete(keys, dropped.nodeId, dropped.incarnation, dropped.generation);
      return;
    }
    await this.#inQueue(this.#statements, ownerId, { keys, dropped }, this.#statementKind(ownerId));
  }

  /** Puts and deletes share a queue: a delete must not get before what it is to drop. */
  #statementKind(ownerId: string): RequestKind<Statement, Uint8Array> {
    return {
      canJoin: (a, b) => a.columns !== undefined && b.columns !== undefined,
      join: (batches) => ({
        keys: batches.flatMap(({ keys }) => keys),
        columns: LocationColumns.concat(batches.flatMap(({ columns }) => columns ?? [])),
      }),
      part: partOfFlags,
      send: async ({ keys, columns, dropped }) => {
        if (columns !== undefined) {
          const request = { ...keyFields(keys), ...locationFields(columns) };
          return this.#call(ownerId, 'put', request, (answer) => readFlags(answer, 'taken', keys.length));
        }
        const { nodeId, incarnation, generation } = dropped ?? { nodeId: '', incarnation: 0, generation: 0 };
        const request = { ...keyFields(keys), node_id: nodeId, incarnation, generation };
        return this.#call(ownerId, 'delete', request, () => new Uint8Array(0));
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
}

/** Of requests that carry keys only. */
const plainKeys = {
  canJoin: () => true,
  join: (batches: readonly KeyBatch[]): KeyBatch => ({ keys: batches.flatMap(({ keys }) => keys) }),
};

function partOfFlags(flags: Uint8Array, from: number, count: number): Uint8Array {
  return flags.subarray(from, from + count);
}

function pick<T>(items: readonly T[], indices: readonly number[]): T[] {
  return indices.map((i) => items[i] as T);
}
