import { once } from 'node:events';
import { createConnection } from 'node:net';
import test, { type ExecutionContext } from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import { KeyEncoder } from '../../src/core/index.js';
import { Users } from '../../src/net/users.js';
import type { RespLimits } from '../../src/resp/resp-limits.js';
import { RespServer, type RespServerOptions } from '../../src/resp/resp-server.js';
import { WaitingCommands } from '../../src/resp/waiting-commands.js';
import { StoredPages } from '../../src/store/namespace/namespace-pages.js';
import { HeldStore } from '../_support/clients/client-fixture.js';
import { ManualClock } from '../_support/clock.js';
import { servedByItself } from '../_support/net/served.js';
import { assertFound } from '../_support/planted.js';
import { commandOf, RawClient } from '../_support/resp/resp-fixture.js';
import { testEnvironment } from '../_support/rpc/server.js';
import { until } from '../_support/support.js';

/** The counter of bytes that have come. */
const RECEIVED = 'meshcache_resp_bytes_total in';

/** A door over a store whose calls end when the test says so. */
async function startDoor(t: ExecutionContext, limits: Partial<RespLimits> = {}, more: Partial<RespServerOptions> = {}) {
  const store = new HeldStore();
  const clock = new ManualClock();
  const env = testEnvironment({ clock, log: silentLogger });
  const encoder = new KeyEncoder({ tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false });
  const server = await RespServer.listen(
    { endpoint: { host: '127.0.0.1', port: 0 }, limits, ...more },
    {
      env,
      pauses: { sentAfterMs: () => clock.nowMs() },
      users: { users: new Users(), nodeTag: 'redis', pagesOf: () => new StoredPages(store.pages, encoder) },
      facts: {
        nodeId: 'node',
        packageVersion: '0',
        processId: 1,
        poolUsedBytes: () => 0,
        poolCapacityBytes: () => 2 ** 30,
        poolEntries: () => 0,
      },
    },
  );
  t.teardown(async () => {
    for (const call of store.calls) call.end(call.keys.map(() => false));
    const closed = server.close();
    clock.advance(10_000);
    await closed;
  });
  const port = Number(server.endpoint.split(':').at(-1));
  const connect = () => RawClient.connect(t, { host: '127.0.0.1', port });
  return { server, store, clock, env, connect };
}

// Regression: the credentials of a connection without an address were asked for as if it were a Unix socket's, which
// threw for one that had been reset, and ended the node.
test('resp limits: a connection that its client resets at once changes nothing', async (t) => {
  const { server, connect } = await startDoor(t);
  const port = Number(server.endpoint.split(':').at(-1));
  for (let i = 0; i < 200; i++) {
    const socket = createConnection({ port, host: '127.0.0.1' });
    socket.on('error', () => {});
    socket.once('connect', () => socket.resetAndDestroy());
    if (i % 10 === 9) await once(socket, 'close');
  }
  await until(() => server.connectionsCount === 0);
  const client = await connect();
  client.send('PING\r\n');
  t.is(await client.text('+PONG\r\n'), '+PONG\r\n');
});

test('resp limits: what a browser sends as HTTP has no command of it carried out', async (t) => {
  const { connect, store } = await startDoor(t);
  const commands = 'SET planted by-a-page\r\nDEL key\r\nFLUSHALL\r\n';
  for (const first of [
    'POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n',
    'post / http/1.1\r\n',
    'GET / HTTP/1.1\r\nhost:127.0.0.1\r\n',
    'PUT /a b HTTP/1.1\r\nHOST : 127.0.0.1\r\n',
    'OPTIONS * HTTP/1.0\r\n',
    'PRI * HTTP/2.0\r\n',
    'POST /\r\n',
    'hOsT: 127.0.0.1\r\n',
    'Host:\r\n',
  ]) {
    const client = await connect();
    client.send(`${first}Content-Length: ${commands.length}\r\n\r\n${commands}`);
    t.deepEqual((await client.rest()).toString().split('\r\n'), [
      '-ERR this is a port for Redis clients, and this is HTTP',
      '',
    ]);
  }
  t.is(store.calls.length, 0);
});

test('resp limits: a large argument gives its memory back when what follows it is wrong', async (t) => {
  const large = 2 ** 20;
  const { connect } = await startDoor(t, { argumentsBudgetBytes: large });
  const head = Buffer.from(`*3\r\n$3\r\nSET\r\n$${large}\r\n`);
  for (let i = 0; i < 3; i++) {
    const client = await connect();
    client.send(Buffer.concat([head, Buffer.alloc(large), Buffer.from('\r\nX\r\n')]));
    t.true((await client.rest()).toString().startsWith('-ERR Protocol error'));
  }
});

