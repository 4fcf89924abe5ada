import test from 'ava';
import type { CancelSignal } from '../../src/base/concurrency/cancellation.js';
import { MeshCacheError } from '../../src/base/errors.js';
import { RPC_CALL_TIMEOUT_MS, RPC_IN_FLIGHT_MAX_COUNT, RPC_RETRY_AFTER_MS } from '../../src/base/limits.js';
import { RpcClient } from '../../src/rpc/client.js';
import { encodeHello } from '../../src/rpc/frame.js';
import { RpcServer } from '../../src/rpc/server.js';
import { ManualClock } from '../_support/clock.js';
import { newClient, startServer, testEnvironment } from '../_support/rpc/server.js';
import { freePort, listenAlone, until } from '../_support/support.js';

test('rpc: a call is answered', async (t) => {
  const { endpoint } = await startServer(t);
  const answer = await newClient(t).call(endpoint, 'echo', { key: 'ключ', list: [1, 2] });
  t.deepEqual(answer, { key: 'ключ', list: [1, 2] });
});

test('rpc: binary fields arrive as bytes', async (t) => {
  const { endpoint } = await startServer(t);
  const sent = new Uint8Array(100_000).map((_, i) => i * 7);
  const answer = (await newClient(t).call(endpoint, 'echo', { sent })) as { sent: Uint8Array };
  t.true(answer.sent instanceof Uint8Array);
  t.deepEqual(Buffer.from(answer.sent), Buffer.from(sent));
});

test('rpc: calls at once share a connection and each gets its own answer', async (t) => {
  const { server, endpoint } = await startServer(t);
  const waiting: (() => void)[] = [];
  server.handle('later', (params) => new Promise((resolve) => waiting.push(() => resolve(params))));
  const client = newClient(t);
  const calls = Array.from({ length: 50 }, (_, i) => client.call(endpoint, 'later', { i }));
  await until(() => waiting.length === 50);
  for (const answer of waiting.reverse()) answer();
  t.deepEqual(
    await Promise.all(calls),
    Array.from({ length: 50 }, (_, i) => ({ i })),
  );
  t.is(server.stats().connections, 1);
});

test('rpc: a handler’s error arrives with its code and message', async (t) => {
  const { server, endpoint } = await startServer(t);
  server.handle('ours', () => {
    throw new MeshCacheError('ERR_OVERLOADED', 'full');
  });
  server.handle('foreign', async () => {
    throw new TypeError('oops');
  });
  const client = newClient(t);
  await t.throwsAsync(client.call(endpoint, 'ours', {}), { code: 'ERR_OVERLOADED', message: 'full' });
  await t.throwsAsync(client.call(endpoint, 'foreign', {}), { code: 'ERR_REMOTE', message: 'oops' });
  t.is(server.stats().errors.handler, 2);
});

test('rpc: a result that cannot be sent is the caller’s error, not the server’s end', async (t) => {
  const { server, endpoint } = await startServer(t);
  server.handle('huge', () => ({ bytes: new Uint8Array(17 * 2 ** 20) }));
  server.handle('odd', async () => ({ f: () => 1, g: Symbol('x') }));
  const client = newClient(t);
  await t.throwsAsync(client.call(endpoint, 'huge', {}), { code: 'ERR_OVERLOADED' });
  await t.throwsAsync(client.call(endpoint, 'odd', {}), { code: 'ERR_REMOTE' });
  t.deepEqual(await client.call(endpoint, 'echo', {}), {});
});

test('rpc: an unknown method and params that are no map are answered with an error', async (t) => {
  const { server, endpoint } = await startServer(t);
  const client = newClient(t);
  await t.throwsAsync(client.call(endpoint, 'nothing', {}), { code: 'ERR_REMOTE', message: /no method "nothing"/ });
  await t.throwsAsync(client.call(endpoint, 'echo', [1]), { code: 'ERR_ARGUMENT' });
  await t.throwsAsync(client.call(endpoint, 'echo', new Uint8Array(3)), { code: 'ERR_ARGUMENT' });
  t.deepEqual(server.stats().errors, { unknown_method: 1, bad_params: 2 });
  t.deepEqual(await client.call(endpoint, 'echo', { still: 'here' }), { still: 'here' });
});

