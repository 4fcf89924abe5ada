import { reduced } from '../../base/assert.js';
import type { CancelSignal } from '../../base/concurrency/cancellation.js';
import {
  CLIENT_BODY_MAX_BYTES,
  CLIENT_EXISTS_MAX_KEY_BYTES,
  CLIENT_LATER_MAX_COUNT,
  CLIENT_LATER_MAX_KEYS,
  CLIENT_READ_STEPS_MAX_COUNT,
  CLIENT_REQUEST_MAX_KEYS,
  CLIENT_REQUEST_MAX_PIECES,
  CLIENT_SET_STEP_BYTES,
  CLIENT_SET_STEP_KEYS,
  CLIENT_STAT_MAX_KEYS,
  PREFETCH_LEAD_MS,
} from '../../base/limits.js';
import type { RequestOptions } from '../../core/index.js';
import { HostRegion } from '../../memory/host-region.js';
import { holdInPlace } from '../../memory/native-memory.js';
import type { CallTime } from '../../store/call/call-options.js';
import type { CallerPage } from '../../store/call/caller-page.js';
import { inKeySteps, inTurns, type Slice, type StepKeys, slicesOf } from '../../store/call/key-steps.js';
import { RequestParts } from '../../store/call/request-calls.js';
import type { PlacedPage } from '../../store/found-pages.js';
import { prefixLength } from '../../store/namespace/hybrid.js';
import type { PagePrefetchOptions } from '../../store/namespace/namespace-pages.js';
import { decodeEndPins, decodePin, decodePrefetch, decodeTell } from '../wire/care-messages.js';
import {
  type AnswerBody,
  type BytesResult,
  decodeExists,
  decodeKeyRequest,
  decodeNumber,
  decodePools,
  decodeRegionRequest,
  decodeSetBytes,
  encodeBytesAnswer,
  LENGTH_MISS,
  LENGTH_NO_ROOM,
  type ReceivedPages,
  type RegionRequest,
  RequestType,
  STAGING_REGION,
  Status,
  type ToldFlags,
} from '../wire/messages.js';
import { decodeGetStaged, encodeStagedAnswer } from '../wire/page-messages.js';
import { RequestError } from '../wire/request-error.js';
import { isOfSet } from '../wire/request-flags.js';
import type { AttachedClient } from './attached-client.js';
import { ClientEvents } from './client-events.js';
import type { ClientRegions, HeldRegions } from './client-regions.js';
import type { ClientWay } from './client-stats.js';
import { SuffixedKeys } from './suffixed-keys.js';

export interface ClientRequestsParts extends Pick<AttachedClient, 'namespace' | 'counts' | 'caller' | 'audited'> {
  readonly regions: ClientRegions;
  /** Lets other clients take their turn between two steps; undefined if none needs it now. */
  readonly goOn: () => Promise<void> | undefined;
}

/** The pages of a SET or SET_BYTES, described by their lengths. */
interface PagesToSet extends Omit<ReceivedPages, 'pages'> {
  readonly lengthOf: (page: number) => number;
}

/** The limits of one request: its time, and the memory for its answer. */
export interface RequestWait {
  /** Aborts the request: pages that have not begun by then are misses, or are not set. */
  readonly signal: CancelSignal;
  readonly time: CallTime;
  /** Memory for the pages of the answer. `take` returns false if there is not enough. */
  readonly pages: { take(bytes: number): boolean };
}

/** Abort reason of a request that its client has cancelled. */
export const CANCELLED: Error = new DOMException('cancelled by the client', 'AbortError');

const REGION_LIMITS = { maxKeys: CLIENT_REQUEST_MAX_KEYS, maxPieces: CLIENT_REQUEST_MAX_PIECES };
/** Most pages, and most bytes, that one GET_BYTES reads at once. Local pages among them are copied in one pass. */
const BYTES_READ_AT_ONCE_MAX_COUNT = 16;
const BYTES_READ_AT_ONCE_MAX_BYTES = 8 * 2 ** 20;

/** Executes the requests of one client. */
export class ClientRequests {
  readonly #parts: ClientRequestsParts;
  readonly #events: ClientEvents;
  /** Ends fetches of pages that are expected much later. */
  #later = new AbortController();
  /** Number of requests for pages that will be fetched later, and of their pages. */
  #laterRequests = 0;
  #laterPages = 0;

