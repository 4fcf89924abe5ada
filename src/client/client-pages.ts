import { unlessAborted } from '../base/concurrency/abort.js';
import { within } from '../base/environment/clock.js';
import type { Environment } from '../base/environment/environment.js';
import { ArgumentError, ClosedError, MeshCacheError } from '../base/errors.js';
import {
  BYTES_REQUEST_TARGET_BYTES,
  CLIENT_ANSWER_GRACE_MS,
  CLIENT_REQUEST_MAX_PIECES,
  CLIENT_STAT_MAX_KEYS,
} from '../base/limits.js';
import type { PageHolders } from '../clients/requests/client-namespace.js';
import {
  type BytesResult,
  Capability,
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
  Status,
  type ToldFlags,
} from '../clients/wire/messages.js';
import { hintNumber } from '../core/pool/request-hints.js';
import { regionOf } from '../memory/address-space.js';
import type { HostRegion } from '../memory/host-region.js';
import type { CallerPage } from '../store/call/caller-page.js';
import { RequestParts } from '../store/call/request-calls.js';
import type { NamespacePages, PageOptions } from '../store/namespace/namespace-pages.js';
import type { Attachment } from './attachment.js';
import { checkClientKeys, type KeySlice, keyBytesAtMost, keySlices } from './client-keys.js';
import type { NodeLink } from './node-link.js';

export interface ClientPagesParts {
  readonly attachment: Attachment;
  /** Milliseconds for a whole call. */
  readonly timeoutMs: number;
  readonly env: Environment;
}

/** Bytes of pages moved so far. */
export interface MovedBytes {
  direct: number;
  bytes: number;
}

/** One call and its remaining time. */
interface Call {
  readonly link: NodeLink;
  readonly untilMs: number;
  readonly signal: AbortSignal | undefined;
}

/** The operation that the pages of a call are for. */
interface Subject {
  readonly keys: readonly string[];
  readonly pages: readonly CallerPage[];
  readonly pool: string;
  readonly isNamed: boolean;
  /** Flags that every request of the call carries. */
  readonly told: RequestParts;
}

/** A page in memory that the node has registered; `index` is its position in the call. */
interface DirectPage {
  readonly index: number;
  readonly pieces: readonly Piece[];
}

/** Pages of a call, by the way in which they travel. */
interface Ways {
  readonly direct: readonly DirectPage[];
  /** Indices of pages that travel on the socket. */
  readonly onSocket: readonly number[];
}

interface Piece {
  readonly region: HostRegion;
  readonly regionId: number;
  readonly offset: number;
  readonly length: number;
}

/** The pages of a namespace, reached through a node of this host. */
export class ClientPages implements NamespacePages {
  readonly moved: MovedBytes = { direct: 0, bytes: 0 };
  readonly #parts: ClientPagesParts;

  constructor(parts: ClientPagesParts) {
    this.#parts = parts;
  }

  async exists(keys: readonly string[], { pool, signal }: PageOptions): Promise<boolean[]> {
    const results = new Array<boolean>(keys.length).fill(false);
    const call = this.#begin(keys, pool, signal);
    for (const { start, keys: some } of this.#slices(call, keys)) {
      const body = encodeExists({ pool, wantsFlags: true, suffixes: [], keys: some });
      const answer = await this.#ask(call, RequestType.exists, body);
      if (answer?.length === 4 + some.length) take(results, start, answer.subarray(4));
    }
    return results;
  }

  async get(
    keys: readonly string[],
    pages: readonly CallerPage[],
    { pool, signal, ...told }: PageOptions,
  ): Promise<boolean[]> {
    const results = new Array<boolean>(keys.length).fill(false);
    const call = this.#begin(keys, pool, signal);
    if (call === undefined) return results;
    const subject = { keys, pages, pool, isNamed: false, told: new RequestParts(told) };
    const { direct, onSocket } = await this.#waysOf(call, pages);
    await Promise.all([
      this.#inRegions(call, { type: RequestType.get, subject, direct, results }),
      this.#getOnSocket(call, { subject, indices: onSocket, results }),
    ]);
    return results;
  }

