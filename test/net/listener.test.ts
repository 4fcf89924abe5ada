import { once } from 'node:events';
import net from 'node:net';
import test, { type ExecutionContext } from 'ava';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import type { Connection } from '../../src/base/environment/network.js';
import type { ConnectionRates } from '../../src/net/connection-limits.js';
import { Listener } from '../../src/net/listener.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { patientClock } from '../_support/patient-clock.js';
import { until } from '../_support/support.js';

const HOST = '127.0.0.1';
const RATES: ConnectionRates = { perAddressPerS: 1, perAddressBurstCount: 4, perS: 20, burstCount: 5, pauseMs: 50 };

async function listen(t: ExecutionContext, rates = RATES, keepsPort = false) {
  const seen = { accepted: [] as Connection[], refused: 0, errors: [] as Error[], pauses: 0, logged: 0 };
  const listener = new Listener({
    env: systemEnvironment({
      clock: patientClock,
      log: { log: () => seen.logged++ },
      metrics: { ...noMetrics, count: (name) => (seen.pauses += Number(name === 'meshcache_listen_pauses_total')) },
    }),
    plane: 'data',
    options: {},
    rates,
    keepsPort,
    onConnection(socket) {
      seen.accepted.push(socket);
      socket.on('error', () => {});
      socket.on('data', (bytes) => socket.write(bytes));
    },
    onRefused: () => seen.refused++,
    onError: (error) => seen.errors.push(error),
  });
  const port = await listener.listen(HOST, 0);
  const clients: net.Socket[] = [];
  t.teardown(() => {
    for (const socket of [...clients, ...seen.accepted]) socket.destroy();
    return listener.close();
  });
  const connect = (localAddress: string): net.Socket => {
    const socket = net.connect({ port, host: HOST, localAddress });
    clients.push(socket);
    socket.on('error', () => {}).resume();
    return socket;
  };
  return { listener, port, seen, connect };
}

/** Resolves with whether the connection is still there when the other side has had its turn. */
async function isEchoed(socket: net.Socket): Promise<boolean> {
  const closed = new Promise<false>((resolve) => socket.once('close', () => resolve(false)));
  const echoed = new Promise<true>((resolve) => socket.once('data', () => resolve(true)));
  socket.write('x');
  return Promise.race([closed, echoed]);
}

test('listener: an address that connects too often is reset, a connection that is there and other addresses are not', async (t) => {
  const { seen, connect } = await listen(t, { ...RATES, burstCount: 1000 });
  const kept = connect('127.0.0.2');
  t.true(await isEchoed(kept));
  for (let i = 0; i < 3; i++) t.true(await isEchoed(connect('127.0.0.2')));
  while (seen.refused < 10) await isEchoed(connect('127.0.0.2'));
  t.true(await isEchoed(connect('127.0.0.3')));
  t.true(await isEchoed(kept));
  t.is(seen.pauses, 0);
});

test('listener: in a flood it listens for moments only, keeps what it has, and comes back on its port', async (t) => {
  const { listener, seen, connect } = await listen(t);
  const member = connect('127.0.0.3');
  t.true(await isEchoed(member));
  listener.proved('127.0.0.3');
  let flooding = true;
  const refusedByKernel: string[] = [];
  const flood = (async () => {
    while (flooding) {
      const socket = connect('127.0.0.2');
      socket.once('error', (error: NodeJS.ErrnoException) => {
        if (error.code === 'ECONNREFUSED') refusedByKernel.push(error.code);
      });
      await once(socket, 'connect').catch(() => {});
    }
  })();
  t.teardown(() => {
    flooding = false;
  });
  await until(() => seen.pauses >= 3 && refusedByKernel.length > 0);
  t.true(await isEchoed(member));
  flooding = false;
  await flood;
  await until(async () => isEchoed(connect('127.0.0.4')));
  t.deepEqual(seen.errors, []);
  t.is(seen.logged, 1, 'one record for all pauses');
});

test('listener: one that is to keep its port listens in a flood, too, and nobody else can have it', async (t) => {
  const { port, seen, connect } = await listen(t, { ...RATES, perS: 0.001, burstCount: 1 }, true);
  t.true(await isEchoed(connect('127.0.0.2')));
  for (let i = 0; i < 20; i++) t.false(await isEchoed(connect(`127.0.0.${3 + i}`)));
  t.is(seen.refused, 20, 'by the listener, not by the kernel');
  t.is(seen.pauses, 0);
  const thief = net.createServer().listen(port, HOST);
  const [error] = await once(thief, 'error');
  t.is(error.code, 'EADDRINUSE');
});

test('listener: closing twice while a pause ends is closing once', async (t) => {
  const { listener, port, seen, connect } = await listen(t, { ...RATES, perS: 0.001, burstCount: 1, pauseMs: 0 });
  await isEchoed(connect('127.0.0.2'));
  await isEchoed(connect('127.0.0.2'));
  for (const socket of seen.accepted) socket.destroy();
  await Promise.all([listener.close(), listener.close()]);
  const other = net.createServer().listen(port, HOST);
  await t.notThrowsAsync(once(other, 'listening'));
  other.close();
});

test('listener: one that is closed while it does not listen leaves its port to others', async (t) => {
  const { listener, port, seen, connect } = await listen(t, { ...RATES, perS: 0.001, burstCount: 1, pauseMs: 600_000 });
  await isEchoed(connect('127.0.0.2'));
  await isEchoed(connect('127.0.0.2'));
  t.is(seen.pauses, 1);
  for (const socket of seen.accepted) socket.destroy();
  await listener.close();
  const other = net.createServer().listen(port, HOST);
  await once(other, 'listening');
  other.close();
});

test('listener: a port that another one has taken in the pause is tried again until it is free', async (t) => {
  // Time enough for the second connection to come before there is room for it, and for the thief before the pause ends.
  const { port, seen, connect } = await listen(t, { ...RATES, perS: 0.5, burstCount: 1, pauseMs: 2_000 });
  await isEchoed(connect('127.0.0.2'));
  const untilPaused = connect('127.0.0.2');
  await isEchoed(untilPaused);
  t.is(seen.pauses, 1);
  const thief = net.createServer((socket) => socket.destroy()).listen(port, HOST);
  await once(thief, 'listening');
  await until(() => seen.errors.length > 0);
  t.is(seen.errors.length, 1, 'told once, however often it is tried');
  await new Promise((resolve) => thief.close(resolve));
  await until(async () => isEchoed(connect('127.0.0.4')));
});
