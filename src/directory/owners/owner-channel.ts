import type { Clock } from '../../base/environment/clock.js';
import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import type { Endpoint } from '../../base/environment/network.js';
import {
  DIRECTORY_LATE_ANSWER_MS,
  DIRECTORY_REQUESTS_IN_FLIGHT_MAX_COUNT,
  PEER_PATIENCE_MIN_MS,
} from '../../base/limits.js';
import { KeyBatch, type Keys, stringsOf } from '../../core/binding/key-batch.js';
import { AnswerTimes } from '../../net/answer-times.js';
import type { RpcClient } from '../../rpc/client.js';
import { InlinePages } from '../messages/inline-pages.js';
import { LocationColumns } from '../messages/location-columns.js';
import type { NoteColumns } from '../messages/note-columns.js';
import {
  asFields,
  DirectoryMethod,
  type KeyFields,
  keyFields,
  locationFields,
  type PutAnswer,
  type PutWish,
  readFlags,
  readLocations,
  readPutAnswer,
  wishFields,
} from '../messages/wire.js';
import { countFailure } from './directory-metrics.js';
import { type KeyedRequest, type RequestKind, RequestQueue } from './request-queue.js';

/** The statements of a node, up to a generation, that are to be dropped. */
export interface Dropped {
  readonly nodeId: string;
  readonly incarnation: number;
  readonly generation: number;
}

/** Keys to look up, and the nodes from which they could not be read. */
export interface Search extends KeyedRequest {
  readonly avoided: readonly string[];
  /** Bytes of small pages that may come with their locations. Default: 0. */
  readonly room?: number;
  /** Asks for the node's own pages only, not for what its shard knows of others. Default: false. */
  readonly isOwn?: boolean;
}

/** A {@link Search} as it is sent. */
interface SearchFields extends KeyFields {
  asker?: string;
  avoided?: readonly string[];
  own?: true;
  room?: number;
}

/** The locations of a request's keys: key `i` has its location, if any, at position `from + i`. */
export interface FoundLocations {
  readonly columns: LocationColumns;
  readonly from: number;
}

/**
 * The shard of one directory owner. Its methods never reject: undefined or false means that the owner is not reachable,
 * has failed, or has sent a wrong answer. Puts and deletes arrive in the order of their calls.
 */
export interface DirectoryOwner {
  get(search: Search): Promise<FoundLocations | undefined>;
  /** One byte per key; 1: the key has a live location. */
  exists(keys: Keys): Promise<Uint8Array | undefined>;
  put(keys: Keys, columns: LocationColumns, wish?: PutWish): Promise<PutAnswer | undefined>;
  delete(keys: Keys, dropped: Dropped): Promise<boolean>;
  renounce(of: Dropped): Promise<boolean>;
  /** Hands over what this node has noted, at most DIRECTORY_NOTES_MAX_COUNT notes. */
  note(notes: NoteColumns): Promise<boolean>;
  discard(keys: Keys, columns: LocationColumns): Promise<void>;
  isReachable(): boolean;
}

export interface OwnerChannelParts {
  /** Id of the asking node. */
  readonly nodeId: string;
  /** Address of the owner's control port; undefined while it is not known. */
  readonly resolveControl: () => Endpoint | undefined;
  readonly rpc: RpcClient;
  readonly timeoutMs: number | undefined;
  readonly clock: Clock;
  readonly metrics: MetricsSink;
}

/** A message whose order counts: locations to put, or statements of a node to drop. */
interface Statement extends KeyedRequest {
  readonly columns?: LocationColumns;
  readonly wish?: PutWish;
  readonly dropped?: Dropped;
}

/**
 * Connection to the shard of another node. Requests made in one turn of the event loop travel in one message, and a few
 * messages are in flight at once.
 */
export class OwnerChannel implements DirectoryOwner {
  readonly #parts: OwnerChannelParts;
  readonly #callOptions: { readonly timeoutMs?: number };
  /** Puts and deletes share a queue: a delete must not overtake the put that it is to drop. */
  readonly #statements: RequestQueue<Statement, PutAnswer>;
  readonly #gets: RequestQueue<Search, FoundLocations>;
  readonly #existences: RequestQueue<KeyedRequest, Uint8Array>;
  readonly #patience: Patience;

