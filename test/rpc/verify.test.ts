import test from 'ava';
import { CONNECTION_RATES, ConnectionLimits, PendingConnections } from '../../src/net/connection-limits.js';
import { Listener } from '../../src/net/listener.js';
import { ClientConnection } from '../../src/rpc/client-connection.js';
import { MessageCodec } from '../../src/rpc/message.js';
import { ServerConnection } from '../../src/rpc/server-connection.js';
import { ManualClock } from '../_support/clock.js';
import { assertAsks, assertFound, lose, losing } from '../_support/planted.js';
import { newClient, startServer } from '../_support/rpc/server.js';
import { until } from '../_support/support.js';
import { memoryEnvironment } from '../fuzz/memory-environment.js';

test.serial('verify: pending connections, connection limits', async (t) => {
  const pending = new PendingConnections<string>(2, () => {});
  const all = new Set(['a', 'b']);
  const whole = { verify: () => pending.verify(all) };
  for (const each of all) pending.add(each);
  await assertFound(t, whole, /pending connections: one that is none any more/, () => all.delete('a'));
  all.add('a').add('c');
  await assertFound(t, whole, /pending connections: 3, allowed are 2/, () =>
    losing(Map.prototype, 'delete', () => pending.add('c')),
  );
  const rates = { ...CONNECTION_RATES };
  const limits = new ConnectionLimits(new ManualClock(), rates);
  limits.admit('192.0.2.1');
  await assertFound(t, limits, /what is left for 192.0.2.1/, () => Object.assign(rates, { perAddressBurstCount: 1 }));
});

test.serial('verify: rpc client connection', async (t) => {
  const connect = (): ClientConnection =>
    new ClientConnection({
      endpoint: { host: '192.0.2.9', port: 9 },
      service: 'control',
      env: memoryEnvironment(),
      codec: new MessageCodec(),
      owner: { ready() {}, unauthenticated() {}, ended() {} },
    });
  const call = { method: 'echo', params: {}, timeoutMs: 1000, keepAlive: true };
  const forgotten = connect();
  await assertFound(t, forgotten, /calls that keep the process alive: 1 by what is kept, 0/, () => {
    losing(Map.prototype, 'set', () => void forgotten.call(call));
  });
  const unwatched = connect();
  void unwatched.call(call);
  await assertFound(t, unwatched, /time of the timer of a call: NaN/, () => {
    void unwatched.call({ ...call, timeoutMs: Number.NaN });
  });
  const unqueued = connect();
  await assertFound(t, unqueued, /bytes that wait for its opening: \d+ by what is kept, 0/, () => {
    losing(Array.prototype, 'push', () => void unqueued.call(call), { when: (_, [bytes]) => Buffer.isBuffer(bytes) });
  });
});

test.serial('verify: rpc client and server', async (t) => {
  const { server, endpoint } = await startServer(t);
  server.handle('later', async () => ({}));
  const client = newClient(t);
  await client.call(endpoint, 'later', {});
  assertAsks(t, client, [ClientConnection]);
  assertAsks(t, server, [ServerConnection, PendingConnections, Listener, ConnectionLimits]);
  // What is lost is the end of the first call: its number is not used a second time.
  const isCall = (_: unknown, [key]: readonly unknown[]): boolean => key === 2;
  const found = lose(Map.prototype, 'delete', { when: isCall });
  await client.call(endpoint, 'later', {}).finally(found);
  t.throws(() => server.verify(), { message: /bytes of calls: 0 by what is kept, \d+ when counted anew/ });
  await client.close();
  t.notThrows(() => client.verify());
  await until(() => server.stats().connections === 0);
});
