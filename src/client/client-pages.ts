import { checkNotAborted, unlessAborted } from '../base/concurrency/cancellation.js';
import { within } from '../base/environment/clock.js';
import { MeshCacheError } from '../base/errors.js';
import { BYTES_REQUEST_TARGET_BYTES, CLIENT_REQUEST_MAX_PIECES, CLIENT_STAT_MAX_KEYS } from '../base/limits.js';
import type { PageHolders } from '../clients/requests/client-namespace.js';
import {
  type BytesResult,
  decodeBytesAnswer,
  encodeExists,
  encodeKeyRequest,
  encodePools,
  encodeRegionRequest,
  encodeSetBytes,
  LENGTH_MISS,
  LENGTH_NO_ROOM,
  type PieceColumns,
  RequestType,
} from '../clients/wire/messages.js';
import type { SetFlags } from '../clients/wire/request-flags.js';
import { regionOf } from '../memory/address-space.js';
import type { HostRegion } from '../memory/host-region.js';
import type { CallLimits, MissReason, Reasons, RefusalReason } from '../store/call/call-options.js';
import { type CallerPage, fillPage } from '../store/call/caller-page.js';
import { RequestParts } from '../store/call/request-calls.js';
import type {
  NamespacePages,
  PageOptions,
  PagePinOptions,
  PagePrefetchOptions,
  PageReadOptions,
  PageSessionNews,
  PageWriteOptions,
} from '../store/namespace/namespace-pages.js';
import type { Attachment } from './attachment.js';
import {
  type Call,
  ClientCalls,
  type DirectPage,
  flagsFor,
  isLookupStated,
  keyBytesAtMost,
  keySlices,
  type Piece,
  toldFlags,
} from './client-calls.js';
import { ClientCare } from './client-care.js';

const NO_SET_FLAGS: SetFlags = { isNamed: false };

/** Bytes of pages moved so far. */
interface MovedBytes {
  direct: number;
  bytes: number;
}

/** The keys, pages and flags that one call is about. */
interface Subject {
  readonly keys: readonly string[];
  readonly pages: readonly CallerPage[];
  readonly pool: string;
  /** Flags that a set applies to its pages. */
  readonly flags: SetFlags;
  /** Flags that every request of the call carries. */
  readonly told: RequestParts;
  /** Receives the reasons that the client knows, if the caller asked for reasons. */
  readonly reasons?: Reasons<MissReason> | Reasons<RefusalReason> | undefined;
}

/** Pages to move, and the options of the call. */
interface Move {
  readonly keys: readonly string[];
  readonly pages: readonly CallerPage[];
  readonly flags: SetFlags;
  readonly options: PageOptions;
}

/** The pages of a call, split by how they travel. */
interface Ways {
  readonly direct: readonly DirectPage[];
  /** Indices of pages that travel on the socket. */
  readonly onSocket: readonly number[];
}

/** The pages of a namespace, reached through a node of this host. */
export class ClientPages implements NamespacePages {
  readonly moved: MovedBytes = { direct: 0, bytes: 0 };
  readonly #attachment: Attachment;
  readonly #calls: ClientCalls;
  readonly #care: ClientCare;

  /** `timeoutMs`: longest time of a whole call, in milliseconds. */
  constructor(attachment: Attachment, timeoutMs: number) {
    this.#attachment = attachment;
    this.#calls = new ClientCalls(attachment, timeoutMs);
    this.#care = new ClientCare(this.#calls);
  }

