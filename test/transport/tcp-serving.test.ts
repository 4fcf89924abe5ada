import { EventEmitter } from 'node:events';
import test, { type ExecutionContext } from 'ava';
import { ClusterSecrets } from '../../src/base/environment/credentials.js';
import { silentLogger } from '../../src/base/environment/log.js';
import type { Connection } from '../../src/base/environment/network.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { systemClock } from '../../src/system/system-clock.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { systemRandom } from '../../src/system/system-random.js';
import type { Mr } from '../../src/transport/contract/transport.js';
import { type TcpLimits, tcpLimits } from '../../src/transport/tcp/protocol/limits.js';
import { DATA_HELLO } from '../../src/transport/tcp/protocol/protocol.js';
import { Registrations, registrationOf } from '../../src/transport/tcp/serving/registrations.js';
import {
  ServingConnection,
  type ServingConnectionParts,
  ServingCounters,
} from '../../src/transport/tcp/serving/serving-connection.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { ManualClock } from '../_support/clock.js';
import { patientClock } from '../_support/patient-clock.js';
import { content, freePort, until } from '../_support/support.js';
import {
  HELLO,
  noise,
  type RawOp,
  RawReader,
  RESPONSE_BYTES,
  requestFrame,
  responseHeader,
} from '../_support/transport/raw-peer.js';

const REGION_BYTES = 64 * 1024;

interface Server {
  readonly transport: TcpTransport;
  readonly region: HostRegion;
  readonly mr: Mr;
  readonly op: RawOp;
}

async function serve(
  t: ExecutionContext,
  limits: Partial<TcpLimits> = {},
  regionBytes = REGION_BYTES,
): Promise<Server> {
  const env = systemEnvironment({ clock: patientClock, log: silentLogger });
  const transport = await TcpTransport.create({ host: '127.0.0.1', port: await freePort(), env, limits });
  t.teardown(() => transport.close());
  const region = HostRegion.allocate(regionBytes);
  t.teardown(() => region.free());
  region.bytes(0, REGION_BYTES).set(content(1, REGION_BYTES));
  const mr = transport.registerMr(region.addr, region.length);
  return { transport, region, mr, op: { rkey: mr.rkey, addr: mr.addr, length: 1000 } };
}

/** Reads the region through a well-behaved transport. */
async function assertServes(t: ExecutionContext, { transport, region, mr }: Server): Promise<void> {
  const reader = await TcpTransport.create({ host: '127.0.0.1', env: systemEnvironment({ clock: patientClock }) });
  const target = HostRegion.allocate(REGION_BYTES);
  const op = { rkey: mr.rkey, remoteAddr: mr.addr, localAddr: target.addr, length: REGION_BYTES };
  t.deepEqual(await reader.batchRead([{ ...op, remoteEndpoint: transport.localEndpoint() }]), [true]);
  t.is(Buffer.compare(target.bytes(), region.bytes(0, REGION_BYTES)), 0);
  await reader.close();
  target.free();
}

test('tcp serving: an answer is what the protocol says, byte for byte', async (t) => {
  const server = await serve(t);
  const reader = await RawReader.connect(t, server.transport.localEndpoint());
  const refused = { ...server.op, rkey: (server.op.rkey ^ 1) >>> 0 };
  const later = { ...server.op, addr: server.op.addr + 5000n, length: 3 };
  reader.send(HELLO, requestFrame(77, [server.op, refused, later]), requestFrame(78, [later]));
  const expected = Buffer.concat([
    HELLO,
    responseHeader(77, 3, { grantedOps: 1, payloadBytes: 1003 }),
    server.region.bytes(0, 1000),
    server.region.bytes(5000, 3),
    responseHeader(78, 1, { payloadBytes: 3 }),
    server.region.bytes(5000, 3),
  ]);
  expected[HELLO.length + 24] = 0b101;
  const received = await reader.receive(expected.length);
  t.is(Buffer.compare(received, expected), 0);
});