test('rpc: a request longer than a frame may be is refused before it is sent', async (t) => {
  const { server, endpoint } = await startServer(t);
  const client = newClient(t);
  await t.throwsAsync(client.call(endpoint, 'echo', { x: new Uint8Array(17 * 2 ** 20) }), { code: 'ERR_ARGUMENT' });
  t.deepEqual(await client.call(endpoint, 'echo', {}), {});
  t.is(server.stats().calls, 1);
});

test('rpc: a call ends at its deadline and the handler is told', async (t) => {
  const clock = new ManualClock();
  const { server, endpoint } = await startServer(t);
  let told: CancelSignal | undefined;
  server.handle('never', (_, { signal }) => {
    told = signal;
    return new Promise(() => {});
  });
  const client = newClient(t, testEnvironment({ clock }));
  const call = client.call(endpoint, 'never', {}, { timeoutMs: 50 });
  await until(() => told !== undefined);
  clock.advance(50);
  await t.throwsAsync(call, { code: 'ERR_TIMEOUT' });
  await until(() => told?.aborted === true);
  t.deepEqual(await client.call(endpoint, 'echo', { a: 1 }), { a: 1 });
});

test('rpc: an aborted call rejects at once', async (t) => {
  const { server, endpoint } = await startServer(t);
  let begun = 0;
  server.handle('never', () => {
    begun++;
    return new Promise(() => {});
  });
  const abort = new AbortController();
  const call = newClient(t).call(endpoint, 'never', {}, { signal: abort.signal });
  await until(() => begun === 1);
  abort.abort();
  await t.throwsAsync(call, { code: 'ERR_CLOSED' });
});

test('rpc: calls in flight reject when the server stops, and the next call connects again', async (t) => {
  const port = await freePort();
  const first = new RpcServer({ host: '127.0.0.1', port, env: testEnvironment() });
  let begun = 0;
  first.handle('never', () => {
    begun++;
    return new Promise(() => {});
  });
  await first.start();
  const client = newClient(t);
  const call = client.call({ host: '127.0.0.1', port }, 'never', {});
  await until(() => begun === 1);
  await first.stop();
  await t.throwsAsync(call, { code: 'ERR_UNREACHABLE' });
  const second = new RpcServer({ host: '127.0.0.1', port, env: testEnvironment() });
  second.handle('echo', (params) => params);
  await second.start();
  t.teardown(() => second.stop());
  t.deepEqual(await client.call({ host: '127.0.0.1', port }, 'echo', { back: 1 }), { back: 1 });
});

test('rpc: an endpoint that cannot be reached is left alone for a while', async (t) => {
  const clock = new ManualClock();
  const port = await freePort();
  const endpoint = { host: '127.0.0.1', port };
  const client = newClient(t, testEnvironment({ clock }));
  await t.throwsAsync(client.call(endpoint, 'echo', {}), { code: 'ERR_UNREACHABLE' });
  const server = new RpcServer({ ...endpoint, env: testEnvironment() });
  server.handle('echo', (params) => params);
  await server.start();
  t.teardown(() => server.stop());
  await t.throwsAsync(client.call(endpoint, 'echo', {}), { code: 'ERR_UNREACHABLE' });
  t.is(server.stats().connections, 0);
  clock.advance(RPC_RETRY_AFTER_MS);
  t.deepEqual(await client.call(endpoint, 'echo', { again: 1 }), { again: 1 });
});

