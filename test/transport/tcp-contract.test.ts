import test from 'ava';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { PeerProcess } from '../contract/peer-process.js';
import { transportContract } from '../contract/transport-contract.js';

const host = '127.0.0.1';

transportContract(test, {
  protocol: 'tcp',
  host,
  peerProcess: (length) => PeerProcess.start('tcp', host, length),
  countsServed: true,
  bytesPerS: 2 ** 30,
  create: ({ port, env, retryAfterMs, stallTimeoutMs }) =>
    TcpTransport.create({ host, port, env, limits: { retryAfterMs, stallTimeoutMs } }),
});
