import test from 'ava';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { transportContract } from '../contract/transport-contract.js';

transportContract(test, {
  protocol: 'tcp',
  create: ({ port, env, retryAfterMs, stallTimeoutMs }) =>
    TcpTransport.create({ host: '127.0.0.1', port, env, limits: { retryAfterMs, stallTimeoutMs } }),
});