  constructor(parts: ClientRequestsParts) {
    this.#parts = parts;
    this.#events = new ClientEvents(parts.namespace);
  }

  /** Releases what is kept between requests: a list of events in progress, pages to be fetched later, and pins. */
  close(): void {
    this.dropLater();
    this.#events.close();
    this.#parts.namespace.endClient();
  }

  /** Fetches none of the pages that are expected much later. */
  dropLater(): void {
    this.#later.abort();
    this.#later = new AbortController();
  }

  /**
   * Executes a request. Resolves with the body of its answer when this node no longer touches the request's memory.
   * Throws or rejects with {@link RequestError}, and `ProtocolError` for a body that cannot be decoded.
   */
  run(type: RequestType, body: Buffer, wait: RequestWait): Promise<AnswerBody> {
    const { signal } = wait;
    switch (type) {
      case RequestType.exists:
        return this.#exists(body, signal);
      case RequestType.get:
        return this.#get(body, signal);
      case RequestType.set:
        return this.#set(body, wait);
      case RequestType.getStaged:
        return this.#getStaged(body, signal);
      case RequestType.getBytes:
        return this.#getBytes(body, wait);
      case RequestType.setBytes:
        return this.#setBytes(body, wait);
      case RequestType.delete:
        return this.#delete(body, wait);
      case RequestType.pin:
        return this.#pin(body, signal);
      case RequestType.unpin:
        return this.#unpin(body);
      case RequestType.endPins:
        return this.#endPins(body);
      case RequestType.prefetch:
        return this.#prefetch(body, signal);
      case RequestType.tell:
        return this.#tell(body);
      case RequestType.clear:
        return this.#clear(body);
      case RequestType.stat:
        return this.#stat(body);
      case RequestType.events:
        return this.#events.next(body, signal);
      case RequestType.unregion:
        return this.#parts.regions.remove(decodeNumber(body)).then(() => Buffer.alloc(0));
      default:
        throw new RequestError(Status.badRequest, `a request of type ${type}`);
    }
  }

