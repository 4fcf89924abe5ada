import { DirectoryServer } from '../../directory/server.js';
import { DirectoryShard } from '../../directory/shard/shard.js';
import { RpcServer } from '../../rpc/server.js';
import { systemEnvironment } from '../../system/system-environment.js';
import type { ExecuteCommand } from '../measuring/peer-process.js';

/** `start` begins to serve; both answer with what the process uses. */
export interface DirectoryPeerCommand {
  readonly kind: 'start' | 'usage';
}

export interface DirectoryPeerAnswer {
  readonly error?: string;
  readonly port: number;
  readonly keys: number;
  /** JavaScript heap in use and array buffers, after a collection. */
  readonly memoryBytes: number;
  /** Processor time since the start, all threads. */
  readonly cpuMs: number;
}

/** The serving process of the directory benchmark: one shard behind the control protocol. */
export function directoryPeer(): ExecuteCommand<DirectoryPeerCommand, DirectoryPeerAnswer> {
  const shard = new DirectoryShard();
  const rpc = new RpcServer({ host: '127.0.0.1', env: systemEnvironment() });
  let port = 0;
  new DirectoryServer({ shard }).attach(rpc);
  return async ({ kind }) => {
    if (kind === 'start') port = await rpc.start();
    // Two collections: the first one may only promote what the second one frees.
    globalThis.gc?.();
    globalThis.gc?.();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    const { user, system } = process.cpuUsage();
    return { port, keys: shard.stats().keys, memoryBytes: heapUsed + arrayBuffers, cpuMs: (user + system) / 1000 };
  };
}
