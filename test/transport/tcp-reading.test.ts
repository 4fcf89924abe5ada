import type net from 'node:net';
import test, { type ExecutionContext } from 'ava';
import type { Clock } from '../../src/base/environment/clock.js';
import { silentLogger } from '../../src/base/environment/log.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { systemClock } from '../../src/system/system-clock.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import type { ReadOp } from '../../src/transport/contract/transport.js';
import type { TcpLimits } from '../../src/transport/tcp/protocol/limits.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { ManualClock } from '../_support/clock.js';
import { patientClock } from '../_support/patient-clock.js';
import { content, freePort, until } from '../_support/support.js';
import { HELLO, noise, onRequests, rawServer, responseHeader } from '../_support/transport/raw-peer.js';

const LENGTH = 300_000;

interface Reader {
  readonly transport: TcpTransport;
  readonly target: HostRegion;
  op(endpoint: string, at?: number, length?: number): ReadOp;
}

async function createReader(
  t: ExecutionContext,
  limits: Partial<TcpLimits> = {},
  clock: Clock = patientClock,
): Promise<Reader> {
  const env = systemEnvironment({ clock, log: silentLogger });
  const transport = await TcpTransport.create({
    host: '127.0.0.1',
    port: await freePort(),
    env,
    limits: { retryAfterMs: 0, ...limits },
  });
  t.teardown(() => transport.close());
  const target = HostRegion.allocate(LENGTH);
  t.teardown(() => target.free());
  const op = (remoteEndpoint: string, at = 0, length = LENGTH): ReadOp => ({
    remoteEndpoint,
    remoteAddr: 2n ** 47n,
    rkey: 5,
    localAddr: target.addr + BigInt(at),
    length,
  });
  return { transport, target, op };
}

/** A peer that greets and answers each request with `answer`'s bytes. */
function answering(
  t: ExecutionContext,
  answer: (id: number, opCount: number, totalBytes: number) => Buffer,
): Promise<string> {
  return rawServer(t, (socket) => {
    socket.write(HELLO);
    onRequests(socket, (id, opCount, totalBytes) => socket.write(answer(id, opCount, totalBytes)));
  });
}

test('tcp reading: answers may come in pieces of any size', async (t) => {
  const bytes = Buffer.from(content(1, LENGTH));
  const sizes = [10_000, 4_000, 4_000, 20_000, 1, 0, 50_000, 3, 200_000];
  const reader = await createReader(t, { requestTargetBytes: 100_000 });
  for (const pieceBytes of [1_000, 5_003, 70_000]) {
    const endpoint = await rawServer(t, (socket) => {
      socket.setNoDelay();
      let sentBytes = 0;
      let sending = Promise.resolve();
      const send = (piece: Buffer): Promise<void> => new Promise((resolve) => socket.write(piece, () => resolve()));
      sending = send(HELLO.subarray(0, 11)).then(() => send(HELLO.subarray(11)));
      onRequests(socket, (id, opCount, totalBytes) => {
        const payload = bytes.subarray(sentBytes, sentBytes + totalBytes);
        sentBytes += totalBytes;
        const stream = Buffer.concat([responseHeader(id, opCount, { payloadBytes: totalBytes }), payload]);
        sending = sending.then(async () => {
          for (let at = 0; at < stream.length; at += pieceBytes) {
            await send(stream.subarray(at, at + pieceBytes));
            await systemClock.yield();
          }
        });
      });
    });
    reader.target.bytes().fill(0);
    let at = 0;
    const ops = sizes.map((size) => {
      const op = reader.op(endpoint, at, size);
      at += size;
      return op;
    });
    t.true((await reader.transport.batchRead(ops)).every(Boolean));
    t.is(Buffer.compare(reader.target.bytes(0, at), bytes.subarray(0, at)), 0, `pieces of ${pieceBytes}`);
  }
  t.is(reader.transport.stats().protocolErrors, 0);
});

