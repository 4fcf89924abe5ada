import test from 'ava';
import { HostRegion } from '../../src/memory/host-region.js';
import { RegionTable } from '../../src/memory/region-table.js';
import { OP_STATUS } from '../../src/native/addon/contract.js';
import type { EngineChannel } from '../../src/native/engine/engine-channel.js';
import { EngineReader } from '../../src/native/engine/engine-reader.js';
import { PeerBackoff } from '../../src/native/engine/peer-backoff.js';
import { AnswerTimes } from '../../src/net/answer-times.js';
import { AuthFailures } from '../../src/net/auth-failures.js';
import { PendingConnections } from '../../src/net/connection-limits.js';
import { Listener } from '../../src/net/listener.js';
import { inlineThreads } from '../../src/sim/world/inline-threads.js';
import { systemClock } from '../../src/system/system-clock.js';
import { Destinations } from '../../src/transport/rdma/destinations.js';
import { MemoryRegions, RdmaTransport } from '../../src/transport/rdma/rdma-transport.js';
import { type TcpLimits, tcpLimits } from '../../src/transport/tcp/protocol/limits.js';
import { Landing, STAGING_BYTES } from '../../src/transport/tcp/reading/landing.js';
import { ReadConnection } from '../../src/transport/tcp/reading/read-connection.js';
import { ReadPeers } from '../../src/transport/tcp/reading/read-peers.js';
import { NO_CHECKSUM, ReadBatch, ReadCounters, ReadRequest } from '../../src/transport/tcp/reading/read-request.js';
import { Readers } from '../../src/transport/tcp/reading/readers.js';
import { ReadingThread } from '../../src/transport/tcp/reading/reading-thread.js';
import { Registrations } from '../../src/transport/tcp/serving/registrations.js';
import { Serving } from '../../src/transport/tcp/serving/serving.js';
import { ServingCounters } from '../../src/transport/tcp/serving/serving-connection.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { ManualClock } from '../_support/clock.js';
import { FakeFabric } from '../_support/native/fake-rdma.js';
import { assertAsks, assertFound, losing } from '../_support/planted.js';
import { testEnvironment } from '../_support/rpc/server.js';
import { HELLO, responseHeader } from '../_support/transport/raw-peer.js';
import { memoryEnvironment } from '../fuzz/memory-environment.js';
import { type MemorySocket, turn } from '../fuzz/memory-socket.js';

const LENGTH = 64;

function newRequest(length = LENGTH): ReadRequest {
  const request = new ReadRequest(new ReadBatch(1));
  request.beginOp({ index: 0, rkey: 1, remoteAddr: 4096, length, stamp: 0, checksum: NO_CHECKSUM });
  request.addPiece(new Uint8Array(length), 0, length);
  request.endOp();
  return request;
}

/** A connection that has these requests to send, and its peer's hello. */
async function newConnection(requests: readonly ReadRequest[], limits: TcpLimits) {
  const env = memoryEnvironment();
  const connection = new ReadConnection({
    endpoint: { host: '192.0.2.9', port: 9 },
    staging: new Uint8Array(STAGING_BYTES),
    limits,
    env,
    counters: new ReadCounters(),
    authFailures: new AuthFailures('data', env),
    times: new AnswerTimes(),
    onAnswering() {},
    onOverdue() {},
    onClose() {},
    onMoved() {},
  });
  for (const request of requests) connection.submit(request);
  const socket = env.network.connections[0] as MemorySocket;
  socket.connected();
  await socket.feed([HELLO]);
  await turn();
  return { connection, env, socket };
}

/** Registers memory with an engine that there is none of. */
function fakeChannel(): EngineChannel {
  let handle = 0;
  return {
    registerMr: () => ({ handle: ++handle, lkey: 1 }),
    deregisterMr: async () => {},
    peer: () => 1,
  } as unknown as EngineChannel;
}

