import { unlessAborted } from '../base/abort.js';
import { within } from '../base/clock.js';
import type { Environment } from '../base/environment.js';
import { ArgumentError, ClosedError, MeshCacheError } from '../base/errors.js';
import { BYTES_REQUEST_TARGET_BYTES, CLIENT_ANSWER_GRACE_MS } from '../base/limits.js';
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
  Status,
} from '../clients/messages.js';
import { regionOf } from '../memory/address-space.js';
import type { NamespacePages, ReadOptions } from '../store/namespace-pages.js';
import type { CallerPage } from '../store/page-store.js';
import type { Attachment } from './attachment.js';
import type { NodeLink } from './node-link.js';

export interface ClientPagesParts {
  readonly attachment: Attachment;
  /** For a whole call. */
  readonly timeoutMs: number;
  readonly env: Environment;
}

/** Pages moved so far. */
export interface MovedBytes {
  direct: number;
  bytes: number;
}

/** One call: what it still has of its time. */
interface Call {
  readonly link: NodeLink;
  readonly untilMs: number;
  readonly signal: AbortSignal | undefined;
}

/** Pages of a call by the way that they go; indices in the call. */
interface Ways {
  readonly direct: readonly { readonly index: number; readonly pieces: readonly Piece[] }[];
  readonly onSocket: readonly number[];
}

interface Piece {
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

  async exists(keys: readonly string[], { pool, signal }: ReadOptions): Promise<boolean[]> {
    const results = new Array<boolean>(keys.length).fill(false);
    const call = this.#begin(signal);
    for (const [start, some] of this.#slices(call, keys)) {
      const body = encodeExists({ pool, wantsFlags: true, suffixes: [], keys: some });
      const answer = await this.#ask(call, RequestType.exists, body);
      if (answer?.length === 4 + some.length) take(results, start, answer.subarray(4));
    }
    return results;
  }

  async get(keys: readonly string[], pages: readonly CallerPage[], { pool, signal }: ReadOptions): Promise<boolean[]> {
    const results = new Array<boolean>(keys.length).fill(false);
    const call = this.#begin(signal);
    if (call === undefined) return results;
    const { direct, onSocket } = await this.#waysOf(call, pages);
    await Promise.all([
      this.#inRegions(call, RequestType.get, { keys, pool, isNamed: false }, direct, results),
      this.#getOnSocket(call, { keys, pages, pool }, onSocket, results),
    ]);
    return results;
  }

  async getCopy(key: string, { pool, signal }: ReadOptions): Promise<Uint8Array | null> {
    const [page] = await this.#getBytes(this.#begin(signal), [key], pool);
    // What is returned must not be a view of a larger body.
    return page instanceof Uint8Array ? Uint8Array.from(page) : null;
  }

  async set(
    keys: readonly string[],
    pages: readonly CallerPage[],
    { pool, isNamed }: { readonly pool: string; readonly isNamed: boolean },
  ): Promise<boolean[]> {
    const results = new Array<boolean>(keys.length).fill(false);
    const call = this.#begin(undefined);
    if (call === undefined) return results;
    const { direct, onSocket } = await this.#waysOf(call, pages);
    await Promise.all([
      this.#inRegions(call, RequestType.set, { keys, pool, isNamed }, direct, results),
      this.#setOnSocket(call, { keys, pages, pool, isNamed }, onSocket, results),
    ]);
    return results;
  }

  async delete(keys: readonly string[], { pool }: { readonly pool: string }): Promise<boolean[]> {
    const results = new Array<boolean>(keys.length).fill(false);
    const call = this.#begin(undefined);
    for (const [start, some] of this.#slices(call, keys)) {
      const answer = await this.#ask(call, RequestType.delete, encodeKeyRequest(pool, some, { hasFlags: false }));
      if (answer?.length === some.length) take(results, start, answer);
    }
    return results;
  }

  /** Rejects with a `MeshCacheError` that can be tried again when the node does not answer: what was to go may still be there. */
  async clear(pools: readonly string[]): Promise<void> {
    const answer = await this.#ask(this.#begin(undefined), RequestType.clear, encodePools(pools));
    if (answer !== null) return;
    throw new MeshCacheError('ERR_UNREACHABLE', 'clear: the node does not answer; nothing may have been dropped', {
      retryable: true,
    });
  }

  /** The body of an answer without arguments, or with keys of the main pool; null: there was none. */
  ask(type: RequestType, body: Buffer = Buffer.alloc(0)): Promise<Buffer | null> {
    return this.#ask(this.#begin(undefined), type, body);
  }