test('tcp reading: an answer that is not one is a miss, counted, and the connection is closed', async (t) => {
  const reader = await createReader(t);
  const wrong: ((id: number, opCount: number, totalBytes: number) => Buffer)[] = [
    () => noise(1, 400),
    () => HELLO,
    (id, opCount, payloadBytes) => responseHeader(id + 1, opCount, { payloadBytes }),
    (id, opCount, payloadBytes) => responseHeader(id, opCount + 1, { payloadBytes }),
    (id, opCount, totalBytes) => responseHeader(id, opCount, { payloadBytes: totalBytes - 1 }),
    (id, opCount, totalBytes) => responseHeader(id, opCount, { payloadBytes: totalBytes + 1 }),
    (id, opCount, payloadBytes) => responseHeader(id, opCount, { grantedOps: 0, payloadBytes }),
  ];
  for (const [i, answer] of wrong.entries()) {
    const endpoint = await answering(t, (...request) => Buffer.concat([answer(...request), Buffer.alloc(200)]));
    t.deepEqual(await reader.transport.batchRead([reader.op(endpoint)]), [false], `case ${i}`);
    t.is(reader.transport.stats().protocolErrors, i + 1, `case ${i}`);
  }
  t.is(reader.transport.stats().connections, 0);
  t.true(reader.target.bytes().every((byte) => byte === 0));
});

test('tcp reading: bytes that nobody asked for close the connection', async (t) => {
  const reader = await createReader(t);
  const endpoint = await answering(t, (id, opCount, payloadBytes) =>
    Buffer.concat([responseHeader(id, opCount, { payloadBytes }), Buffer.alloc(payloadBytes, 7), noise(9, 152)]),
  );
  t.deepEqual(await reader.transport.batchRead([reader.op(endpoint, 0, 1000)]), [true]);
  await until(() => reader.transport.stats().protocolErrors === 1);
  t.is(reader.target.bytes(1000, 1)[0], 0);
});

test('tcp reading: a peer of another protocol or version, or without a hello, is a miss', async (t) => {
  const reader = await createReader(t, { connectTimeoutMs: 100, retryAfterMs: 60_000 });
  const other = Buffer.from(HELLO);
  other[4] = 2;
  for (const hello of [noise(1, 500), other, Buffer.from('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n')]) {
    const endpoint = await rawServer(t, (socket) => socket.write(hello));
    t.deepEqual(await reader.transport.batchRead([reader.op(endpoint)]), [false]);
  }
  t.is(reader.transport.stats().protocolErrors, 3);
  const silent = await rawServer(t, () => {});
  t.deepEqual(await reader.transport.batchRead([reader.op(silent)]), [false]);
  const closing = await rawServer(t, (socket) => socket.destroy());
  t.deepEqual(await reader.transport.batchRead([reader.op(closing)]), [false]);
  t.is(reader.transport.stats().connections, 0);
});

test('tcp reading: an answer that ends too early is a miss; what was whole before is not', async (t) => {
  const reader = await createReader(t);
  const endpoint = await rawServer(t, (socket) => {
    socket.write(HELLO);
    onRequests(socket, (id, opCount, payloadBytes) => {
      socket.write(responseHeader(id, opCount, { payloadBytes }));
      socket.end(Buffer.alloc(payloadBytes - 1, 7));
    });
  });
  const ops = [reader.op(endpoint, 0, 1000), reader.op(endpoint, 1000, 100_000), reader.op(endpoint, 200_000, 1000)];
  t.deepEqual(await reader.transport.batchRead(ops), [true, true, false]);
  t.is(reader.transport.stats().failedOps, 1);
});

test('tcp reading: a stalled peer is a miss, and what it sends later is not written', async (t) => {
  const reader = await createReader(t, { stallTimeoutMs: 100 });
  let stalled: net.Socket | undefined;
  const endpoint = await rawServer(t, (socket) => {
    socket.write(HELLO);
    onRequests(socket, (id, opCount, payloadBytes) => {
      stalled = socket;
      socket.write(Buffer.concat([responseHeader(id, opCount, { payloadBytes }), Buffer.alloc(1000, 7)]));
    });
  });
  const startMs = patientClock.nowMs();
  t.deepEqual(await reader.transport.batchRead([reader.op(endpoint), reader.op(endpoint)]), [false, false]);
  t.true(patientClock.nowMs() - startMs < 2_000);
  t.is(reader.target.bytes(999, 1)[0], 7);
  reader.target.bytes().fill(1);
  stalled?.write(Buffer.alloc(LENGTH, 9));
  await until(() => stalled?.destroyed === true);
  t.true(reader.target.bytes().every((byte) => byte === 1));
});