  constructor(parts: OwnerChannelParts) {
    this.#parts = parts;
    this.#patience = new Patience(parts.clock);
    this.#callOptions = parts.timeoutMs === undefined ? {} : { timeoutMs: parts.timeoutMs };
    const options = { atOnce: DIRECTORY_REQUESTS_IN_FLIGHT_MAX_COUNT, clock: parts.clock };
    this.#statements = new RequestQueue(this.#statementKind(), options);
    this.#gets = new RequestQueue(this.#searchKind(), options);
    this.#existences = new RequestQueue(this.#existenceKind(), options);
  }

  /** Whether no request is in flight and none waits. */
  get isIdle(): boolean {
    return this.#statements.isIdle && this.#gets.isIdle && this.#existences.isIdle;
  }

  get(search: Search): Promise<FoundLocations | undefined> {
    return this.#gets.ask(search);
  }

  exists(keys: Keys): Promise<Uint8Array | undefined> {
    return this.#existences.ask({ keys });
  }

  put(keys: Keys, columns: LocationColumns, wish: PutWish = {}): Promise<PutAnswer | undefined> {
    return this.#statements.ask({ keys, columns, wish });
  }

  async delete(keys: Keys, dropped: Dropped): Promise<boolean> {
    // An owner that has left the cluster keeps nothing, so the delete is done.
    if (!this.isReachable()) return true;
    return (await this.#statements.ask({ keys, dropped })) !== undefined;
  }

  async renounce({ nodeId, incarnation, generation }: Dropped): Promise<boolean> {
    const params = { node_id: nodeId, incarnation, generation };
    return (await this.#call('renounce', params, () => true)) ?? false;
  }

  async note(notes: NoteColumns): Promise<boolean> {
    return (await this.#call('note', notes.fields(), () => true)) ?? false;
  }

  async discard(keys: Keys, columns: LocationColumns): Promise<void> {
    await this.#call('discard', { ...keyFields(keys), ...locationFields(columns) }, () => true);
  }

  isReachable(): boolean {
    return this.#parts.resolveControl() !== undefined;
  }

  #searchKind(): RequestKind<Search, FoundLocations> {
    return {
      canJoin: (a, b) => a.isOwn === b.isOwn && isSameList(a.avoided, b.avoided),
      join: (batches) => ({
        keys: joinedKeys(batches),
        avoided: (batches[0] as Search).avoided,
        isOwn: (batches[0] as Search).isOwn === true,
        room: batches.reduce((sum, { room = 0 }) => sum + room, 0),
      }),
      part: ({ columns, from: start }, from) => ({ columns, from: start + from }),
      send: ({ keys, avoided, room = 0, isOwn = false }) => {
        const request: SearchFields = keyFields(keys);
        request.asker = this.#parts.nodeId;
        if (avoided.length > 0) request.avoided = avoided;
        if (isOwn) request.own = true;
        if (room > 0) request.room = room;
        return this.#lookUp('get', request, (answer) => {
          const columns = readLocations(answer, stringsOf(keys).length);
          columns.inline = InlinePages.read(answer, columns);
          return { columns, from: 0 };
        });
      },
      onUnsent: () => countFailure(this.#parts.metrics, 'get'),
    };
  }

  #existenceKind(): RequestKind<KeyedRequest, Uint8Array> {
    return {
      canJoin: () => true,
      join: (batches) => ({ keys: joinedKeys(batches) }),
      part: partOfFlags,
      send: ({ keys }) =>
        this.#lookUp('exists', keyFields(keys), (answer) => readFlags(answer, 'found', stringsOf(keys).length)),
      onUnsent: () => countFailure(this.#parts.metrics, 'exists'),
    };
  }

  #statementKind(): RequestKind<Statement, PutAnswer> {
    return {
      canJoin: (a, b) => isSame(a.dropped, b.dropped) && isSameWish(a.wish, b.wish),
      join: (batches) => {
        const keys = joinedKeys(batches);
        const { dropped, wish } = batches[0] as Statement;
        if (dropped !== undefined) return { keys, dropped };
        const columns = LocationColumns.concat(batches.flatMap((each) => each.columns ?? []));
        return { keys, columns, ...(wish === undefined ? {} : { wish }) };
      },
      part: ({ taken, newestVersion }, from, count) => ({ taken: partOfFlags(taken, from, count), newestVersion }),
      send: (statement) => this.#state(statement),
      onUnsent: ({ columns }) => countFailure(this.#parts.metrics, columns === undefined ? 'delete' : 'put'),
    };
  }

  #state({ keys, columns, wish = {}, dropped }: Statement): Promise<PutAnswer | undefined> {
    if (columns !== undefined) {
      const request = { ...keyFields(keys), ...locationFields(columns), ...wishFields(wish) };
      return this.#call('put', request, (answer) => readPutAnswer(answer, stringsOf(keys).length));
    }
    const { nodeId, incarnation, generation } = dropped as Dropped;
    const request = { ...keyFields(keys), node_id: nodeId, incarnation, generation };
    return this.#call('delete', request, () => NOTHING_TAKEN);
  }