  exists(keys: readonly string[], options: PageOptions): Promise<boolean[]> {
    const call = this.#calls.begin(keys, options);
    const isUncounted = isLookupStated(call?.link);
    return this.#calls.inSlices(call, keys, {
      type: RequestType.exists,
      bodyOf: (some) => encodeExists({ pool: options.pool, wantsFlags: true, isUncounted, suffixes: [], keys: some }),
      headBytes: 4,
    });
  }

  get(keys: readonly string[], pages: readonly CallerPage[], options: PageReadOptions): Promise<boolean[]> {
    return this.#move(RequestType.get, { keys, pages, flags: NO_SET_FLAGS, options }, options.reasons);
  }

  async getCopy(key: string, options: PageReadOptions): Promise<Uint8Array | null> {
    const [copy = null] = await this.getCopies([key], options);
    return copy;
  }

  getCopies(keys: readonly string[], options: PageReadOptions): Promise<(Uint8Array | null)[]> {
    const call = this.#calls.begin(keys, options);
    return this.#getCopies(call, keys, options);
  }

  set(keys: readonly string[], pages: readonly CallerPage[], options: PageWriteOptions): Promise<boolean[]> {
    const { isNamed, expiresInMs, priority } = options;
    const flags = { isNamed, expiresInMs, priority };
    return this.#move(RequestType.set, { keys, pages, flags, options }, options.refusals);
  }

  delete(keys: readonly string[], options: PageOptions): Promise<boolean[]> {
    const call = this.#calls.begin(keys, options);
    return this.#calls.inSlices(call, keys, {
      type: RequestType.delete,
      bodyOf: (some) => encodeKeyRequest(options.pool, some, { hasFlags: false }),
      headBytes: 0,
    });
  }

  pin(keys: readonly string[], options: PagePinOptions): Promise<boolean[]> {
    return this.#care.pin(keys, options);
  }

  endPins(name: string): Promise<number> {
    return this.#care.endPins(name);
  }

  unpin(keys: readonly string[], options: PageOptions): Promise<boolean[]> {
    return this.#care.unpin(keys, options);
  }

  prefetch(keys: readonly string[], options: PagePrefetchOptions): Promise<boolean[]> {
    return this.#care.prefetch(keys, options);
  }

  tell(session: string, news: PageSessionNews): Promise<void> {
    return this.#care.tell(session, news);
  }

  /**
   * Drops the pages of the namespace. If the node does not answer, rejects with a retryable `MeshCacheError`, because
   * the pages may still exist.
   */
  async clear(pools: readonly string[], options: CallLimits = {}): Promise<void> {
    checkNotAborted(options.signal);
    const answer = await this.#calls.ask(
      this.#calls.begin([], { pool: '', ...options }),
      RequestType.clear,
      encodePools(pools),
    );
    if (answer !== null) return;
    checkNotAborted(options.signal);
    throw new MeshCacheError('ERR_UNREACHABLE', 'clear: the node does not answer; nothing may have been dropped', {
      retryable: true,
    });
  }

  /** Returns the nodes that hold each page of the main pool; null if no holder is known or the node does not answer. */
  async stat(keys: readonly string[]): Promise<(PageHolders | null)[]> {
    const results: (PageHolders | null)[] = keys.map(() => null);
    const call = this.#calls.begin(keys);
    for (const { start, keys: some } of this.#calls.slices(call, keys, CLIENT_STAT_MAX_KEYS)) {
      const answer = await this.#calls.ask(call, RequestType.stat, encodeKeyRequest('', some, { hasFlags: false }));
      if (answer === null) continue;
      for (const [i, found] of (JSON.parse(answer.toString()) as (PageHolders | null)[]).entries()) {
        results[start + i] = found;
      }
    }
    return results;
  }

  /** Sends a request that is not about pages. Resolves with the body of the answer; null if there was none. */
  ask(type: RequestType, body: Buffer = Buffer.alloc(0)): Promise<Buffer | null> {
    return this.#calls.ask(this.#calls.begin(), type, body);
  }

  /** Moves pages between the caller's memory and the node, directly where possible, else on the socket. */
  #move(
    type: typeof RequestType.get | typeof RequestType.set,
    { keys, pages, flags: given, options }: Move,
    reasons: Reasons<MissReason> | Reasons<RefusalReason> | undefined,
  ): Promise<boolean[]> {
    const { pool } = options;
    const call = this.#calls.begin(keys, options);
    const flags = call === undefined ? given : flagsFor(call, given);
    const results = new Array<boolean>(keys.length).fill(false);
    const move = async (): Promise<boolean[]> => {
      if (call !== undefined) {
        const told = new RequestParts(options);
        const subject: Subject = { keys, pages, pool, flags, told, reasons };
        const { direct, onSocket } = await this.#waysOf(call, pages);
        await Promise.all([
          this.#inRegions(call, { type, subject, direct, results }),
          type === RequestType.get
            ? this.#getOnSocket(call, { subject, indices: onSocket, results })
            : this.#setOnSocket(call, { subject, indices: onSocket, results }),
        ]);
      }
      reasons?.fill(results, this.#calls.reasonOf(call, options));
      return results;
    };
    return move();
  }

  async #getCopies(
    call: Call | undefined,
    keys: readonly string[],
    options: PageReadOptions,
  ): Promise<(Uint8Array | null)[]> {
    const { pool } = options;
    const copies = new Array<Uint8Array | null>(keys.length).fill(null);
    const told = new RequestParts(options);
    for (const { start, keys: some } of this.#calls.slices(call, keys)) {
      for (let left = some.map((_, i) => start + i); left.length > 0; ) {
        const wanted = left.map((index) => keys[index] as string);
        const found = await this.#getBytes(call, { keys: wanted, pool, told });
        const again: number[] = [];
        left.forEach((index, i) => {
          const page = found[i];
          if (page === LENGTH_NO_ROOM) again.push(index);
          // Copies the page: the result must not be a view that keeps a larger body alive.
          else if (page instanceof Uint8Array) copies[index] = new Uint8Array(page);
        });
        // If even the first page of a request has no room, asking again is useless.
        left = again.length < left.length ? again : [];
      }
    }
    options.reasons?.fill(
      copies.map((copy) => copy !== null),
      this.#calls.reasonOf(call, options),
    );
    return copies;
  }

  async #waysOf(call: Call, pages: readonly CallerPage[]): Promise<Ways> {
    const ids = await this.#regionIds(call, pages);
    const direct: DirectPage[] = [];
    const onSocket: number[] = [];
    for (const [index, { ranges }] of pages.entries()) {
      const pieces: Piece[] = [];
      for (const { addr, length } of ranges) {
        const region = regionOf(Number(addr), length);
        const regionId = region === null ? undefined : ids.get(region);
        if (region === null || regionId === undefined) break;
        pieces.push({ region, regionId, offset: Number(addr) - region.start, length });
      }
      const isDirect = pieces.length === ranges.length && pieces.length < 256;
      if (isDirect) direct.push({ index, pieces });
      else onSocket.push(index);
    }
    return { direct, onSocket };
  }

  /**
   * Returns the ids of the regions that hold these pages, if the node has them or accepts them before the call ends.
   */
  async #regionIds(
    { link, untilMs, signal }: Call,
    pages: readonly CallerPage[],
  ): Promise<ReadonlyMap<HostRegion, number>> {
    const attachment = this.#attachment;
    const { env } = attachment;
    const ids = new Map<HostRegion, number>();
    const asked = new Map<HostRegion, Promise<unknown>>();
    for (const { ranges } of pages) {
      for (const { addr, length } of ranges) {
        const region = regionOf(Number(addr), length);
        if (region === null || asked.has(region)) continue;
        const known = attachment.regionId(link, region).then((id) => {
          if (id !== undefined) ids.set(region, id);
        });
        asked.set(region, known);
      }
    }
    if (asked.size === 0) return ids;
    const all = Promise.all(asked.values());
    await unlessAborted(within(env.clock, untilMs - env.clock.nowMs(), all), signal);
    // The copy ignores ids that arrive after this call has stopped waiting.
    return new Map(ids);
  }

  /** Moves pages in registered memory. Resolves when the node no longer touches any of it. */
  async #inRegions(
    call: Call,
    {
      type,
      subject: { keys, pool, flags, told },
      direct,
      results,
    }: {
      readonly type: typeof RequestType.get | typeof RequestType.set;
      readonly subject: Subject;
      readonly direct: readonly DirectPage[];
      readonly results: boolean[];
    },
  ): Promise<void> {
    const byPieceCount = new Map<number, DirectPage[]>();
    for (const page of direct) {
      const same = byPieceCount.get(page.pieces.length);
      if (same === undefined) byPieceCount.set(page.pieces.length, [page]);
      else same.push(page);
    }
    const { requestMaxKeys, bodyMaxBytes } = call.link.hello;
    for (const [pieceCount, all] of byPieceCount) {
      const wanted = all.map(({ index }) => keys[index] as string);
      const maxCount = Math.min(requestMaxKeys, Math.floor(CLIENT_REQUEST_MAX_PIECES / pieceCount));
      const limits = { maxCount, maxBytes: bodyMaxBytes, besideKeyBytes: 16 * pieceCount };
      for (const { start, keys: someKeys } of keySlices(wanted, limits)) {
        const some = all.slice(start, start + someKeys.length);
        const pieces = columnsOf(pieceCount, some);
        const body = encodeRegionRequest({ pool, keys: someKeys, pieces, ...flags, ...toldFlags(call, told) });
        const answer = await this.#calls.ask(call, type, body, some);
        if (answer?.length !== some.length) continue;
        some.forEach(({ index, pieces }, i) => {
          results[index] = answer[i] === 1;
          if (results[index]) this.moved.direct += pieces.reduce((sum, { length }) => sum + length, 0);
        });
      }
    }
  }

  async #getOnSocket(
    call: Call,
    {
      subject: { keys, pages, pool, told, reasons },
      indices,
      results,
    }: { readonly subject: Subject; readonly indices: readonly number[]; readonly results: boolean[] },
  ): Promise<void> {
    for (let left = indices; left.length > 0; ) {
      const some = left.slice(0, sliceCount(left, { keys, pages }, call.link.hello.requestMaxKeys));
      const wanted = some.map((index) => keys[index] as string);
      const found = await this.#getBytes(call, { keys: wanted, pool, told });
      const again: number[] = [];
      some.forEach((index, i) => {
        const page = found[i] ?? LENGTH_MISS;
        if (page === LENGTH_NO_ROOM) again.push(index);
        if (typeof page === 'number') return;
        if (page.length !== (pages[index] as CallerPage).length) {
          (reasons as Reasons<MissReason> | undefined)?.note(index, 'other_size');
          return;
        }
        fillPage(pages[index] as CallerPage, page);
        this.moved.bytes += page.length;
        results[index] = true;
      });
      // If even the first page of a request has no room, asking again is useless.
      left = [...(again.length < some.length ? again : []), ...left.slice(some.length)];
    }
  }

  async #setOnSocket(
    call: Call,
    {
      subject: { keys, pages, pool, flags, told, reasons },
      indices,
      results,
    }: { readonly subject: Subject; readonly indices: readonly number[]; readonly results: boolean[] },
  ): Promise<void> {
    const { requestMaxKeys, bodyMaxBytes } = call.link.hello;
    for (let left = indices; left.length > 0; ) {
      const some = left.slice(0, sliceCount(left, { keys, pages }, requestMaxKeys));
      left = left.slice(some.length);
      // A slice exceeds the limit only if it is a single page that is too large for any body.
      if (some.some((index) => (pages[index] as CallerPage).length > bodyMaxBytes)) {
        for (const index of some) (reasons as Reasons<RefusalReason> | undefined)?.note(index, 'too_large');
        continue;
      }
      const body = encodeSetBytes({
        pool,
        ...flags,
        ...toldFlags(call, told),
        keys: some.map((index) => keys[index] as string),
        pages: some.map((index) => joined(pages[index] as CallerPage)),
      });
      if (body.length > bodyMaxBytes) continue;
      const answer = await this.#calls.ask(call, RequestType.setBytes, body);
      if (answer?.length !== some.length) continue;
      some.forEach((index, i) => {
        results[index] = answer[i] === 1;
        if (results[index]) this.moved.bytes += (pages[index] as CallerPage).length;
      });
    }
  }

  async #getBytes(
    call: Call | undefined,
    { keys, pool, told }: Pick<Subject, 'keys' | 'pool' | 'told'>,
  ): Promise<readonly BytesResult[]> {
    if (call === undefined) return [];
    const body = encodeKeyRequest(pool, keys, { hasFlags: true, ...toldFlags(call, told) });
    const answer = await this.#calls.ask(call, RequestType.getBytes, body);
    return answer === null ? [] : decodeBytesAnswer(answer, keys.length);
  }
}

function columnsOf(pieceCount: number, pages: readonly DirectPage[]): PieceColumns {
  const all = pages.flatMap(({ pieces }) => pieces);
  return {
    pieceCount,
    offsets: all.map(({ offset }) => offset),
    lengths: all.map(({ length }) => length),
    regionIds: all.map(({ regionId }) => regionId),
  };
}

/** Returns how many of these pages fit into one body, at least one. */
function sliceCount(
  indices: readonly number[],
  { keys, pages }: Pick<Subject, 'keys' | 'pages'>,
  maxCount: number,
): number {
  let bytes = 0;
  let count = 0;
  for (const index of indices) {
    bytes += (pages[index] as CallerPage).length + keyBytesAtMost(keys[index] as string);
    if (count > 0 && (bytes > BYTES_REQUEST_TARGET_BYTES || count >= maxCount)) break;
    count++;
  }
  return count;
}

function joined({ views, length }: CallerPage): Uint8Array {
  return views.length === 1 ? (views[0] as Uint8Array) : Buffer.concat(views, length);
}