test('tcp serving: frames may come in pieces of any size', async (t) => {
  const server = await serve(t);
  const stream = Buffer.concat([HELLO, ...[1, 2, 3].map((id) => requestFrame(id, [server.op, server.op]))]);
  const answerBytes = HELLO.length + 3 * (RESPONSE_BYTES + 2000);
  for (const pieceBytes of [1, 7, 33, 60, stream.length]) {
    const reader = await RawReader.connect(t, server.transport.localEndpoint());
    for (let at = 0; at < stream.length; at += pieceBytes) {
      const piece = stream.subarray(at, at + pieceBytes);
      await new Promise((resolve) => reader.socket.write(piece, resolve));
    }
    const received = await reader.receive(answerBytes);
    t.is(received.length, answerBytes);
    t.is(received.readUInt32LE(HELLO.length + 2 * (RESPONSE_BYTES + 2000) + 4), 3);
    t.is(Buffer.compare(received.subarray(-1000), server.region.bytes(0, 1000)), 0);
    reader.socket.destroy();
  }
  t.is(server.transport.stats().protocolErrors, 0);
});

test('tcp serving: what is not of the protocol closes the connection, is counted, and harms nobody', async (t) => {
  // No deadline closes them: a start that cannot become a hello used to stay until it came.
  const server = await serve(t, { handshakeTimeoutMs: 2 ** 30 });
  const { op } = server;
  const good = requestFrame(1, [op]);
  const patched = (frame: Buffer, at: number, value: number): Buffer => {
    const copy = Buffer.from(frame);
    copy[at] = value;
    return copy;
  };
  const wrong: Buffer[][] = [
    [noise(1, 32)],
    [noise(2, 5000)],
    [noise(3, 1_000_000)],
    [Buffer.from('GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n')],
    [Buffer.alloc(100)],
    [Buffer.from('GET /')],
    [Buffer.from([0x16])],
    [HELLO.subarray(0, 4), Buffer.from([2])],
    [HELLO.subarray(0, 7), Buffer.from([1])],
    [patched(HELLO, 0, 0x4e)],
    [patched(HELLO, 4, 2)],
    [patched(HELLO, 6, 1)],
    [HELLO, noise(4, 64)],
    [HELLO, HELLO],
    [HELLO, patched(good, 0, 0)],
    [HELLO, patched(good, 12, 1)],
    [HELLO, requestFrame(1, [])],
    [HELLO, requestFrame(1, [op], { opCount: 1025 })],
    [HELLO, requestFrame(1, [op], { opCount: 0xffffffff })],
    [HELLO, requestFrame(1, [op], { totalBytes: 999n })],
    [HELLO, requestFrame(1, [op], { totalBytes: 1001n })],
    [HELLO, requestFrame(1, [op], { totalBytes: 2n ** 63n })],
    [HELLO, requestFrame(1, [{ ...op, length: 0xffffffff }])],
    [HELLO, good, noise(5, 24)],
  ];
  for (const [i, frames] of wrong.entries()) {
    const reader = await RawReader.connect(t, server.transport.localEndpoint());
    reader.send(...frames);
    await reader.closed();
    t.is(server.transport.stats().protocolErrors, i + 1, `case ${i}`);
  }
  await until(() => server.transport.stats().connections === 0);
  await assertServes(t, server);
});

test('tcp serving: a frame that ends too early is counted', async (t) => {
  const server = await serve(t);
  const wholes = [HELLO, Buffer.concat([HELLO, requestFrame(1, [server.op, server.op])])];
  let cuts = 0;
  for (const whole of wholes) {
    for (const cut of [1, whole.length - 1]) {
      const reader = await RawReader.connect(t, server.transport.localEndpoint());
      reader.socket.end(whole.subarray(0, cut));
      await reader.closed();
      cuts++;
    }
  }
  await until(() => server.transport.stats().protocolErrors === cuts);
  const polite = await RawReader.connect(t, server.transport.localEndpoint());
  polite.socket.end();
  await polite.closed();
  t.is(server.transport.stats().protocolErrors, cuts);
  await assertServes(t, server);
});

