/*
 * The serving process of the directory benchmark: one shard behind the control protocol. It says its port once it serves, answers
 * every message with what it uses, and lives as long as its IPC channel.
 */

import { DirectoryServer } from '../../directory/server.js';
import { DirectoryShard } from '../../directory/shard.js';
import { RpcServer } from '../../rpc/server.js';
import { systemEnvironment } from '../../system/system-environment.js';

export interface DirectoryPeerAnswer {
  readonly error?: string;
  readonly port: number;
  readonly keys: number;
  /** JavaScript heap in use and array buffers, after a collection. */
  readonly memoryBytes: number;
  /** Processor time since the start, all threads. */
  readonly cpuMs: number;
}

const shard = new DirectoryShard();
const rpc = new RpcServer({ host: '127.0.0.1', env: systemEnvironment() });
new DirectoryServer({ shard }).attach(rpc);

function answer(port: number): DirectoryPeerAnswer {
  // Two collections: the first one may only promote what the second one frees.
  globalThis.gc?.();
  globalThis.gc?.();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  return { port, keys: shard.stats().keys, memoryBytes: heapUsed + arrayBuffers, cpuMs: (user + system) / 1000 };
}

rpc.start().then(
  (port) => {
    process.on('message', () => process.send?.(answer(port)));
    process.send?.(answer(port));
  },
  (error: Error) => process.send?.({ error: error.message }),
);
process.on('disconnect', () => process.exit(0));
