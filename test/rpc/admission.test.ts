import test from 'ava';
import {
  RPC_GRANTED_BYTES,
  RPC_GRANTED_COUNT,
  RPC_IN_FLIGHT_MAX_BYTES,
  RPC_IN_FLIGHT_MAX_COUNT,
  RPC_SERVER_BUFFERED_MAX_BYTES,
  RPC_SERVER_HELD_MAX_BYTES,
  RPC_SERVER_IN_FLIGHT_MAX_BYTES,
  RPC_SERVER_IN_FLIGHT_MAX_COUNT,
} from '../../src/base/limits.js';
import { encodeHello, FRAME_HEADER_BYTES, FrameType, writeFrameHeader } from '../../src/rpc/frame.js';
import { MessageCodec } from '../../src/rpc/message.js';
import type { RpcServer } from '../../src/rpc/server.js';
import { newClient, rawConnection, startServer, testEnvironment } from '../_support/rpc/server.js';
import { until } from '../_support/support.js';

const codec = new MessageCodec();

function callFrame(requestId: number, method: string, params: object = {}): Buffer {
  const bytes = codec.encode([method, params], FRAME_HEADER_BYTES);
  writeFrameHeader(bytes, FrameType.call, requestId);
  return bytes;
}

/** Calls of `slow` are answered when what is returned is called, and at once after that. */
function handleSlowly(server: RpcServer): () => void {
  let release = (): void => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  server.handle('slow', async () => {
    await released;
    return {};
  });
  return () => release();
}

test('rpc admission: peers that ask all that a server works on do not keep out one that asks little', async (t) => {
  const { server, endpoint } = await startServer(t, testEnvironment());
  const release = handleSlowly(server);
  const calls = Array.from({ length: RPC_IN_FLIGHT_MAX_COUNT }, (_, i) => callFrame(i, 'slow'));
  const greedy = RPC_SERVER_IN_FLIGHT_MAX_COUNT / RPC_IN_FLIGHT_MAX_COUNT;
  for (let i = 0; i < greedy + 1; i++) {
    const raw = await rawConnection(t, endpoint.port);
    raw.socket.write(Buffer.concat([encodeHello(), ...calls]));
  }
  await until(() => server.stats().calls === (greedy + 1) * RPC_IN_FLIGHT_MAX_COUNT);
  t.is(server.stats().inFlight, RPC_SERVER_IN_FLIGHT_MAX_COUNT + RPC_GRANTED_COUNT);
  t.is(server.stats().errors.too_many_calls, RPC_IN_FLIGHT_MAX_COUNT - RPC_GRANTED_COUNT);

  const polite = newClient(t);
  for (let i = 0; i < 20; i++) t.deepEqual(await polite.call(endpoint, 'echo', { i }), { i });
  const waiting = Array.from({ length: RPC_GRANTED_COUNT }, () => polite.call(endpoint, 'slow', {}));
  await t.throwsAsync(polite.call(endpoint, 'echo', {}), { code: 'ERR_OVERLOADED', message: /on this node/ });
  release();
  for (const answer of await Promise.all(waiting)) t.deepEqual(answer, {});
  await until(() => server.stats().inFlight === 0);
});

test('rpc admission: the bytes of calls under way are bounded, and count until their handlers have ended', async (t) => {
  const { server, endpoint } = await startServer(t, testEnvironment());
  const release = handleSlowly(server);
  const bytes = new Uint8Array(15 * 2 ** 20);
  const fits = Math.floor(RPC_IN_FLIGHT_MAX_BYTES / bytes.length);
  const raw = await rawConnection(t, endpoint.port);
  raw.socket.write(encodeHello());
  for (let i = 0; i < fits + 2; i++) raw.socket.write(callFrame(i, 'slow', { bytes }));
  await until(() => server.stats().calls === fits + 2);
  t.is(server.stats().inFlight, fits);
  t.is(server.stats().errors.too_many_calls, 2);
  raw.socket.destroy();
  await until(() => server.stats().connections === 0);
  t.is(server.stats().inFlight, fits, 'who comes again does not begin anew');
  release();
  await until(() => server.stats().inFlight === 0);
});