test('resp limits: a connection beyond the limit is told and ended, and one that ends makes room', async (t) => {
  const { connect, server, env } = await startDoor(t, { connectionsMaxCount: 4 });
  const [first] = [await connect(), await connect()];
  await until(() => server.connectionsCount === 2);
  const third = await connect();
  t.is((await third.rest()).toString(), '-ERR max number of clients reached\r\n');
  t.is(env.counts.get('meshcache_resp_refused_connections_total'), 1);
  first?.socket.destroy();
  await until(() => server.connectionsCount === 1);
  const fourth = await connect();
  fourth.send('PING\r\n');
  t.is(await fourth.text('+PONG\r\n'), '+PONG\r\n');
});

test('resp limits: those who do not authenticate themselves do not keep others out', async (t) => {
  const { connect, server } = await startDoor(t, { connectionsMaxCount: 4 }, { password: 'right' });
  const member = await connect();
  member.send(commandOf('AUTH', 'right'));
  t.is(await member.text('+OK\r\n'), '+OK\r\n');
  const stranger = await connect();
  await until(() => server.connectionsCount === 2);
  const second = await connect();
  await until(() => stranger.isEnded);
  second.send(commandOf('AUTH', 'right'), commandOf('PING'));
  t.is(await second.text('+OK\r\n+PONG\r\n'), '+OK\r\n+PONG\r\n');
  const third = await connect();
  t.is((await third.rest()).toString(), '-ERR max number of clients reached\r\n');
  t.false(member.isEnded);
});

test('resp limits: a command that does not end, and a client that does not authenticate itself, are given up', async (t) => {
  const { connect, clock, server, env } = await startDoor(t, { stallTimeoutMs: 1000 });
  const [idle, half] = [await connect(), await connect()];
  half.send('*2\r\n$4\r\nPING\r\n$5\r\nab');
  idle.send('PING\r\n');
  await idle.text('+PONG\r\n');
  await until(() => server.connectionsCount === 2 && env.counts.get(RECEIVED) === 26);
  clock.advance(1001);
  await until(() => half.isEnded);
  t.false(idle.isEnded, 'a client may be idle');
  const closed = await startDoor(t, { loginTimeoutMs: 1000 }, { password: 'right' });
  const [stranger, member] = [await closed.connect(), await closed.connect()];
  member.send(commandOf('AUTH', 'wrong'), commandOf('AUTH', 'right'));
  const answers = '-WRONGPASS invalid username-password pair or user is disabled.\r\n+OK\r\n';
  t.is(await member.text(answers), answers);
  await until(() => closed.server.connectionsCount === 2);
  closed.clock.advance(1001);
  await until(() => stranger.isEnded);
  t.false(member.isEnded);
  t.is(closed.env.counts.get('meshcache_auth_failures_total resp wrong_password'), 1);
});

test('resp limits: after ten wrong passwords of an address none is looked at until time has passed', async (t) => {
  const { connect, clock } = await startDoor(t, {}, { password: 'right' });
  const wrong = '-WRONGPASS invalid username-password pair or user is disabled.\r\n';
  const paused = '-ERR too many wrong passwords from this address; try again in a few seconds\r\n';
  const guesser = await connect();
  for (let i = 0; i < 10; i++) guesser.send(commandOf('AUTH', `guess-${i}`));
  t.is(await guesser.text(wrong.repeat(10)), wrong.repeat(10));
  const member = await connect();
  member.send(commandOf('AUTH', 'right'), commandOf('HELLO', '3', 'AUTH', 'default', 'right'));
  t.is(await member.text(paused.repeat(2)), paused.repeat(2));
  clock.advance(1000);
  member.send(commandOf('AUTH', 'right'), commandOf('PING'));
  t.is(await member.text('+OK\r\n+PONG\r\n'), '+OK\r\n+PONG\r\n');
});

