import type { Clock } from '../base/clock.js';
import { MeshCacheError } from '../base/errors.js';
import { CLIENT_BODY_MAX_BYTES, CLIENT_REQUEST_MAX_KEYS, CLIENT_STAT_MAX_KEYS } from '../base/limits.js';
import { HostRegion } from '../memory/host-region.js';
import { prefixLength } from '../store/hybrid.js';
import type { CallerPage } from '../store/page-store.js';
import { type ClientNamespace, statOf } from './client-namespace.js';
import type { ClientRegions, HeldPages } from './client-regions.js';
import type { ClientCounts, ClientWay } from './client-stats.js';
import {
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
  type RegionRequest,
  RequestType,
  STAGING_REGION,
  Status,
} from './messages.js';
import { RequestError } from './request-error.js';

export interface ClientRequestsParts {
  readonly namespace: ClientNamespace;
  readonly regions: ClientRegions;
  readonly counts: ClientCounts;
  readonly clock: Clock;
}

/** Pages that are read at once for one GET_BYTES. */
const BYTES_READ_AT_ONCE_MAX_COUNT = 16;

/** Does what one client asks for, request by request. */
export class ClientRequests {
  readonly #parts: ClientRequestsParts;

  constructor(parts: ClientRequestsParts) {
    this.#parts = parts;
  }

  /**
   * The body of the answer. Resolves when nothing of this node touches the request's memory any more; `signal` makes that soon. Throws
   * {@link RequestError}, and `ProtocolError` for a body that cannot be decoded.
   */
  async run(type: RequestType, body: Buffer, signal: AbortSignal): Promise<Buffer> {
    switch (type) {
      case RequestType.exists:
        return this.#exists(body, signal);
      case RequestType.get:
        return this.#get(body, signal);
      case RequestType.set:
        return this.#set(body, signal);
      case RequestType.getBytes:
        return this.#getBytes(body, signal);
      case RequestType.setBytes:
        return this.#setBytes(body, signal);
      case RequestType.delete:
        return this.#delete(body);
      case RequestType.clear:
        return this.#clear(body);
      case RequestType.stat:
        return this.#stat(body);
      case RequestType.unregion:
        await this.#parts.regions.remove(decodeNumber(body));
        return Buffer.alloc(0);
      default:
        throw new RequestError(Status.badRequest, `a request of type ${type}`);
    }
  }

