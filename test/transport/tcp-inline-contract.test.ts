import test from 'ava';
import { inlineThreads } from '../../src/sim/world/inline-threads.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { transportContract } from '../contract/transport-contract.js';

const host = '127.0.0.1';

// The same programs on the calling thread. What needs another process is left out: its serving is a thread's.
transportContract(test, {
  protocol: 'tcp',
  host,
  countsServed: true,
  bytesPerS: 2 ** 29,
  create: ({ port, env, retryAfterMs, stallTimeoutMs }) =>
    TcpTransport.create({
      host,
      port,
      env: { ...env, threads: inlineThreads(env.clock) },
      threads: 2,
      limits: { retryAfterMs, stallTimeoutMs, threadedMinBytes: 0 },
    }),
});
