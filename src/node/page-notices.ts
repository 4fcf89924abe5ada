import { ProtocolError } from '../base/errors.js';
import { DIRECTORY_REQUEST_MAX_KEYS } from '../base/limits.js';
import type { Endpoint } from '../base/network.js';
import type { RpcClient } from '../rpc/client.js';
import type { RpcServer } from '../rpc/server.js';

/** What an owner does when other nodes tell it of its pages. */
export interface PageNoticeHandler {
  /** They were read: a one-sided read goes unnoticed otherwise. */
  touch(keys: readonly string[]): void;
  /** The directory led there, and they could not be read. */
  restate(keys: readonly string[]): Promise<void>;
}

type Notice = 'pool.touch' | 'pool.restate';

/**
 * Short notices between nodes about pages: best effort, nobody waits for them. Of failures one
 * notice is on its way to an owner at a time, further ones are dropped meanwhile, so that no failure
 * of an owner is made worse by telling it so.
 */
export class PageNotices {
  readonly #rpc: RpcClient;
  readonly #endpointOf: (nodeId: string) => Endpoint | undefined;
  /** Owners that are being told of failures. */
  readonly #underWay = new Set<string>();

  constructor(options: { rpc: RpcClient; endpointOf: (nodeId: string) => Endpoint | undefined }) {
    this.#rpc = options.rpc;
    this.#endpointOf = options.endpointOf;
  }

  handle(server: RpcServer, handler: PageNoticeHandler): void {
    server.handle('pool.touch', (params) => handler.touch(keysOf(params)));
    server.handle('pool.restate', (params) => handler.restate(keysOf(params)));
  }

  /** Tells an owner that its pages were read, so that it keeps them. */
  touched(nodeId: string, keys: readonly string[]): void {
    this.#send('pool.touch', nodeId, keys);
  }

  /** Tells an owner that its pages could not be read where the directory said. */
  unreadable(nodeId: string, keys: readonly string[]): void {
    if (this.#underWay.has(nodeId)) return;
    this.#underWay.add(nodeId);
    this.#send('pool.restate', nodeId, keys).finally(() => this.#underWay.delete(nodeId));
  }

  async #send(notice: Notice, nodeId: string, keys: readonly string[]): Promise<void> {
    const endpoint = this.#endpointOf(nodeId);
    if (endpoint === undefined) return;
    try {
      for (let first = 0; first < keys.length; first += DIRECTORY_REQUEST_MAX_KEYS) {
        await this.#rpc.call(endpoint, notice, { keys: keys.slice(first, first + DIRECTORY_REQUEST_MAX_KEYS) });
      }
    } catch {
      // It will be told again when its pages are read again.
    }
  }
}

function keysOf(params: unknown): string[] {
  const keys = (params as { keys?: unknown } | null)?.keys;
  const isKeys = Array.isArray(keys) && keys.length <= DIRECTORY_REQUEST_MAX_KEYS;
  if (isKeys && keys.every((key) => typeof key === 'string')) return keys;
  throw new ProtocolError(`keys must be an array of at most ${DIRECTORY_REQUEST_MAX_KEYS} strings`);
}