  /** Makes a call for which another owner can be asked instead. */
  #lookUp<T>(
    method: 'get' | 'exists',
    params: object,
    read: (answer: Readonly<Record<string, unknown>>) => T,
  ): Promise<T | undefined> {
    return this.#patience.ask(
      () => this.#call(method, params, read),
      () => countFailure(this.#parts.metrics, method),
    );
  }

  async #call<T>(
    method: keyof typeof DirectoryMethod,
    params: object,
    read: (answer: Readonly<Record<string, unknown>>) => T,
  ): Promise<T | undefined> {
    const { resolveControl, rpc, metrics } = this.#parts;
    const endpoint = resolveControl();
    try {
      if (endpoint !== undefined) {
        return read(asFields(await rpc.call(endpoint, DirectoryMethod[method], params, this.#callOptions)));
      }
    } catch {
      // A failed request counts as if the owner did not exist.
    }
    countFailure(metrics, method);
    return undefined;
  }

  /** Throws `InvariantError` unless each queue is consistent. */
  verify(): void {
    this.#statements.verify();
    this.#gets.verify();
    this.#existences.verify();
  }
}

const NOTHING_TAKEN: PutAnswer = { taken: new Uint8Array(0), newestVersion: 0 };

function joinedKeys(requests: readonly KeyedRequest[]): Keys {
  const batches = requests.flatMap(({ keys }) => (keys instanceof KeyBatch ? [keys] : []));
  return batches.length === requests.length
    ? KeyBatch.concat(batches)
    : requests.flatMap(({ keys }) => stringsOf(keys));
}

/** Whether two messages drop the same statements of their keys; two puts drop none. */
function isSame(a: Dropped | undefined, b: Dropped | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.nodeId === b.nodeId && a.incarnation === b.incarnation && a.generation === b.generation;
}

function isSameList(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((item, i) => item === b[i]);
}

function isSameWish(a: PutWish = {}, b: PutWish = {}): boolean {
  return a.unlessHeld === b.unlessHeld && a.formerStart === b.formerStart;
}

function partOfFlags(flags: Uint8Array, from: number, count: number): Uint8Array {
  return flags.subarray(from, from + count);
}

/**
 * Limits how long lookups wait for one directory owner, by how long its answers usually take. An owner that is silent
 * for longer counts as one that does not answer, for this lookup and for later ones, until an answer comes or its
 * request fails.
 */
class Patience {
  readonly #clock: Clock;
  readonly #times = new AnswerTimes();
  #isSilent = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Sends a request and resolves with its answer; undefined: it has failed, is overdue, or was not sent because an
   * earlier one is overdue. `onGivenUp`: called in the last two cases.
   */
  ask<T>(send: () => Promise<T | undefined>, onGivenUp: () => void): Promise<T | undefined> {
    if (this.#isSilent) {
      onGivenUp();
      return Promise.resolve(undefined);
    }
    const clock = this.#clock;
    const sentMs = clock.nowMs();
    return new Promise((resolve) => {
      let isAnswered = false;
      const patienceMs = this.#times.patienceMs(PEER_PATIENCE_MIN_MS, DIRECTORY_LATE_ANSWER_MS);
      const cancel = clock.after(patienceMs, () => {
        // This thread may have been busy itself, so answers that arrived meanwhile are handled first.
        void clock.yield().then(() => {
          if (isAnswered) return;
          this.#isSilent = true;
          onGivenUp();
          resolve(undefined);
        });
      });
      void send().then((answer) => {
        isAnswered = true;
        cancel();
        this.#isSilent = false;
        if (answer !== undefined) this.#times.note(clock.nowMs() - sentMs);
        resolve(answer);
      });
    });
  }
}
