import { MeshCacheError } from '../../src/base/errors.js';
import type { RpcHandler, RpcServer } from '../../src/rpc/server.js';
import { Finding } from './fuzzer.js';

/** Stands for a server: what is registered with it is called directly, with params as the server lets them through. */
export class Handlers {
  readonly #handlers = new Map<string, RpcHandler>();

  handle(method: string, handler: RpcHandler): void {
    this.#handlers.set(method, handler);
  }

  asServer(): RpcServer {
    return this as unknown as RpcServer;
  }

  /**
   * Undefined: refused, in a way for which the caller is to blame. Anything else that a handler throws is a finding.
   */
  async call(method: unknown, params: unknown): Promise<{ readonly value: unknown } | undefined> {
    const handler = this.#handlers.get(method as string);
    if (handler === undefined || !isMap(params)) return undefined;
    try {
      return {
        value: await handler(params, {
          address: '',
          user: undefined,
          remote: 'peer',
          signal: new AbortController().signal,
        }),
      };
    } catch (error) {
      if (!(error instanceof MeshCacheError)) throw error;
      if (error.code === 'ERR_PROTOCOL' || error.code === 'ERR_ARGUMENT') return undefined;
      throw new Finding(`${String(method)} fails with ${error.code}: ${error.message}`);
    }
  }
}

function isMap(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array);
}
