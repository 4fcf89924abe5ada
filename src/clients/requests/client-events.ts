import { type CancelSignal, onAbort } from '../../base/concurrency/cancellation.js';
import type { PageChange, PageEvent } from '../../store/events/page-events.js';
import { TEXT_MAX_BYTES } from '../wire/body.js';
import { decodeEvents, type EventsAnswer, encodeEventsAnswer, type PoolChange } from '../wire/events.js';
import { Status } from '../wire/messages.js';
import { RequestError } from '../wire/request-error.js';
import type { ClientNamespace } from './client-namespace.js';

type EventStream = AsyncGenerator<PageEvent, void>;

/** What one EVENTS request asks for. */
interface Wanted {
  readonly position: string;
  /** Index of each pool, by the prefix of its object keys. */
  readonly pools: ReadonlyMap<string, number>;
  /** Ends the wait for a change. */
  readonly signal: CancelSignal;
}

/** A list of pages that the client has received in part. */
interface ListInProgress {
  readonly stream: EventStream;
  /** Position with which the client asks for the next part. */
  readonly position: string;
}

/**
 * The page events of one client, limited to its namespace. Each request gets one event; only one request may run at a
 * time. Between two requests only a list in progress is kept; changes are found again by their position.
 */
export class ClientEvents {
  readonly #namespace: ClientNamespace;
  #list: ListInProgress | undefined;
  #partsCount = 0;
  #isClosed = false;

  constructor(namespace: ClientNamespace) {
    this.#namespace = namespace;
  }

  /**
   * Resolves with the body of the answer to EVENTS, at the latest when the signal is aborted. Throws {@link
   * RequestError}, and `ProtocolError` for a body that cannot be decoded.
   */
  async next(body: Buffer, signal: CancelSignal): Promise<Buffer> {
    const { position, pools } = decodeEvents(body);
    const wanted = {
      position,
      pools: new Map(pools.map((pool, index) => [this.#namespace.prefixOf(pool), index])),
      signal,
    };
    return encodeEventsAnswer(await this.#answer(wanted));
  }

  /** Drops a list in progress. */
  close(): void {
    this.#isClosed = true;
    this.#dropList();
  }

  #answer(wanted: Wanted): Promise<EventsAnswer> {
    const list = this.#list;
    if (list?.position === wanted.position) return this.#listed(list.stream, wanted);
    this.#dropList();
    return this.#followed(wanted);
  }

  /** Resolves with the next change after a position, or with the beginning of a list. */
  async #followed({ position, pools, signal }: Wanted): Promise<EventsAnswer> {
    const abort = new AbortController();
    if (signal.aborted) return nothing(position);
    const stop = onAbort(signal, () => abort.abort());
    const stream = this.#namespace.follow({ after: position, signal: abort.signal });
    let isKept = false;
    try {
      let last = position;
      for (;;) {
        const { value: event } = await stream.next();
        if (event?.kind === 'changed') {
          last = event.position;
          const changes = changesOf(event.changes, pools);
          if (changes.length > 0) return { kind: 'changed', position: last, atMs: event.atMs, changes };
        } else if (event?.kind === 'reset') {
          isKept = true;
          return this.#part('reset', stream, []);
        } else {
          if (signal.aborted) return nothing(last);
          throw new RequestError(Status.closing, 'the node is closing');
        }
      }
    } finally {
      stop();
      if (!isKept) await stream.return();
    }
  }

  /** Resolves with the next part of a list, or with its end. */
  async #listed(stream: EventStream, { pools, signal }: Wanted): Promise<EventsAnswer> {
    for (;;) {
      const { value: event } = await stream.next();
      if (event?.kind === 'listed') {
        const changes = changesOf(event.changes, pools);
        // At the deadline the part is sent even if it is empty; the list continues with the next request.
        if (changes.length > 0 || signal.aborted) return this.#part('listed', stream, changes);
        continue;
      }
      this.#dropList();
      if (event?.kind === 'complete') return { kind: 'complete', position: event.position, atMs: 0, changes: [] };
      throw new RequestError(Status.closing, 'the node is closing');
    }
  }

  /** Returns an answer after which the list continues. */
  #part(kind: 'reset' | 'listed', stream: EventStream, changes: readonly PoolChange[]): EventsAnswer {
    this.#partsCount++;
    const position = `list.${this.#partsCount}`;
    this.#list = { stream, position };
    if (this.#isClosed) this.#dropList();
    return { kind, position, atMs: 0, changes };
  }

  #dropList(): void {
    void this.#list?.stream.return();
    this.#list = undefined;
  }
}

/** Whether an object key without its prefix (which is ASCII) is longer than a key on the socket may be. */
function isTooLong(objectKey: string, prefixLength: number): boolean {
  // UTF-8 needs at most three bytes for a UTF-16 unit, so most keys need not be encoded to be measured.
  return objectKey.length * 3 > TEXT_MAX_BYTES && Buffer.byteLength(objectKey) - prefixLength > TEXT_MAX_BYTES;
}

function nothing(position: string): EventsAnswer {
  return { kind: 'nothing', position, atMs: 0, changes: [] };
}

/** Returns the changes of the pools, with the client's own keys. Keys that are too long for the socket are left out. */
function changesOf(changes: readonly PageChange[], pools: ReadonlyMap<string, number>): PoolChange[] {
  const own: PoolChange[] = [];
  for (const { key, tier } of changes) {
    const prefixLength = key.indexOf('/') + 1;
    const pool = pools.get(key.slice(0, prefixLength));
    if (pool === undefined || isTooLong(key, prefixLength)) continue;
    own.push({ pool, key: key.slice(prefixLength), tier });
  }
  return own;
}