  async #exists(body: Buffer, signal: AbortSignal): Promise<Buffer> {
    const { namespace, counts } = this.#parts;
    const { pool, wantsFlags, suffixes, keys } = decodeExists(body, CLIENT_REQUEST_MAX_KEYS);
    const parts = suffixes.length === 0 ? [''] : suffixes;
    if (keys.length * parts.length > CLIENT_REQUEST_MAX_KEYS) {
      throw new RequestError(
        Status.badRequest,
        `${keys.length} keys with ${parts.length} suffixes; allowed are ${CLIENT_REQUEST_MAX_KEYS} of both together`,
      );
    }
    const asked =
      parts.length === 1 ? keys.map((key) => key + parts[0]) : keys.flatMap((key) => parts.map((p) => key + p));
    const found = await namespace.pages.exists(asked, { pool, signal });
    const isThere =
      parts.length === 1
        ? found
        : keys.map((_, i) => found.slice(i * parts.length, (i + 1) * parts.length).every((flag) => flag));
    const prefix = prefixLength(isThere);
    counts.lookup(keys.length, prefix);
    const answer = Buffer.alloc(wantsFlags ? 4 + keys.length : 4);
    answer.writeUInt32LE(prefix);
    if (wantsFlags) answer.set(flagsOf(isThere), 4);
    return answer;
  }

  async #get(body: Buffer, signal: AbortSignal): Promise<Buffer> {
    const { namespace, regions, counts } = this.#parts;
    const request = decodeRegionRequest(body, CLIENT_REQUEST_MAX_KEYS);
    const held = regions.hold(request, 'write');
    const { keys, pool } = request;
    const results = await released(held, async () => {
      const read = await namespace.pages.get(keys, held.pages, { pool, signal });
      await held.store(read);
      return read;
    });
    counts.read(wayOf(request), held.pages, results);
    return flagsOf(results);
  }

  async #set(body: Buffer, signal: AbortSignal): Promise<Buffer> {
    const { namespace, regions, counts } = this.#parts;
    const request = decodeRegionRequest(body, CLIENT_REQUEST_MAX_KEYS);
    const held = regions.hold(request, 'read');
    const { keys, pool, isNamed } = request;
    const results = await released(held, async () => {
      await held.load();
      return namespace.pages.set(keys, held.pages, { pool, isNamed, signal });
    });
    counts.written(wayOf(request), held.pages, results);
    return flagsOf(results);
  }

  async #getBytes(body: Buffer, signal: AbortSignal): Promise<Buffer> {
    const { namespace, counts } = this.#parts;
    const { pool, keys } = decodeKeyRequest(body, CLIENT_REQUEST_MAX_KEYS, { hasFlags: true });
    const results: BytesResult[] = [];
    let leftBytes = CLIENT_BODY_MAX_BYTES - 4 * keys.length;
    let atOnce = 1;
    while (results.length < keys.length) {
      const some = keys.slice(results.length, results.length + atOnce);
      const maxBytes = leftBytes;
      const pages = await Promise.all(
        some.map((key) => namespace.pages.getCopyWithin(key, { pool, maxBytes, signal })),
      );
      let largestBytes = 1;
      for (const page of pages) {
        const fits = page !== null && page !== 'too-large' && page.length <= leftBytes;
        if (fits) leftBytes -= page.length;
        results.push(page === null ? LENGTH_MISS : fits ? page : LENGTH_NO_ROOM);
        if (fits) largestBytes = Math.max(largestBytes, page.length);
      }
      // Where pages are large, few are read at once: what does not fit would be read in vain.
      atOnce = Math.max(1, Math.min(BYTES_READ_AT_ONCE_MAX_COUNT, Math.floor(leftBytes / largestBytes)));
    }
    const isRead = results.map((result) => typeof result !== 'number');
    counts.read(
      'bytes',
      results.map((result) => ({ length: typeof result === 'number' ? 0 : result.length })),
      isRead,
    );
    return encodeBytesAnswer(results);
  }

  async #setBytes(body: Buffer, signal: AbortSignal): Promise<Buffer> {
    const { namespace, counts } = this.#parts;
    const { pool, isNamed, keys, pages: bytes } = decodeSetBytes(body, CLIENT_REQUEST_MAX_KEYS);
    if (keys.length === 0) return Buffer.alloc(0);
    const memory = HostRegion.wrap(body);
    try {
      const pages = bytes.map((page): CallerPage => {
        const addr = memory.addr + BigInt(page.byteOffset - body.byteOffset);
        return { ranges: [{ addr, length: page.length }], views: [page], length: page.length };
      });
      const results = await namespace.pages.set(keys, pages, { pool, isNamed, signal });
      counts.written('bytes', pages, results);
      return flagsOf(results);
    } finally {
      memory.free();
    }
  }

  async #delete(body: Buffer): Promise<Buffer> {
    const { pool, keys } = decodeKeyRequest(body, CLIENT_REQUEST_MAX_KEYS, { hasFlags: false });
    return flagsOf(await this.#parts.namespace.pages.delete(keys, { pool }));
  }

  async #clear(body: Buffer): Promise<Buffer> {
    await this.#parts.namespace.pages.clear(decodePools(body));
    return Buffer.alloc(0);
  }

  async #stat(body: Buffer): Promise<Buffer> {
    const { pool, keys } = decodeKeyRequest(body, CLIENT_STAT_MAX_KEYS, { hasFlags: false });
    return Buffer.from(JSON.stringify(await statOf(this.#parts.namespace, keys, pool)));
  }
}

/** Gives the regions back whatever happens; that their memory has gone is worse than any other failure. */
async function released<T>(held: HeldPages, use: () => Promise<T>): Promise<T> {
  try {
    return await use();
  } catch (error) {
    // What the store does not take is the client's mistake, nothing has been touched.
    if (error instanceof MeshCacheError && error.code === 'ERR_ARGUMENT') {
      throw new RequestError(Status.badRequest, error.message);
    }
    throw error;
  } finally {
    held.release();
  }
}

function wayOf({ pieces: { regionIds } }: RegionRequest): ClientWay {
  return regionIds[0] === STAGING_REGION ? 'staged' : 'direct';
}

function flagsOf(results: readonly boolean[]): Buffer {
  return Buffer.from(results.map((flag) => (flag ? 1 : 0)));
}