  async #exists(body: Buffer, signal: CancelSignal): Promise<Buffer> {
    const { namespace, counts } = this.#parts;
    const { pool, wantsFlags, isUncounted, suffixes, keys } = decodeExists(body, CLIENT_REQUEST_MAX_KEYS);
    const suffixCount = Math.max(1, suffixes.count);
    if (keys.count * suffixCount > CLIENT_REQUEST_MAX_KEYS) {
      throw new RequestError(
        Status.badRequest,
        `${keys.count} keys with ${suffixCount} suffixes; allowed are ${CLIENT_REQUEST_MAX_KEYS} of both together`,
      );
    }
    const asked = suffixes.count === 0 ? keys : new SuffixedKeys(keys, suffixes);
    checkKeyBytes(asked.bytesBetween(0, asked.count));
    const found = await this.#inSteps(
      asked,
      signal,
      (some) => namespace.exists(some, pool, signal),
      CLIENT_READ_STEPS_MAX_COUNT,
    );
    const isThere =
      suffixCount === 1
        ? found
        : Array.from({ length: keys.count }, (_, i) =>
            found.slice(i * suffixCount, (i + 1) * suffixCount).every((flag) => flag),
          );
    const prefix = prefixLength(isThere);
    // The caller of a cancelled lookup has found nothing, and reports that itself.
    if (!isUncounted && signal.reason !== CANCELLED) counts.lookup(keys.count, prefix);
    const answer = Buffer.alloc(wantsFlags ? 4 + keys.count : 4);
    answer.writeUInt32LE(prefix);
    if (wantsFlags) answer.set(flagsOf(isThere), 4);
    return answer;
  }

  async #get(body: Buffer, signal: CancelSignal): Promise<Buffer> {
    const { namespace, regions, counts, caller } = this.#parts;
    const request = decodeRegionRequest(body, REGION_LIMITS);
    const { keys, pool } = request;
    if (isOfSet(request)) {
      throw new RequestError(Status.badRequest, 'bits 0, 4, 5 and 6 of the flags of a GET are 0');
    }
    const held = regions.hold(request, 'write');
    const way = wayOf(request);
    const parts = new RequestParts({ ...toldOptions(request), caller });
    const results = await released(held, () =>
      this.#inSteps(
        keys,
        signal,
        (some, slice) => {
          const step = held.pages(slice);
          return released(step, async () => {
            const read = await namespace.get(some, step.pages, { ...parts.next(), pool, signal });
            await step.store(read);
            counts.read(way, step.pages, read);
            return read;
          });
        },
        CLIENT_READ_STEPS_MAX_COUNT,
      ),
    );
    return flagsOf(results);
  }

  /** Reads pages of any length into the staging memory. */
  async #getStaged(body: Buffer, signal: CancelSignal): Promise<Buffer> {
    const { namespace, regions, counts, caller } = this.#parts;
    const request = decodeGetStaged(body, CLIENT_REQUEST_MAX_KEYS);
    const { keys, pool } = request;
    const room = regions.holdStaging(request.offset, request.roomBytes);
    const parts = new RequestParts({ ...toldOptions(request), caller });
    let usedBytes = 0;
    const placed = await released(room, () =>
      inKeySteps(keys, this.#parts, async (some): Promise<(PlacedPage | null)[]> => {
        if (signal.aborted) return some.map(() => null);
        const firstByte = usedBytes;
        const rest = {
          length: room.length - firstByte,
          pageAt: (at: number, length: number) => room.pageAt(firstByte + at, length),
        };
        const read = await namespace.getPlaced(some, rest, { ...parts.next(), pool, signal });
        return read.map((page) => {
          if (page?.offset === undefined) return page;
          const offset = firstByte + page.offset;
          usedBytes = Math.max(usedBytes, offset + page.length);
          return { offset, length: page.length };
        });
      }),
    );
    // The client asks again for a page without room; the page is counted then.
    const known = placed.filter((page) => page === null || page.offset !== undefined);
    counts.read(
      'staged',
      known.map((page) => ({ length: page?.length ?? 0 })),
      known.map((page) => page !== null),
    );
    return encodeStagedAnswer(placed);
  }

  async #set(body: Buffer, wait: RequestWait): Promise<Buffer> {
    const { regions, counts } = this.#parts;
    const request = decodeRegionRequest(body, REGION_LIMITS);
    const held = regions.hold(request, 'read');
    const way = wayOf(request);
    const results = await released(held, () =>
      this.#publish({ ...request, lengthOf: (page) => held.lengthOf(page) }, wait, (slice, publish) => {
        const step = held.pages(slice);
        return released(step, async () => {
          await step.load();
          const areSet = await publish(step.pages);
          counts.written(way, step.pages, areSet);
          return areSet;
        });
      }),
    );
    return flagsOf(results);
  }

  /**
   * Sets pages in steps, so that a large request ends soon after it is cancelled, and other clients get their turn.
   * `withPages` makes the pages of a step and passes them to `publish`.
   */
  async #publish(
    { keys, pool, isNamed, expiresInMs, priority, lengthOf, ...told }: PagesToSet,
    wait: RequestWait,
    withPages: (slice: Slice, publish: (pages: readonly CallerPage[]) => Promise<boolean[]>) => Promise<boolean[]>,
  ): Promise<boolean[]> {
    const { namespace, caller, goOn } = this.#parts;
    const parts = new RequestParts({ ...toldOptions(told), caller });
    return inKeySteps(keys, { goOn, maxCount: CLIENT_SET_STEP_KEYS }, async (ofStep, ofKeys) => {
      const sizes = ofStep.map((_, i) => ({ length: lengthOf(ofKeys.start + i) }));
      const results: boolean[] = [];
      for (const { start, end } of slicesOf(sizes, { maxBytes: CLIENT_SET_STEP_BYTES })) {
        if (start > 0) await goOn();
        if (wait.signal.aborted) break;
        const some = await withPages({ start: ofKeys.start + start, end: ofKeys.start + end }, (pages) => {
          const call = { ...parts.next(), pool, isNamed, expiresInMs, priority, ...wait };
          return namespace.set(ofStep.slice(start, end), pages, call);
        });
        for (const isSet of some) results.push(isSet);
      }
      while (results.length < ofStep.length) results.push(false);
      return results;
    });
  }

  /** Runs a request with many keys step by step until it is aborted; the results of all remaining keys are false. */
  #inSteps(
    keys: StepKeys,
    signal: CancelSignal,
    step: (keys: readonly string[], slice: Slice) => Promise<readonly boolean[]>,
    atOnce = 1,
  ): Promise<boolean[]> {
    const unlessAborted = async (some: readonly string[], slice: Slice): Promise<readonly boolean[]> =>
      signal.aborted ? none(some) : step(some, slice);
    return inKeySteps(keys, { goOn: this.#parts.goOn, atOnce }, unlessAborted);
  }

  async #getBytes(body: Buffer, { signal, pages }: RequestWait): Promise<readonly Uint8Array[]> {
    const { counts, caller, goOn, namespace } = this.#parts;
    const request = decodeKeyRequest(body, CLIENT_REQUEST_MAX_KEYS, { hasFlags: true });
    const { pool, keys } = request;
    const parts = new RequestParts({ ...toldOptions(request), caller });
    let leftBytes = CLIENT_BODY_MAX_BYTES - 4 * keys.count;
    let isRefused = false;
    const mayTake = (bytes: number): boolean => {
      if (bytes > leftBytes || isRefused) return false;
      isRefused = !pages.take(bytes);
      if (!isRefused) leftBytes -= bytes;
      return !isRefused;
    };
    let atOnce = 1;
    const results = await inKeySteps(keys, { goOn }, async (ofStep): Promise<BytesResult[]> => {
      const read: BytesResult[] = [];
      while (read.length < ofStep.length) {
        if (read.length > 0) await goOn();
        const some = ofStep.slice(read.length, read.length + atOnce);
        const copyOf = (key: string) => namespace.getCopy(key, { ...parts.next(), pool, mayTake, signal });
        const copies = signal.aborted ? some.map(() => null) : await Promise.all(some.map(copyOf));
        let largestBytes = 1;
        for (const copy of copies) {
          // A page that does not fit into an answer alone never will.
          const isMiss = copy === null || (copy === 'too-large' && keys.count === 1 && !isRefused);
          read.push(isMiss ? LENGTH_MISS : copy === 'too-large' ? LENGTH_NO_ROOM : copy);
          if (copy instanceof Uint8Array) largestBytes = Math.max(largestBytes, copy.length);
        }
        // Fewer large pages are read at once, because those that do not fit would be looked up in vain.
        const roomBytes = Math.min(leftBytes, BYTES_READ_AT_ONCE_MAX_BYTES);
        atOnce = Math.max(1, Math.min(BYTES_READ_AT_ONCE_MAX_COUNT, Math.floor(roomBytes / largestBytes)));
      }
      return read;
    });
    if (isRefused && results.every((result) => typeof result === 'number')) {
      throw new RequestError(Status.tooMuch, 'too many unread answers of this client, its process or its user');
    }
    counts.read(
      'bytes',
      results.map((result) => ({ length: typeof result === 'number' ? 0 : result.length })),
      results.map((result) => typeof result !== 'number'),
    );
    return inTurns(encodeBytesAnswer(results), goOn);
  }

  async #setBytes(body: Buffer, wait: RequestWait): Promise<Buffer> {
    const { counts } = this.#parts;
    const request = decodeSetBytes(body, CLIENT_REQUEST_MAX_KEYS);
    if (request.keys.count === 0) return Buffer.alloc(0);
    const memory = HostRegion.wrap(body);
    const release = holdInPlace([body]);
    try {
      const pageOf = (page: Uint8Array): CallerPage => {
        const addr = memory.addr + BigInt(page.byteOffset - body.byteOffset);
        return { ranges: [{ addr, length: page.length }], views: [page], length: page.length };
      };
      const { pages, ...rest } = request;
      const lengthOf = (page: number): number => pages.lengthOf(page);
      const results = await this.#publish({ ...rest, lengthOf }, wait, async ({ start, end }, publish) => {
        const some = pages.slice(start, end);
        const areSet = await publish(some.map(pageOf));
        counts.written('bytes', some, areSet);
        return areSet;
      });
      return flagsOf(results);
    } finally {
      release();
      memory.free();
    }
  }

  async #delete(body: Buffer, { signal, time }: RequestWait): Promise<Buffer> {
    const { pool, keys } = decodeKeyRequest(body, CLIENT_REQUEST_MAX_KEYS, { hasFlags: false });
    const { namespace } = this.#parts;
    return flagsOf(await this.#inSteps(keys, signal, (some) => namespace.delete(some, { pool, time })));
  }

  async #pin(body: Buffer, signal: CancelSignal): Promise<Buffer> {
    const { pool, forMs, name, keys } = decodePin(body, CLIENT_REQUEST_MAX_KEYS);
    const { namespace } = this.#parts;
    const how = name === undefined ? { forMs } : { name };
    return flagsOf(await this.#inSteps(keys, signal, (some) => namespace.pin(some, { pool, signal, ...how })));
  }

  async #unpin(body: Buffer): Promise<Buffer> {
    const { pool, keys } = decodeKeyRequest(body, CLIENT_REQUEST_MAX_KEYS, { hasFlags: false });
    const { namespace, goOn } = this.#parts;
    return flagsOf(await inKeySteps(keys, { goOn }, (some) => namespace.unpin(some, pool)));
  }

  async #endPins(body: Buffer): Promise<Buffer> {
    const answer = Buffer.alloc(4);
    answer.writeUInt32LE(await this.#parts.namespace.endPins(decodeEndPins(body)));
    return answer;
  }

  async #prefetch(body: Buffer, signal: CancelSignal): Promise<Buffer> {
    const { pool, inMs, keys } = decodePrefetch(body, CLIENT_REQUEST_MAX_KEYS);
    const wanted = await this.#textsOf(keys);
    if (inMs <= PREFETCH_LEAD_MS) return flagsOf(await this.#parts.namespace.prefetch(wanted, { pool, inMs, signal }));
    void this.#prefetchLater(wanted, { pool, inMs, signal: this.#later.signal });
    return Buffer.alloc(wanted.length);
  }

  /** Fetches pages without keeping the client waiting. Never rejects. */
  async #prefetchLater(keys: readonly string[], options: PagePrefetchOptions): Promise<void> {
    if (this.#laterRequests >= CLIENT_LATER_MAX_COUNT || this.#laterPages + keys.length > CLIENT_LATER_MAX_KEYS) return;
    this.#laterRequests++;
    this.#laterPages += keys.length;
    // The hint is lost when the node closes.
    await this.#parts.namespace.prefetch(keys, options).catch(() => {});
    this.#laterRequests--;
    this.#laterPages = reduced('client requests: pages to be fetched later', this.#laterPages, keys.length);
  }

  async #tell(body: Buffer): Promise<Buffer> {
    const { session, keys, ...news } = decodeTell(body, CLIENT_REQUEST_MAX_KEYS);
    await this.#parts.namespace.tell(session, { ...news, keys: await this.#textsOf(keys) });
    return Buffer.alloc(0);
  }

  /** Decodes the keys of a request step by step. */
  #textsOf(keys: StepKeys): Promise<string[]> {
    return inKeySteps(keys, this.#parts, async (some) => some as string[]);
  }

  async #clear(body: Buffer): Promise<Buffer> {
    const { namespace, audited } = this.#parts;
    const pools = decodePools(body);
    await audited('clear', () => namespace.clear(pools));
    return Buffer.alloc(0);
  }

  async #stat(body: Buffer): Promise<Buffer> {
    const { pool, keys } = decodeKeyRequest(body, CLIENT_STAT_MAX_KEYS, { hasFlags: false });
    const { namespace, goOn } = this.#parts;
    return Buffer.from(JSON.stringify(await inKeySteps(keys, { goOn }, (some) => namespace.stat(some, pool))));
  }
}