test('tcp reading: a peer that trickles is a miss in the end', async (t) => {
  const reader = await createReader(t, { stallTimeoutMs: 100, minBytesPerS: LENGTH * 10 });
  const endpoint = await rawServer(t, (socket) => {
    socket.write(HELLO);
    onRequests(socket, async (id, opCount, payloadBytes) => {
      socket.write(responseHeader(id, opCount, { payloadBytes }));
      while (!socket.destroyed) {
        await systemClock.yield();
        if (socket.writableLength === 0) socket.write(Buffer.alloc(1));
      }
    });
  });
  t.deepEqual(await reader.transport.batchRead([reader.op(endpoint)]), [false]);
});

test('tcp reading: a thread that was busy itself does not take its peer for stalled', async (t) => {
  // Long enough for the server's thread to say hello on a busy machine.
  const limitMs = 1_000;
  const reader = await createReader(t, { stallTimeoutMs: limitMs, connectTimeoutMs: limitMs }, systemClock);
  const server = await createReader(t);
  const mr = server.transport.registerMr(server.target.addr, LENGTH);
  const read = (): Promise<boolean[]> => {
    const op = reader.op(server.transport.localEndpoint());
    return reader.transport.batchRead([{ ...op, remoteAddr: mr.addr, rkey: mr.rkey }]);
  };
  const blocked = new Int32Array(new SharedArrayBuffer(4));
  for (const what of ['connecting', 'reading']) {
    const { servedOps } = server.transport.stats();
    // From here the event loop goes to its timers next, and looks at what has arrived after them.
    await systemClock.yield();
    const reading = read();
    // The server answers by a thread of its own, which may have to wait for a processor; it is not connected to before
    // the block ends.
    while (what === 'reading' && server.transport.stats().servedOps === servedOps) Atomics.wait(blocked, 0, 0, 10);
    Atomics.wait(blocked, 0, 0, limitMs + 200);
    t.deepEqual(await reading, [true], what);
  }
});

test('tcp reading: no more is asked for at a time than the window allows', async (t) => {
  const limits = { requestTargetBytes: 10_000, inFlightMaxBytes: 30_000, inFlightMaxCount: 64 };
  const reader = await createReader(t, limits);
  let [inFlightBytes, highestBytes, requests] = [0, 0, 0];
  const endpoint = await rawServer(t, (socket) => {
    socket.write(HELLO);
    onRequests(socket, async (id, opCount, payloadBytes) => {
      inFlightBytes += payloadBytes;
      requests++;
      highestBytes = Math.max(highestBytes, inFlightBytes);
      for (let turn = 0; turn < 5; turn++) await systemClock.yield();
      inFlightBytes -= payloadBytes;
      socket.write(Buffer.concat([responseHeader(id, opCount, { payloadBytes }), Buffer.alloc(payloadBytes, 7)]));
    });
  });
  const ops = Array.from({ length: 60 }, (_, i) => reader.op(endpoint, i * 5_000, 5_000));
  t.true((await reader.transport.batchRead(ops)).every(Boolean));
  t.is(requests, 30);
  t.true(highestBytes > 10_000 && highestBytes <= 30_000, `${highestBytes}`);
  t.true(reader.target.bytes().every((byte) => byte === 7));
});

test('tcp reading: a peer that closes an idle connection is reached again at once', async (t) => {
  const reader = await createReader(t, { retryAfterMs: 60_000 });
  let connections = 0;
  let latest: net.Socket | undefined;
  const endpoint = await rawServer(t, (socket) => {
    connections++;
    latest = socket;
    socket.write(HELLO);
    onRequests(socket, (id, opCount, payloadBytes) =>
      socket.write(Buffer.concat([responseHeader(id, opCount, { payloadBytes }), Buffer.alloc(payloadBytes)])),
    );
  });
  for (let i = 1; i <= 3; i++) {
    t.deepEqual(await reader.transport.batchRead([reader.op(endpoint)]), [true]);
    t.is(connections, i);
    latest?.end();
    await until(() => reader.transport.stats().connections === 0);
  }
  t.is(reader.transport.stats().reconnects, 2);
});