test('tcp serving: a connection that says nothing, or half a frame, is closed in time', async (t) => {
  const server = await serve(t, { handshakeTimeoutMs: 50 });
  const beginnings = [
    Buffer.alloc(0),
    HELLO.subarray(0, 31),
    Buffer.concat([HELLO, requestFrame(1, [server.op]).subarray(0, 39)]),
  ];
  for (const beginning of beginnings) {
    const reader = await RawReader.connect(t, server.transport.localEndpoint());
    reader.send(beginning);
    await reader.closed();
  }
  t.is(server.transport.stats().protocolErrors, beginnings.length);

  const answerBytes = RESPONSE_BYTES + 1000;
  const greet = async (): Promise<RawReader> => {
    for (;;) {
      const reader = await RawReader.connect(t, server.transport.localEndpoint());
      reader.send(HELLO, requestFrame(1, [server.op]));
      // Closed before it had its answer: this process was kept from saying hello for so long.
      if ((await reader.receive(HELLO.length + answerBytes)).length === HELLO.length + answerBytes) return reader;
    }
  };
  const idle = await greet();
  const slow = await RawReader.connect(t, server.transport.localEndpoint());
  await slow.closed();
  t.false(idle.socket.destroyed, 'a greeted connection may be idle');
  idle.send(requestFrame(2, [server.op]));
  t.is((await idle.receive(HELLO.length + 2 * answerBytes)).length, HELLO.length + 2 * answerBytes);
});

test('tcp serving: a reader that does not take its answers is held back, then given up', async (t) => {
  const server = await serve(t, { drainTimeoutMs: 300 }, 64 * 2 ** 20);
  const big = { ...server.op, length: 64 * 2 ** 20 };
  const reader = await RawReader.connect(t, server.transport.localEndpoint());
  reader.socket.pause();
  reader.send(HELLO, ...Array.from({ length: 20 }, (_, id) => requestFrame(id, [big])));
  await until(() => server.transport.stats().servedOps > 0);
  await assertServes(t, server);
  await until(() => server.transport.stats().protocolErrors === 1);
  t.is(server.transport.stats().servedOps, 2, 'one answer at a time, and the good reader’s');
});

/** A socket whose kernel takes nothing until it is told to. */
class FullSocket extends EventEmitter {
  readonly calls: string[] = [];
  destroyed = false;
  writableNeedDrain = false;

  get writableLength(): number {
    return Number(this.writableNeedDrain);
  }

  write(bytes: Uint8Array): void {
    this.calls.push(`write ${bytes.length}`);
    this.writableNeedDrain = bytes.length > HELLO.length;
  }

  cork(): void {}
  uncork(): void {}

  end(): void {
    this.calls.push('end');
  }

  pause(): void {
    this.calls.push('pause');
  }

  resume(): void {
    this.calls.push('resume');
  }

  destroy(): void {
    this.destroyed = true;
    this.calls.push('destroy');
    this.emit('close');
  }

  takeAll(): void {
    this.writableNeedDrain = false;
    this.emit('drain');
  }
}

/** Serves 1,000 bytes under rkey 5 to a reader whose socket is full after every write. */
function fullConnection(t: ExecutionContext, parts: Partial<ServingConnectionParts> = {}) {
  const region = HostRegion.allocate(1000);
  t.teardown(() => region.free());
  const registrations = new Registrations(() => {});
  registrations.add(registrationOf(region, 5, region.start, 1000));
  const socket = new FullSocket();
  const connection = new ServingConnection({
    socket: socket as unknown as Connection,
    registrations,
    counters: new ServingCounters(),
    limits: tcpLimits(),
    clock: systemClock,
    random: systemRandom,
    target: 'data 127.0.0.1:9',
    onOpen() {},
    onUnauthenticated() {},
    ...parts,
  });
  return { region, socket, connection };
}

test('tcp serving: a hello does not prolong the time for the challenge behind it, the whole greeting does', (t) => {
  const { handshakeTimeoutMs } = tcpLimits();
  const secrets = ClusterSecrets.of(['the secret of the cluster 7f3a']);
  const hello = DATA_HELLO.encode({ authentication: true });
  for (const greeting of [hello, Buffer.concat([hello, Buffer.alloc(64)])]) {
    const clock = new ManualClock();
    const { socket } = fullConnection(t, { clock, secrets });
    clock.advance(handshakeTimeoutMs - 1);
    socket.emit('data', greeting);
    clock.advance(1);
    t.is(socket.destroyed, greeting === hello);
  }
});

test('tcp serving: a peer that ends between its hello and its challenge has violated the protocol', (t) => {
  const counters = new ServingCounters();
  const { socket } = fullConnection(t, { counters, secrets: ClusterSecrets.of(['the secret of the cluster 7f3a']) });
  socket.emit('data', DATA_HELLO.encode({ authentication: true }));
  socket.emit('end');
  t.true(socket.destroyed);
  t.is(counters.value('protocolErrors'), 1);
});