/** Runs `use` and then always releases the regions. Memory that was cut short is reported before any other failure. */
async function released<T>(held: Pick<HeldRegions, 'release'>, use: () => Promise<T> | T): Promise<T> {
  try {
    return await use();
  } finally {
    held.release();
  }
}

/** Throws {@link RequestError} if the keys with their suffixes are too long in total. */
function checkKeyBytes(bytes: number): void {
  if (bytes <= CLIENT_EXISTS_MAX_KEY_BYTES) return;
  throw new RequestError(
    Status.badRequest,
    `keys of ${bytes} bytes with their suffixes; allowed are ${CLIENT_EXISTS_MAX_KEY_BYTES}`,
  );
}

function none(keys: readonly string[]): boolean[] {
  return keys.map(() => false);
}

/** Returns the options of a client's request; `continues` is set only if it is true. */
function toldOptions({ hint = 0, continues = false }: ToldFlags): RequestOptions {
  return continues ? { hint, continues } : { hint };
}

function wayOf({ pieces: { regionIds } }: Pick<RegionRequest, 'pieces'>): ClientWay {
  return regionIds[0] === STAGING_REGION ? 'staged' : 'direct';
}

function flagsOf(results: readonly boolean[]): Buffer {
  const flags = Buffer.alloc(results.length);
  for (let i = 0; i < flags.length; i++) flags[i] = results[i] === true ? 1 : 0;
  return flags;
}