test('tcp reading: a peer that is silent costs a deadline once, then it is looked for while reads go on without it', async (t) => {
  const clock = new ManualClock();
  const limits = { connectTimeoutMs: 1_000, retryAfterMs: 1_000 };
  const reader = await createReader(t, limits, clock);
  let isSilent = true;
  let connections = 0;
  const endpoint = await rawServer(t, (socket) => {
    connections++;
    if (isSilent) return;
    socket.write(HELLO);
    onRequests(socket, (id, opCount, payloadBytes) =>
      socket.write(Buffer.concat([responseHeader(id, opCount, { payloadBytes }), Buffer.alloc(payloadBytes, 7)])),
    );
  });
  const read = () => reader.transport.batchRead([reader.op(endpoint)]);
  const first = read();
  await until(() => connections === 1);
  await until(() => {
    clock.advance(100);
    return reader.transport.stats().connections === 0;
  });
  t.deepEqual(await first, [false]);
  for (let probes = 1; probes <= 3; probes++) {
    clock.advance(limits.retryAfterMs);
    // The clock stands still: who waited for the peer would wait for ever.
    t.deepEqual(await read(), [false]);
    t.false(reader.transport.isReachable(endpoint));
    await until(() => connections === 1 + probes);
    t.deepEqual(await read(), [false]);
    await until(() => {
      clock.advance(100);
      return reader.transport.stats().connections === 0;
    });
  }
  isSilent = false;
  clock.advance(limits.retryAfterMs);
  t.deepEqual(await read(), [false]);
  await until(() => reader.transport.isReachable(endpoint));
  t.deepEqual(await read(), [true]);
});

// Cause: a piece of no bytes was added without end, and writing into memory without bytes threw in the socket's
// callback: both ended the process.
for (const moment of ['before the call', 'before the answer', 'amid the answer'] as const) {
  test(`tcp reading: memory that its owner transfers away ${moment} is a miss of that call only`, async (t) => {
    const reader = await createReader(t);
    for (const length of [4_000, LENGTH]) {
      const answers: ((part: number) => void)[] = [];
      const endpoint = await rawServer(t, (socket) => {
        socket.write(HELLO);
        onRequests(socket, (id, opCount, payloadBytes) => {
          const answer = Buffer.concat([responseHeader(id, opCount, { payloadBytes }), Buffer.alloc(payloadBytes, 7)]);
          let at = 0;
          answers.push((part) => {
            socket.write(answer.subarray(at, part * answer.length));
            at = part * answer.length;
          });
        });
      });
      const memory = new Uint8Array(length);
      const region = HostRegion.wrap(memory);
      t.teardown(() => region.free());
      const detach = () => structuredClone(memory.buffer, { transfer: [memory.buffer] });
      const kept: unknown[] = [];
      if (moment === 'before the call') kept.push(detach());
      const op = { ...reader.op(endpoint, 0, length), localAddr: region.addr };
      const reads = Promise.all([
        reader.transport.batchRead([op]),
        reader.transport.batchRead([reader.op(endpoint, 0, length)]),
      ]);
      await until(() => answers.length === 2);
      if (moment === 'before the answer') kept.push(detach());
      answers[0]?.(0.5);
      if (moment === 'amid the answer') {
        await until(() => memory[0] === 7);
        kept.push(detach());
      }
      for (const answer of answers) answer(1);
      t.deepEqual(await reads, [[false], [true]], `${length} bytes`);
      t.true(reader.target.bytes(0, length).every((byte) => byte === 7));
      reader.target.bytes().fill(0);
    }
    t.is(reader.transport.stats().protocolErrors, 0);
    reader.transport.verify();
  });
}