  async getCopy(key: string, { pool, signal, ...told }: PageOptions): Promise<Uint8Array | null> {
    const call = this.#begin([key], pool, signal);
    const [page] = await this.#getBytes(call, { keys: [key], pool, told: new RequestParts(told) });
    // The result must not be a view of a larger body.
    return page instanceof Uint8Array ? new Uint8Array(page) : null;
  }

  async set(
    keys: readonly string[],
    pages: readonly CallerPage[],
    { pool, isNamed, ...told }: PageOptions & { readonly isNamed: boolean },
  ): Promise<boolean[]> {
    const results = new Array<boolean>(keys.length).fill(false);
    const call = this.#begin(keys, pool);
    if (call === undefined) return results;
    const subject = { keys, pages, pool, isNamed, told: new RequestParts(told) };
    const { direct, onSocket } = await this.#waysOf(call, pages);
    await Promise.all([
      this.#inRegions(call, { type: RequestType.set, subject, direct, results }),
      this.#setOnSocket(call, { subject, indices: onSocket, results }),
    ]);
    return results;
  }

  async delete(keys: readonly string[], { pool }: { readonly pool: string }): Promise<boolean[]> {
    const results = new Array<boolean>(keys.length).fill(false);
    const call = this.#begin(keys, pool);
    for (const { start, keys: some } of this.#slices(call, keys)) {
      const answer = await this.#ask(call, RequestType.delete, encodeKeyRequest(pool, some, { hasFlags: false }));
      if (answer?.length === some.length) take(results, start, answer);
    }
    return results;
  }

  /**
   * Drops the pages of the namespace. If the node does not answer, rejects with a `MeshCacheError` that can be retried:
   * the pages may still be there.
   */
  async clear(pools: readonly string[]): Promise<void> {
    const answer = await this.#ask(this.#begin(), RequestType.clear, encodePools(pools));
    if (answer !== null) return;
    throw new MeshCacheError('ERR_UNREACHABLE', 'clear: the node does not answer; nothing may have been dropped', {
      retryable: true,
    });
  }

  /** The nodes that hold each page of the main pool; null if none is known, or the node does not answer. */
  async stat(keys: readonly string[]): Promise<(PageHolders | null)[]> {
    const results: (PageHolders | null)[] = keys.map(() => null);
    const call = this.#begin(keys, '');
    for (const { start, keys: some } of this.#slices(call, keys, CLIENT_STAT_MAX_KEYS)) {
      const answer = await this.#ask(call, RequestType.stat, encodeKeyRequest('', some, { hasFlags: false }));
      if (answer === null) continue;
      for (const [i, found] of (JSON.parse(answer.toString()) as (PageHolders | null)[]).entries()) {
        results[start + i] = found;
      }
    }
    return results;
  }

  /** Sends a request without a body. Resolves with the body of the answer; null if there was none. */
  ask(type: RequestType): Promise<Buffer | null> {
    return this.#ask(this.#begin(), type, Buffer.alloc(0));
  }