test('rpc: a probe tries at once', async (t) => {
  const clock = new ManualClock();
  const endpoint = { host: '127.0.0.1', port: await freePort() };
  const client = newClient(t, testEnvironment({ clock }));
  await t.throwsAsync(client.call(endpoint, 'echo', {}), { code: 'ERR_UNREACHABLE' });
  const server = new RpcServer({ ...endpoint, env: testEnvironment() });
  server.handle('echo', (params) => params);
  await server.start();
  t.teardown(() => server.stop());
  t.deepEqual(await client.call(endpoint, 'echo', { a: 1 }, { probe: true }), { a: 1 });
  t.deepEqual(await client.call(endpoint, 'echo', { a: 2 }), { a: 2 });
});

test('rpc: a peer that has gone silent costs one deadline, then is looked for in the background', async (t) => {
  const clock = new ManualClock();
  const env = testEnvironment({ clock });
  const { server, endpoint } = await startServer(t);
  server.handle('never', () => new Promise(() => {}));
  const client = newClient(t, env);
  await client.call(endpoint, 'echo', {});
  clock.advance(1);
  const call = client.call(endpoint, 'never', {});
  const other = client.call(endpoint, 'never', {}, { timeoutMs: 60_000 });
  clock.advance(RPC_CALL_TIMEOUT_MS);
  await t.throwsAsync(call, { code: 'ERR_TIMEOUT' });
  await t.throwsAsync(other, { code: 'ERR_UNREACHABLE' });
  await t.throwsAsync(client.call(endpoint, 'echo', {}), { code: 'ERR_UNREACHABLE' });
  clock.advance(RPC_RETRY_AFTER_MS);
  await t.throwsAsync(client.call(endpoint, 'echo', {}), { code: 'ERR_UNREACHABLE' });
  await until(() =>
    client.call(endpoint, 'echo', {}).then(
      () => true,
      () => false,
    ),
  );
});

test('rpc: calls in flight on one connection are bounded', async (t) => {
  const { server, endpoint } = await startServer(t);
  const waiting: (() => void)[] = [];
  server.handle('later', (params) => new Promise((resolve) => waiting.push(() => resolve(params))));
  const client = newClient(t);
  const calls = Array.from({ length: RPC_IN_FLIGHT_MAX_COUNT }, () => client.call(endpoint, 'later', {}));
  await t.throwsAsync(client.call(endpoint, 'later', {}), { code: 'ERR_OVERLOADED' });
  await until(() => waiting.length === RPC_IN_FLIGHT_MAX_COUNT);
  for (const answer of waiting) answer();
  await Promise.all(calls);
});

test('rpc: a server that does not speak the protocol is unreachable', async (t) => {
  const { default: net } = await import('node:net');
  const foreign = net.createServer((socket) => {
    socket.on('error', () => {});
    socket.end('HTTP/1.1 400 Bad Request\r\n\r\n');
  });
  const port = await listenAlone(foreign);
  t.teardown(() => foreign.close());
  const env = testEnvironment();
  await t.throwsAsync(newClient(t, env).call({ host: '127.0.0.1', port }, 'echo', {}), { code: 'ERR_UNREACHABLE' });
  t.is(env.counts.get('meshcache_rpc_errors_total bad_answer'), 1);
});

test('rpc: a peer that takes the connection and says nothing is given up', async (t) => {
  const { default: net } = await import('node:net');
  let accepted = 0;
  const mute = net.createServer((socket) => {
    accepted++;
    t.teardown(() => socket.destroy());
  });
  const port = await listenAlone(mute);
  t.teardown(() => mute.close());
  const clock = new ManualClock();
  const call = newClient(t, testEnvironment({ clock })).call(
    { host: '127.0.0.1', port },
    'echo',
    {},
    { timeoutMs: 60_000 },
  );
  call.catch(() => {});
  await until(() => accepted === 1);
  await until(() => {
    clock.advance(100);
    return Promise.race([
      call.then(
        () => true,
        () => true,
      ),
      clock.yield().then(() => false),
    ]);
  });
  await t.throwsAsync(call, { code: 'ERR_UNREACHABLE', message: /no hello in time/ });
});

