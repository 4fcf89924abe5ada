import type { Endpoint } from '../../base/environment/network.js';
import { ArgumentError, ProtocolError } from '../../base/errors.js';
import { COPY_REQUEST_MAX_KEYS } from '../../base/limits.js';
import { asFields, keyFields, readFlags, readKeys } from '../../directory/messages/wire.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';

/** The call that asks a node to copy pages; DRAIN.md beside this file describes its fields. */
const COPY_METHOD = 'pool.copy';

/**
 * Copies pages of other nodes into this node's pool: 1 for each key whose page is there afterwards. The handler may
 * keep `keys`.
 */
export type CopyRequestHandler = (keys: readonly string[]) => Promise<Uint8Array>;

/** Asks other nodes to copy pages of this one, and answers the same request of others. */
export class Handovers {
  readonly #rpc: RpcClient;
  readonly #endpointOf: (nodeId: string) => Endpoint | undefined;

  constructor(options: { rpc: RpcClient; endpointOf: (nodeId: string) => Endpoint | undefined }) {
    this.#rpc = options.rpc;
    this.#endpointOf = options.endpointOf;
  }

  handle(server: RpcServer, handler: CopyRequestHandler): void {
    server.handle(COPY_METHOD, async (params) => {
      const keys = readKeys(asFields(params), true);
      if (keys.length <= COPY_REQUEST_MAX_KEYS) return { copied: await handler(keys) };
      throw new ProtocolError(`${COPY_METHOD}: got ${keys.length} keys, at most ${COPY_REQUEST_MAX_KEYS} are allowed`);
    });
  }

  /**
   * Asks a node to copy pages: 1 for each key whose page it has in its pool now; all 0 when it cannot be reached,
   * refuses or takes longer than `timeoutMs`. At most COPY_REQUEST_MAX_KEYS keys.
   */
  async ask(nodeId: string, keys: readonly string[], timeoutMs: number): Promise<Uint8Array> {
    if (keys.length > COPY_REQUEST_MAX_KEYS)
      throw new ArgumentError(`${COPY_METHOD}: got ${keys.length} keys, at most ${COPY_REQUEST_MAX_KEYS} are allowed`);
    const endpoint = this.#endpointOf(nodeId);
    if (endpoint === undefined) return new Uint8Array(keys.length);
    try {
      const answer = await this.#rpc.call(endpoint, COPY_METHOD, keyFields(keys), { timeoutMs });
      return readFlags(asFields(answer), 'copied', keys.length);
    } catch {
      return new Uint8Array(keys.length);
    }
  }
}
