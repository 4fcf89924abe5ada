import test from 'ava';
import { AuthError } from '../../src/base/errors.js';
import { RpcClient } from '../../src/rpc/client.js';
import { FRAME_HEADER_BYTES, FrameType, writeFrameHeader } from '../../src/rpc/frame.js';
import { MessageCodec } from '../../src/rpc/message.js';
import { RpcServer } from '../../src/rpc/server.js';
import { freePort } from '../_support/support.js';
import { authContract } from '../contract/auth-contract.js';

authContract(test, {
  plane: 'rpc',
  hello: (flags) => Buffer.from([...Buffer.from('MCRP'), 1, 0, flags, 0, 0, 0, 0, 1]),
  request() {
    const bytes = new MessageCodec().encode(['echo', {}], FRAME_HEADER_BYTES);
    writeFrameHeader(bytes, FrameType.call, 1);
    return bytes;
  },
  async serve(t, { env }) {
    const server = new RpcServer({ host: '127.0.0.1', port: await freePort(), env });
    server.handle('echo', (params) => params);
    const port = await server.start();
    t.teardown(() => server.stop());
    return { port, answered: () => server.stats().calls, connections: () => server.stats().connections };
  },
  async isBelieved(t, port, { env }) {
    const client = new RpcClient({ env });
    t.teardown(() => client.close());
    const sent = { text: 'y'.repeat(1000) };
    return client.call({ host: '127.0.0.1', port }, 'echo', sent, { timeoutMs: 10_000 }).then(
      (answer) => {
        t.deepEqual(answer, sent);
        return true;
      },
      () => false,
    );
  },
  async isAnswered(t, port, { env }) {
    const client = new RpcClient({ env });
    t.teardown(() => client.close());
    try {
      await client.call({ host: '127.0.0.1', port }, 'echo', {}, { timeoutMs: 10_000 });
      return true;
    } catch (error) {
      t.true(error instanceof AuthError, String(error));
      t.is((error as AuthError).code, 'ERR_AUTH');
      t.regex((error as AuthError).message, /cluster_secret|local_hostname/);
      // Who calls again and again does not connect again and again.
      const again = await t.throwsAsync(client.call({ host: '127.0.0.1', port }, 'echo', {}));
      t.true(again instanceof AuthError);
      return false;
    }
  },
});