test('rpc: close rejects what is in flight and every later call', async (t) => {
  const { server, endpoint } = await startServer(t);
  server.handle('never', () => new Promise(() => {}));
  const client = new RpcClient({ env: testEnvironment() });
  const call = client.call(endpoint, 'never', {});
  await Promise.all([t.throwsAsync(call, { code: 'ERR_CLOSED' }), client.close()]);
  await t.throwsAsync(client.call(endpoint, 'echo', {}), { code: 'ERR_CLOSED' });
  await client.close();
  await until(() => server.stats().connections === 0);
});

test('rpc: a port in use is a configuration error that names it', async (t) => {
  const { endpoint } = await startServer(t);
  const second = new RpcServer({ ...endpoint, env: testEnvironment() });
  await t.throwsAsync(second.start(), { code: 'ERR_CONFIG', message: new RegExp(`port ${endpoint.port} is in use`) });
  await second.stop();
});

test('rpc: requests that a peer does not take are bounded', async (t) => {
  const { default: net } = await import('node:net');
  const stuck = net.createServer((socket) => {
    t.teardown(() => socket.destroy());
    socket.write(encodeHello());
    socket.pause();
  });
  const port = await listenAlone(stuck);
  t.teardown(() => stuck.close());
  const client = newClient(t);
  const params = { bytes: new Uint8Array(12 * 2 ** 20) };
  const call = () => client.call({ host: '127.0.0.1', port }, 'echo', params, { timeoutMs: 60_000 });
  const calls = Array.from({ length: 8 }, () => call().catch((error: MeshCacheError) => error.code));
  t.is(await Promise.race(calls), 'ERR_OVERLOADED');
  await client.close();
  t.deepEqual([...new Set(await Promise.all(calls))].sort(), ['ERR_CLOSED', 'ERR_OVERLOADED']);
});

test('rpc: connections beyond the maximum are closed and counted, the others serve on', async (t) => {
  const port = await freePort();
  const server = new RpcServer({ host: '127.0.0.1', port, maxConnections: 1, env: testEnvironment() });
  server.handle('echo', (params) => params);
  const endpoint = { host: '127.0.0.1', port };
  await server.start();
  t.teardown(() => server.stop());
  const first = newClient(t);
  t.deepEqual(await first.call(endpoint, 'echo', { a: 1 }), { a: 1 });
  await t.throwsAsync(newClient(t).call(endpoint, 'echo', {}), { code: 'ERR_UNREACHABLE' });
  t.is(server.stats().errors.too_many_connections, 1);
  t.deepEqual(await first.call(endpoint, 'echo', { a: 2 }), { a: 2 });
});

test('rpc: a caller that was busy itself past the deadline still takes an answer that is there', async (t) => {
  // Cause: timers run before sockets are read, so that a busy caller's deadline condemned a peer that had answered.
  const clock = new ManualClock();
  const { server, endpoint } = await startServer(t);
  let answer: (() => void) | undefined;
  server.handle('later', (params) => new Promise((resolve) => (answer = () => resolve(params))));
  const client = newClient(t, testEnvironment({ clock }));
  await client.call(endpoint, 'echo', {});
  clock.advance(1);
  const call = client.call(endpoint, 'later', { a: 1 });
  await until(() => answer !== undefined);
  answer?.();
  for (let i = 0; i < 10; i++) await new Promise<void>((resolve) => process.nextTick(resolve));
  clock.advance(RPC_CALL_TIMEOUT_MS);
  t.deepEqual(await call, { a: 1 });
  t.deepEqual(await client.call(endpoint, 'echo', { b: 2 }), { b: 2 });
});

test('rpc: a host or port that none can be is refused when the server is made', (t) => {
  for (const bad of [{ host: '' }, { host: undefined as never }, { host: '127.0.0.1', port: 65_536 }]) {
    t.throws(() => new RpcServer({ env: testEnvironment(), ...bad }), { code: 'ERR_ARGUMENT' });
  }
  for (const port of [-1, 1.5, Number.NaN, '80' as never]) {
    t.throws(() => new RpcServer({ host: '127.0.0.1', port, env: testEnvironment() }), { code: 'ERR_ARGUMENT' });
  }
});