  /** Undefined: there is no node. */
  #begin(signal: AbortSignal | undefined): Call | undefined {
    const { attachment, timeoutMs, env } = this.#parts;
    if (attachment.isClosed) throw new ClosedError('the client');
    const { link } = attachment;
    if (link === undefined || signal?.aborted === true) return undefined;
    return { link, untilMs: env.clock.nowMs() + timeoutMs, signal };
  }

  *#slices(call: Call | undefined, keys: readonly string[]): Iterable<readonly [start: number, keys: string[]]> {
    if (call === undefined) return;
    const { requestMaxKeys } = call.link.hello;
    for (let start = 0; start < keys.length; start += requestMaxKeys) {
      yield [start, keys.slice(start, start + requestMaxKeys)];
    }
  }

  async #waysOf({ link }: Call, pages: readonly CallerPage[]): Promise<Ways> {
    const direct: { index: number; pieces: Piece[] }[] = [];
    const onSocket: number[] = [];
    for (const [index, { ranges }] of pages.entries()) {
      const pieces: Piece[] = [];
      for (const { addr, length } of ranges) {
        const region = regionOf(Number(addr), length);
        const regionId = region === null ? undefined : await this.#parts.attachment.regionId(link, region);
        if (region === null || regionId === undefined) break;
        pieces.push({ regionId, offset: Number(addr) - region.start, length });
      }
      const isDirect = pieces.length === ranges.length && pieces.length > 0 && pieces.length < 256;
      if (isDirect) direct.push({ index, pieces });
      else onSocket.push(index);
    }
    return { direct, onSocket };
  }

  /** Moves pages in registered memory. Resolves when the node touches none of it any more. */
  async #inRegions(
    call: Call,
    type: typeof RequestType.get | typeof RequestType.set,
    { keys, pool, isNamed }: { readonly keys: readonly string[]; readonly pool: string; readonly isNamed: boolean },
    direct: Ways['direct'],
    results: boolean[],
  ): Promise<void> {
    const byPieceCount = new Map<number, Ways['direct'][number][]>();
    for (const page of direct) {
      const same = byPieceCount.get(page.pieces.length);
      if (same === undefined) byPieceCount.set(page.pieces.length, [page]);
      else same.push(page);
    }
    const { requestMaxKeys } = call.link.hello;
    for (const [pieceCount, all] of byPieceCount) {
      for (let start = 0; start < all.length; start += requestMaxKeys) {
        const some = all.slice(start, start + requestMaxKeys);
        const body = encodeRegionRequest({
          pool,
          isNamed,
          keys: some.map(({ index }) => keys[index] as string),
          pieces: columnsOf(pieceCount, some),
        });
        const answer = await this.#ask(call, type, body, { isFenced: true });
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
      keys,
      pages,
      pool,
    }: { readonly keys: readonly string[]; readonly pages: readonly CallerPage[]; readonly pool: string },
    indices: readonly number[],
    results: boolean[],
  ): Promise<void> {
    for (let left = indices; left.length > 0; ) {
      const some = left.slice(0, sliceCount(left, pages, call.link.hello.requestMaxKeys));
      const wanted = some.map((index) => keys[index] as string);
      const found = await this.#getBytes(call, wanted, pool);
      const again: number[] = [];
      some.forEach((index, i) => {
        const page = found[i] ?? LENGTH_MISS;
        if (page === LENGTH_NO_ROOM) again.push(index);
        if (typeof page === 'number' || page.length !== (pages[index] as CallerPage).length) return;
        copyInto(pages[index] as CallerPage, page);
        this.moved.bytes += page.length;
        results[index] = true;
      });
      // What has no room alone has none at all.
      left = [...(again.length < some.length ? again : []), ...left.slice(some.length)];
    }
  }

  async #setOnSocket(
    call: Call,
    {
      keys,
      pages,
      pool,
      isNamed,
    }: {
      readonly keys: readonly string[];
      readonly pages: readonly CallerPage[];
      readonly pool: string;
      readonly isNamed: boolean;
    },
    indices: readonly number[],
    results: boolean[],
  ): Promise<void> {
    for (let left = indices; left.length > 0; ) {
      const some = left.slice(0, sliceCount(left, pages, call.link.hello.requestMaxKeys));
      left = left.slice(some.length);
      const body = encodeSetBytes({
        pool,
        isNamed,
        keys: some.map((index) => keys[index] as string),
        pages: some.map((index) => joined(pages[index] as CallerPage)),
      });
      if (body.length > call.link.hello.bodyMaxBytes) continue;
      const answer = await this.#ask(call, RequestType.setBytes, body);
      if (answer?.length !== some.length) continue;
      some.forEach((index, i) => {
        results[index] = answer[i] === 1;
        if (results[index]) this.moved.bytes += (pages[index] as CallerPage).length;
      });
    }
  }

  async #getBytes(call: Call | undefined, keys: readonly string[], pool: string): Promise<readonly BytesResult[]> {
    const answer = await this.#ask(call, RequestType.getBytes, encodeKeyRequest(pool, keys, { hasFlags: true }));
    return answer === null ? [] : decodeBytesAnswer(answer, keys.length);
  }

  /**
   * The body of the answer; null: none that is good has come in time. `isFenced`: resolves only when the node cannot touch the memory of the
   * request any more, however long that takes. Throws `ArgumentError` for what the node says that the caller has got wrong.
   */
  async #ask(
    call: Call | undefined,
    type: RequestType,
    body: Buffer,
    { isFenced = false } = {},
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
      if (!isFenced) return null;
    }
    const given = await answer;
    if (given === null) {
      if (isFenced) await attachment.fenced(call.link);
      return null;
    }
    if (given.status === Status.ok) return given.body;
    if (given.status === Status.badRequest) throw new ArgumentError(given.body.toString());
    if (given.status === Status.noRegion || given.status === Status.regionGone) attachment.forgetRegions();
    return null;
  }
}

function columnsOf(pieceCount: number, pages: Ways['direct']): PieceColumns {
  const all = pages.flatMap(({ pieces }) => pieces);
  return {
    pieceCount,
    offsets: all.map(({ offset }) => offset),
    lengths: all.map(({ length }) => length),
    regionIds: all.map(({ regionId }) => regionId),
  };
}

/** How many of these pages go in one body: at least one. */
function sliceCount(indices: readonly number[], pages: readonly CallerPage[], maxCount: number): number {
  let bytes = 0;
  let count = 0;
  for (const index of indices) {
    bytes += (pages[index] as CallerPage).length;
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