test('resp limits: large arguments wait for each other, and a second one of the same command is dropped', async (t) => {
  const { connect, store, server, env } = await startDoor(t, { argumentsBudgetBytes: 100_000 });
  store.answer = ({ method, keys }) => (method === 'set' ? keys.map(() => true) : undefined);
  const [first, second] = [await connect(), await connect()];
  const value = Buffer.alloc(80_000, 'v');
  const command = commandOf('SET', 'k', value);
  first.send(command.subarray(0, 40_000));
  await until(() => env.counts.get(RECEIVED) === 40_000);
  second.send(command);
  await until(() => (env.counts.get(RECEIVED) ?? 0) > 40_000);
  t.is(store.calls.length, 0);
  first.send(command.subarray(40_000));
  t.is(await first.text('+OK\r\n'), '+OK\r\n');
  t.is(await second.text('+OK\r\n'), '+OK\r\n');
  first.send(commandOf('MSET', 'a', value, 'b', value), commandOf('PING'));
  t.is(await first.text('$-1\r\n+PONG\r\n'), '$-1\r\n+PONG\r\n', 'not all of it is stored');
  t.deepEqual(
    store.calls.map(({ pages }) => pages.map(({ length }) => length)),
    [[80_000], [80_000], [80_000]],
  );
  server.verify();
});

test('resp limits: arguments that are promised and do not come keep nobody else out', async (t) => {
  const { connect, clock, store } = await startDoor(t, { receivingWindowMs: 1000 });
  store.answer = ({ method, keys }) => (method === 'set' ? keys.map(() => true) : undefined);
  const hostile = await Promise.all(Array.from({ length: 20 }, () => connect()));
  for (const one of hostile) one.send(`*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$${2 ** 28}\r\n`, Buffer.alloc(50_000));
  const good = await Promise.all([connect(), connect(), connect()]);
  for (let round = 0; round < 5; round++) {
    for (const one of good) one.send(commandOf('SET', 'k', Buffer.alloc(2 ** 20, 'v')));
    for (const one of good) t.is(await one.text('+OK\r\n'), '+OK\r\n');
  }
  await until(() => {
    clock.advance(1000);
    return hostile.every(({ isEnded }) => isEnded);
  });
  t.regex(
    (await (hostile[0] as RawClient).rest()).toString(),
    /^-ERR a command of which less than 1048576 bytes a second/,
  );
  for (const one of good) t.false(one.isEnded);
});

test('resp limits: commands that lie next to each other are one call of the store, and others wait', async (t) => {
  const { connect, store } = await startDoor(t, { waitingMaxCount: 4 });
  const client = await connect();
  client.send(Buffer.concat([...Array(10).keys()].map((i) => commandOf('EXISTS', `k${i}`))), commandOf('DEL', 'k'));
  await until(() => store.calls.length === 1);
  t.is(store.calls[0]?.keys.length, 10);
  store.calls[0]?.end(Array(10).fill(true));
  const ones = ':1\r\n'.repeat(10);
  t.is(await client.text(ones), ones);
  await until(() => store.calls.length === 2);
  store.calls[1]?.end([true]);
  await until(() => store.calls.length === 3);
  store.calls[2]?.end([false]);
  const again = '-TRYAGAIN a node has not confirmed that the value is deleted; it is told again\r\n';
  t.is(await client.text(again), again);
});

test('resp limits: closing ends what is under way, and tells nobody a result that is not one', async (t) => {
  const { connect, store, server, clock } = await startDoor(t);
  const client = await connect();
  client.send(commandOf('EXISTS', 'k'), commandOf('SET', 'k', 'v'));
  await until(() => store.calls.length === 1);
  const closed = server.close();
  store.calls[0]?.end([true]);
  t.is((await client.rest()).toString(), ':1\r\n');
  clock.advance(10_000);
  await closed;
  t.is(store.calls.length, 1);
});

test('verify: waiting commands', async (t) => {
  const waiting = new WaitingCommands(servedByItself().served);
  const command = { command: 'ERR', isAllowed: true, bytes: 5, giveBack() {} };
  waiting.add(command);
  await assertFound(t, waiting, /waiting commands: bytes/, () => {
    command.bytes = 6;
  });
});

test('resp limits: what arrives at once of a pipeline is executed together, and no rest is awaited', async (t) => {
  const { store, connect } = await startDoor(t);
  store.answer = ({ keys }) => keys.map(() => true);
  const client = await connect();
  const value = Buffer.alloc(20_000, 'v');
  const pipeline = Array.from({ length: 10 }, (_, i) => commandOf('SET', `key-${i}`, value));
  // The last command has begun only.
  client.send(Buffer.concat([...pipeline, Buffer.from('*2\r\n$3\r\nGE')]));
  t.is(await client.text('+OK\r\n'.repeat(10)), '+OK\r\n'.repeat(10));
  t.deepEqual(
    store.calls.map(({ method, keys }) => [method, keys.length]),
    [['set', 10]],
  );
});
