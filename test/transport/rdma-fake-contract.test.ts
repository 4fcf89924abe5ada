import test from 'ava';
import { RdmaTransport } from '../../src/transport/rdma/rdma-transport.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { FakeFabric } from '../_support/native/fake-rdma.js';
import { transportContract } from '../contract/transport-contract.js';

const fabric = new FakeFabric();
const host = '10.77.0.1';

// The transport above the addon's engine; the engine itself has the same suite in test/rdma, over a real device.
transportContract(test, {
  protocol: 'rdma',
  host,
  countsServed: false,
  bytesPerS: 2 ** 30,
  create: async ({ port = 0, env, retryAfterMs, stallTimeoutMs }) =>
    new RdmaTransport({
      addon: fabric.addon(),
      rails: [{ deviceName: 'fake0', ibPort: 1, address: host, port }],
      tcp: await TcpTransport.create({ host: '127.0.0.1', env, limits: { retryAfterMs, stallTimeoutMs } }),
      env,
      retryAfterMs,
      engine: { stallTimeoutMs },
    }),
});