// Cause: what each peer is granted was counted in calls alone: each connection more was 64 MiB more.
test.serial(
  'rpc admission: the bytes of calls under way are bounded for all peers together; small calls go on',
  async (t) => {
    const { server, endpoint } = await startServer(t, testEnvironment());
    const release = handleSlowly(server);
    const large = callFrame(0, 'slow', { bytes: new Uint8Array(15 * 2 ** 20) });
    const fits = Math.floor(RPC_SERVER_IN_FLIGHT_MAX_BYTES / large.length);
    for (let i = 0; i < fits + 3; i++) {
      const raw = await rawConnection(t, endpoint.port);
      raw.socket.write(encodeHello());
      raw.socket.write(large);
      await until(() => server.stats().calls === i + 1);
    }
    t.is(server.stats().inFlight, fits);
    t.is(server.stats().errors.too_many_calls, 3);
    const bytes = new Uint8Array(200 * 2 ** 10);
    const answer = await newClient(t).call(endpoint, 'echo', { bytes }, { timeoutMs: 60_000 });
    t.is((answer as { bytes: Uint8Array }).bytes.length, bytes.length);
    release();
    await until(() => server.stats().inFlight === 0);
  },
);

// Cause: every connection could hold all but the last byte of a request, for ever: 64 GiB in all.
test.serial(
  'rpc admission: requests that never come whole take bounded memory, and keep no large one out',
  async (t) => {
    const { server, endpoint } = await startServer(t, testEnvironment());
    const begun = callFrame(0, 'echo', { bytes: new Uint8Array(16_000_000) }).subarray(0, -1);
    let mostBytes = 0;
    const peers = Math.ceil(RPC_SERVER_HELD_MAX_BYTES / begun.length) + 3;
    for (let i = 0; i < peers; i++) {
      const raw = await rawConnection(t, endpoint.port);
      raw.socket.write(encodeHello());
      const before = server.stats();
      raw.socket.write(begun);
      await until(() => {
        const { heldBytes, errors } = server.stats();
        mostBytes = Math.max(mostBytes, heldBytes);
        return heldBytes >= before.heldBytes + begun.length || errors.too_many_calls !== before.errors.too_many_calls;
      });
    }
    t.true((server.stats().errors.too_many_calls ?? 0) >= 2);
    const grantedBytes = peers * RPC_GRANTED_BYTES;
    t.true(mostBytes <= RPC_SERVER_HELD_MAX_BYTES + grantedBytes + 2 ** 20, `${mostBytes} bytes`);
    const bytes = new Uint8Array(4 * 2 ** 20);
    const answer = await newClient(t).call(endpoint, 'echo', { bytes }, { timeoutMs: 60_000 });
    t.is((answer as { bytes: Uint8Array }).bytes.length, bytes.length);
  },
);

test('rpc admission: what waits for peers that do not read is bounded for all of them together', async (t) => {
  const { server, endpoint } = await startServer(t, testEnvironment());
  const answer = { bytes: new Uint8Array(2 ** 20) };
  server.handle('large', () => answer);
  const calls = Array.from({ length: 60 }, (_, i) => callFrame(i, 'large'));
  let mostBytes = 0;
  for (let i = 0; i < 12; i++) {
    const raw = await rawConnection(t, endpoint.port);
    raw.socket.pause();
    raw.socket.write(Buffer.concat([encodeHello(), ...calls]));
    await until(() => server.stats().calls >= (i + 1) * 10 || (server.stats().errors.slow_peer ?? 0) > 0);
    mostBytes = Math.max(mostBytes, server.stats().bufferedBytes);
  }
  await until(() => (server.stats().errors.slow_peer ?? 0) > 0);
  t.true(mostBytes <= RPC_SERVER_BUFFERED_MAX_BYTES + 2 ** 21, `${mostBytes} bytes`);
  t.log(`${12 * 60} MiB asked for, at most ${(mostBytes / 2 ** 20).toFixed(0)} MiB waited`);
  t.deepEqual(await newClient(t).call(endpoint, 'echo', {}), {});
});
