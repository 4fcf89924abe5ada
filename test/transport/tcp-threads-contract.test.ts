import test from 'ava';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { PATIENCE_MS } from '../_support/support.js';
import { PeerProcess } from '../contract/peer-process.js';
import { transportContract } from '../contract/transport-contract.js';

const host = '127.0.0.1';

// Reading threads get everything, however small.
transportContract(test, {
  protocol: 'tcp',
  host,
  peerProcess: (length) => PeerProcess.start('tcp', host, length),
  countsServed: true,
  hasOwnClocks: true,
  bytesPerS: 2 ** 29,
  create: ({ port, env, retryAfterMs }) =>
    TcpTransport.create({
      host,
      port,
      env,
      threads: 3,
      limits: {
        retryAfterMs,
        threadedMinBytes: 0,
        // Threads have clocks of their own, and each must wait for a processor.
        patienceMinMs: PATIENCE_MS,
        connectTimeoutMs: PATIENCE_MS,
        stallTimeoutMs: PATIENCE_MS,
      },
    }),
});