  /**
   * Begins a call. Undefined if there is no node, or the call was aborted before. Throws `ArgumentError` and
   * `ClosedError`.
   */
  #begin(keys: readonly string[] = [], pool = '', signal?: AbortSignal): Call | undefined {
    const { attachment, timeoutMs, env } = this.#parts;
    if (attachment.isClosed) throw new ClosedError('the client');
    checkClientKeys(keys, pool);
    const { link } = attachment;
    if (link === undefined || signal?.aborted === true) return undefined;
    return { link, untilMs: env.clock.nowMs() + timeoutMs, signal };
  }

  /** Slices of keys that each fit into one request; none without a node. */
  #slices(call: Call | undefined, keys: readonly string[], maxCount?: number): Iterable<KeySlice> {
    if (call === undefined) return [];
    const { requestMaxKeys, bodyMaxBytes } = call.link.hello;
    return keySlices(keys, { maxCount: Math.min(requestMaxKeys, maxCount ?? requestMaxKeys), maxBytes: bodyMaxBytes });
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

  /** Ids of the regions that hold these pages, as far as the node has them or accepts them while the call has time. */
  async #regionIds(
    { link, untilMs, signal }: Call,
    pages: readonly CallerPage[],
  ): Promise<ReadonlyMap<HostRegion, number>> {
    const { attachment, env } = this.#parts;
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
    // An id that comes later does not count for this call.
    return new Map(ids);
  }

  /** Moves pages in registered memory. Resolves when the node touches none of it any more. */
  async #inRegions(
    call: Call,
    {
      type,
      subject: { keys, pool, isNamed, told },
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
        const flags = { isNamed, ...toldFlags(call, told) };
        const body = encodeRegionRequest({ pool, keys: someKeys, pieces, ...flags });
        const answer = await this.#ask(call, type, body, some);
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
      subject: { keys, pages, pool, told },
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
        if (typeof page === 'number' || page.length !== (pages[index] as CallerPage).length) return;
        copyInto(pages[index] as CallerPage, page);
        this.moved.bytes += page.length;
        results[index] = true;
      });
      // A page that has no room alone has none at all.
      left = [...(again.length < some.length ? again : []), ...left.slice(some.length)];
    }
  }

  async #setOnSocket(
    call: Call,
    {
      subject: { keys, pages, pool, isNamed, told },
      indices,
      results,
    }: { readonly subject: Subject; readonly indices: readonly number[]; readonly results: boolean[] },
  ): Promise<void> {
    const { requestMaxKeys, bodyMaxBytes } = call.link.hello;
    for (let left = indices; left.length > 0; ) {
      const some = left.slice(0, sliceCount(left, { keys, pages }, requestMaxKeys));
      left = left.slice(some.length);
      // Only a single page can be larger than any body.
      if (some.some((index) => (pages[index] as CallerPage).length > bodyMaxBytes)) continue;
      const body = encodeSetBytes({
        pool,
        isNamed,
        ...toldFlags(call, told),
        keys: some.map((index) => keys[index] as string),
        pages: some.map((index) => joined(pages[index] as CallerPage)),
      });
      if (body.length > bodyMaxBytes) continue;
      const answer = await this.#ask(call, RequestType.setBytes, body);
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
    const answer = await this.#ask(call, RequestType.getBytes, body);
    return answer === null ? [] : decodeBytesAnswer(answer, keys.length);
  }

  /**
   * Sends a request and resolves with the body of the answer, or with null if no good answer came in time. `touched`
   * are the pages that the node moves for it: the promise then resolves only when the node cannot touch their memory
   * any more, however long that takes. Throws `ArgumentError` when the node reports a mistake of the caller.
   */
  async #ask(
    call: Call | undefined,
    type: RequestType,
    body: Buffer,
    touched: readonly DirectPage[] = [],
  ): Promise<Buffer | null> {
    if (call === undefined) return null;
    const { env, attachment } = this.#parts;
    const leftMs = call.untilMs - env.clock.nowMs();
    if (leftMs <= 0 || call.signal?.aborted === true) return null;
    const asked = call.link.request(type, body, leftMs);
    if (asked === undefined) return null;
    const { id, answer } = asked;
    const inTime = within(env.clock, leftMs + CLIENT_ANSWER_GRACE_MS, answer);
    const isAnswered = (await unlessAborted(inTime, call.signal)) === true;
    if (!isAnswered) {
      call.link.cancel(id);
      if (touched.length === 0) return null;
    }
    const given = await answer;
    if (given === null) {
      if (touched.length > 0) await attachment.fenced(call.link);
      return null;
    }
    if (given.status === Status.ok) return given.body;
    if (given.status === Status.badRequest) throw new ArgumentError(given.body.toString());
    if (given.status === Status.noRegion || given.status === Status.regionGone) {
      const regions = new Set(touched.flatMap(({ pieces }) => pieces.map(({ region }) => region)));
      for (const region of regions) attachment.forgetRegion(region);
    }
    return null;
  }
}

/** Flags for the next request of a call; empty for a node that does not know them. */
function toldFlags({ link }: Call, parts: RequestParts): ToldFlags {
  if ((link.hello.capabilities & Capability.hints) === 0) return {};
  const { hint, continues = false } = parts.next();
  return { hint: hintNumber(hint), continues };
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

/** The number of these pages that fit into one body, at least one. */
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

function copyInto({ views }: CallerPage, page: Uint8Array): void {
  let at = 0;
  for (const view of views) {
    view.set(page.subarray(at, at + view.length));
    at += view.length;
  }
}

function take(results: boolean[], start: number, flags: Uint8Array): void {
  for (const [i, flag] of flags.entries()) results[start + i] = flag === 1;
}