test('tcp serving: nothing more is received or answered before an answer has been taken', (t) => {
  const { region, socket } = fullConnection(t);
  const frame = requestFrame(1, [{ rkey: 5, addr: region.addr, length: 100 }]);
  socket.emit('data', Buffer.concat([HELLO, frame, frame.subarray(0, 30)]));
  const answer = [`write ${RESPONSE_BYTES}`, 'write 100', 'pause'];
  t.deepEqual(socket.calls.splice(0), ['write 32', ...answer]);
  socket.emit('data', Buffer.concat([frame.subarray(30), frame]));
  t.deepEqual(socket.calls.splice(0), []);
  socket.takeAll();
  const [header, payload, pause] = answer;
  t.deepEqual(socket.calls.splice(0), ['resume', header, payload, header, payload, pause], 'both by one write');
  socket.takeAll();
  t.deepEqual(socket.calls.splice(0), ['resume']);
  socket.destroy();
});

test('tcp serving: what is encrypted is written in pieces, the next when the one before has been taken', (t) => {
  const { region, socket, connection } = fullConnection(t, { writeMaxBytes: 250 });
  const ops = [0n, 500n].map((offset) => ({ rkey: 5, addr: region.addr + offset, length: 300 }));
  const frame = requestFrame(1, ops);
  socket.emit('data', Buffer.concat([HELLO, frame, frame]));
  const begin = [`write ${RESPONSE_BYTES}`, 'write 250', 'pause'];
  t.deepEqual(socket.calls.splice(0), ['write 32', ...begin]);
  socket.takeAll();
  t.deepEqual(socket.calls.splice(0), ['write 50', 'write 200']);
  socket.takeAll();
  t.deepEqual(socket.calls.splice(0), ['write 100']);
  socket.takeAll();
  t.deepEqual(socket.calls.splice(0), ['resume', ...begin], 'and then the next answer');
  connection.finish();
  socket.takeAll();
  t.deepEqual(socket.calls.splice(0), ['write 50', 'write 200'], 'the answer under way is brought to its end');
  socket.takeAll();
  t.deepEqual(socket.calls.splice(0), ['write 100', 'end']);
  socket.takeAll();
  t.deepEqual(socket.calls.splice(0), []);
  socket.destroy();
});

test('tcp serving: connections beyond the limit are turned away and counted', async (t) => {
  const server = await serve(t, { connectionsMaxCount: 2 });
  const kept = [
    await RawReader.connect(t, server.transport.localEndpoint()),
    await RawReader.connect(t, server.transport.localEndpoint()),
  ];
  for (const reader of kept) reader.send(HELLO, requestFrame(1, [server.op]));
  // An answer shows that they have said hello: strangers would give way.
  for (const reader of kept) await reader.receive(HELLO.length + RESPONSE_BYTES);
  const third = await RawReader.connect(t, server.transport.localEndpoint());
  await third.closed();
  t.is(server.transport.stats().refusedConnections, 1);
  t.is(server.transport.stats().connections, 2);
  kept[0]?.socket.destroy();
  await until(() => server.transport.stats().connections === 1);
  await assertServes(t, server);
});

test('tcp serving: an address that cannot be listened on is refused with the key to change', async (t) => {
  const server = await serve(t);
  const port = Number(server.transport.localEndpoint().split(':')[1]);
  const env = systemEnvironment({ clock: patientClock, log: silentLogger });
  await t.throwsAsync(TcpTransport.create({ host: '127.0.0.1', port, env }), {
    code: 'ERR_CONFIG',
    message: /"tcp_port".*EADDRINUSE/,
  });
  await t.throwsAsync(TcpTransport.create({ host: '192.0.2.1', env }), {
    code: 'ERR_CONFIG',
    message: /192\.0\.2\.1:0.*EADDRNOTAVAIL/,
  });
  await assertServes(t, server);
});

test('tcp serving: memory that other threads cannot see is refused', async (t) => {
  const { transport } = await serve(t);
  const region = HostRegion.wrap(new ArrayBuffer(100));
  t.teardown(() => region.free());
  t.throws(() => transport.registerMr(region.addr, 100), { code: 'ERR_ARGUMENT', message: /SharedArrayBuffer/ });
});