test.serial('verify: landing', async (t) => {
  const landing = new Landing(new Uint8Array(STAGING_BYTES), { finished() {} });
  const request = newRequest();
  let secondLength = LENGTH;
  const lengthOf = request.lengthOf.bind(request);
  request.lengthOf = (op) => (op === 1 ? secondLength : lengthOf(op));
  request.beginOp({ index: 0, rkey: 1, remoteAddr: 4096, length: LENGTH, stamp: 0, checksum: NO_CHECKSUM });
  request.addPiece(new Uint8Array(LENGTH), 0, LENGTH);
  request.endOp();
  const payloadBytes = 2 * LENGTH;
  const begin = (): boolean =>
    landing.begin(request, { requestId: 1, opCount: 2, payloadBytes }, responseHeader(1, 2, { payloadBytes }));
  begin();
  landing.accept(new Uint8Array(16), 0, 16);
  await assertFound(t, landing, /landing: bytes to come, by operations: 112 by what is kept, 113/, () => {
    secondLength++;
  });
  secondLength--;
  await assertFound(t, landing, /landing: bytes to come, by pieces: 128 by what is kept, 0/, () =>
    losing(Array.prototype, 'push', begin, { when: (_, [length]) => length === LENGTH }),
  );
});

test.serial('verify: read connection, read peers', async (t) => {
  const limits = tcpLimits({ inFlightMaxCount: 1 });
  const requests = [newRequest(), newRequest()] as const;
  const { connection, env } = await newConnection(requests, limits);
  assertAsks(t, connection, [Landing]);
  await assertFound(t, connection, /192.0.2.9:9: bytes in flight: 64 by what is kept, 65/, () => {
    requests[0].totalBytes++;
  });
  requests[0].totalBytes--;
  await assertFound(t, connection, /192.0.2.9:9: 1 requests wait, and 1 are in flight/, () => {
    Object.assign(limits, { inFlightMaxCount: 2 });
  });
  connection.close('the test has ended');

  const counters = new ReadCounters();
  const peers = new ReadPeers(counters, tcpLimits(), env);
  peers.submit('192.0.2.9:9', [newRequest()]);
  assertAsks(t, peers, [ReadConnection]);
  await assertFound(t, peers, /read peers: connections: 2 by what is kept, 1/, () => counters.add('connections', 1));
  peers.close();
});

test.serial('verify: readers, reading thread', async (t) => {
  const env = { ...memoryEnvironment(), threads: inlineThreads(systemClock) };
  const limits = tcpLimits({ threadedMinBytes: 0 });
  const readers = new Readers({ threads: 2, limits, env });
  assertAsks(t, readers, [ReadPeers, ReadingThread]);
  await readers.close();
  const thread = new ReadingThread(limits, env);
  const request = newRequest();
  thread.submit('192.0.2.9:9', [request]);
  await assertFound(t, thread, /reading thread: bytes of requests: 64 by what is kept, 65/, () => request.totalBytes++);
  request.totalBytes--;
  await thread.close();
});

test('tcp reading: what has waited behind a request that is aborted is sent at once', async (t) => {
  // Cause: it had room in the window by then, and went out with the next answer only.
  const [first, large, small] = [newRequest(60), newRequest(60), newRequest(20)];
  const { connection, socket } = await newConnection([first, large, small], tcpLimits({ inFlightMaxBytes: 100 }));
  const requestsSent = (): number => socket.sent.toString('latin1').split('MCRQ').length - 1;
  t.is(requestsSent(), 1);
  connection.abort(large.batch);
  t.notThrows(() => connection.verify());
  await turn();
  t.is(requestsSent(), 2);
  connection.close('the test has ended');
});

test.serial('verify: serving', async (t) => {
  const env = memoryEnvironment();
  const counters = new ServingCounters();
  const parts = { registrations: new Registrations(() => {}), counters, limits: tcpLimits(), env, host: '127.0.0.1' };
  const serving = new Serving(parts);
  await serving.start(0);
  env.network.accept();
  assertAsks(t, serving, [PendingConnections, Listener]);
  await assertFound(t, serving, /serving: connections: 2 by what is kept, 1/, () => counters.add('connections', 1));
});

