import { isVersion } from '../../base/concurrency/hybrid-clock.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ProtocolError } from '../../base/errors.js';
import { NODE_ID_MAX_BYTES, PLACEMENT_REQUEST_MAX_KEYS } from '../../base/limits.js';
import { asFields, type Fields, keyFields, readBytes, readFlags, readKeys } from '../../directory/messages/wire.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import type { PageToPlace, PlacementRequest } from '../../store/placement/placement-messages.js';

/** The call that storage nodes answer; PLACEMENT.md beside this file describes its fields. */
const TAKE_METHOD = 'placement.take';

/** Bytes of each page in `pages`: its columns are length, version, expiry (f64), checksum (u32) and flags (u8). */
const PAGE_BYTES = 29;
const NAMED = 1;

/** What a storage node does with pages of others. */
export interface PlacementHandler {
  /** Takes pages; one `PlacementOutcome` for each. */
  take(request: PlacementRequest): Promise<Uint8Array>;
}

/** Asks storage nodes to take pages of this node, and answers the same requests of others. */
export class PlacementCalls {
  readonly #rpc: RpcClient;
  readonly #endpointOf: (nodeId: string) => Endpoint | undefined;

  constructor(options: { rpc: RpcClient; endpointOf: (nodeId: string) => Endpoint | undefined }) {
    this.#rpc = options.rpc;
    this.#endpointOf = options.endpointOf;
  }

  handle(server: RpcServer, handler: PlacementHandler): void {
    server.handle(TAKE_METHOD, async (params) => ({ outcomes: await handler.take(readRequest(asFields(params))) }));
  }

  /**
   * Asks a storage node to take pages: one `PlacementOutcome` for each; undefined: it cannot be reached, refuses the
   * call, or takes longer than `timeoutMs`.
   */
  async take(nodeId: string, { placer, pages }: PlacementRequest, timeoutMs: number): Promise<Uint8Array | undefined> {
    const endpoint = this.#endpointOf(nodeId);
    if (endpoint === undefined) return undefined;
    const params = { ...keyFields(pages.map(({ key }) => key)), pages: encodePages(pages), placer };
    try {
      const answer = await this.#rpc.call(endpoint, TAKE_METHOD, params, { timeoutMs });
      return readFlags(asFields(answer), 'outcomes', pages.length);
    } catch {
      return undefined;
    }
  }
}

function encodePages(pages: readonly PageToPlace[]): Uint8Array {
  const bytes = new Uint8Array(PAGE_BYTES * pages.length);
  const view = new DataView(bytes.buffer);
  const { length: n } = pages;
  pages.forEach(({ length, version, expires, checksum, kind }, i) => {
    view.setFloat64(8 * i, length, true);
    view.setFloat64(8 * (n + i), version, true);
    view.setFloat64(8 * (2 * n + i), expires, true);
    view.setUint32(24 * n + 4 * i, checksum, true);
    view.setUint8(28 * n + i, kind === 'named' ? NAMED : 0);
  });
  return bytes;
}

function readRequest(fields: Fields): PlacementRequest {
  const keys = readKeys(fields, true);
  const { length: n } = keys;
  if (n > PLACEMENT_REQUEST_MAX_KEYS)
    throw new ProtocolError(`${TAKE_METHOD}: got ${n} keys, at most ${PLACEMENT_REQUEST_MAX_KEYS} are allowed`);
  const bytes = readBytes(fields, 'pages');
  if (bytes.length !== PAGE_BYTES * n) throw new ProtocolError(`pages: must have ${PAGE_BYTES} bytes a key`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const pages = keys.map((key, i): PageToPlace => {
    const [length, version] = [view.getFloat64(8 * i, true), view.getFloat64(8 * (n + i), true)];
    const expires = view.getFloat64(8 * (2 * n + i), true);
    if (!Number.isSafeInteger(length) || length <= 0 || !isVersion(version) || !isVersion(expires))
      throw new ProtocolError('pages: a length, a version or an expiry is none');
    const kind = (view.getUint8(28 * n + i) & NAMED) === 0 ? 'computed' : 'named';
    return { key, length, version, expires, checksum: view.getUint32(24 * n + 4 * i, true), kind };
  });
  return { placer: readPlacer(fields), pages };
}

function readPlacer({ placer }: Fields): string {
  if (typeof placer === 'string' && placer !== '' && placer.length <= NODE_ID_MAX_BYTES) return placer;
  throw new ProtocolError('placer: must be the id of a node');
}