test.serial('verify: tcp transport, region table', async (t) => {
  const transport = await TcpTransport.create({ host: '127.0.0.1', env: testEnvironment() });
  t.teardown(() => transport.close());
  const region = HostRegion.allocate(4096);
  t.teardown(() => region.free());
  transport.registerMr(region.addr, 2048);
  assertAsks(t, transport, [ReadPeers]);
  await assertFound(t, transport, /memory is registered with rkey \d+, which was not given out/, () =>
    losing(Set.prototype, 'add', () => transport.registerMr(region.addr, 1024), {
      when: (_, [value]) => typeof value === 'number',
    }),
  );
  const table = new RegionTable();
  const at = (start: number): HostRegion => ({ start, length: 10 }) as unknown as HostRegion;
  for (const start of [30, 10, 20]) table.add(at(start));
  await assertFound(t, table, /region table: starts: 3 by what is kept, 4/, () =>
    losing(Array.prototype, 'splice', () => table.add(at(40)), { when: (_, [, , value]) => value === 40 }),
  );
});

test.serial('verify: rdma: regions, destinations, transport', async (t) => {
  const regions = new MemoryRegions(fakeChannel());
  const region = HostRegion.allocate(4096);
  await assertFound(t, regions, /RDMA memory regions: rkey 7, from \d+ to \d+, is in no live region/, () => {
    losing(HostRegion.prototype, 'onFree', () => regions.add(region, region.start, region.length, 7), {
      result: () => {},
    });
    region.free();
  });
  const other = HostRegion.allocate(4096);
  t.teardown(() => other.free());
  const newDestinations = (): Destinations =>
    new Destinations({ channel: fakeChannel(), clock: new ManualClock(), onFailure() {} });
  const destinations = newDestinations();
  destinations.use().add(other, other.start, 1);
  await assertFound(t, destinations, /window 0 of the region at \d+ has -1 users/, () => {
    Object.assign(destinations.window(other, 0) as object, { users: -1 });
  });
  const unordered = newDestinations();
  await assertFound(t, unordered, /window 0 of the region at \d+ is not in the order of use/, () =>
    losing(Set.prototype, 'add', () => unordered.window(other, 0)),
  );
  const tcp = await TcpTransport.create({ host: '127.0.0.1', env: testEnvironment() });
  const rails = [{ deviceName: 'fake0', ibPort: 1, address: '10.77.0.1', port: 0 }];
  const addon = new FakeFabric().addon();
  const transport = new RdmaTransport({ addon, rails, tcp, env: testEnvironment(), engine: {} });
  t.teardown(() => transport.close());
  assertAsks(t, transport, [TcpTransport, MemoryRegions, Destinations, EngineReader]);
});

test.serial('verify: engine reader, peer backoff', async (t) => {
  const options = { clock: new ManualClock(), retryAfterMs: 100, retryMaxMs: 1000 };
  const reader = new EngineReader({ ...options, channel: fakeChannel(), stallTimeoutMs: 1000, minBytesPerS: 1 });
  assertAsks(t, reader, [PeerBackoff]);
  await assertFound(t, reader, /engine reader: peers: \d+, allowed are/, () =>
    losing(Map.prototype, 'clear', () => {
      for (let i = 0; i < 5000; i++) reader.peerNumber(`192.0.2.9:${i + 1}`);
    }),
  );
  const backoff = new PeerBackoff(options);
  await assertFound(t, backoff, /peer backoff: peers: \d+, allowed are/, () =>
    losing(Map.prototype, 'delete', () => {
      for (let i = 0; i < 5000; i++) backoff.ended(`peer ${i}`, 1, [OP_STATUS.indexOf('unreachable')]);
    }),
  );
});
