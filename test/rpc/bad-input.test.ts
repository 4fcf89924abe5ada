import test, { type ExecutionContext } from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { RPC_BUFFERED_MAX_BYTES, RPC_FRAME_MAX_BYTES, RPC_HANDSHAKE_TIMEOUT_MS } from '../../src/base/limits.js';
import {
  encodeHello,
  FRAME_HEADER_BYTES,
  FrameReader,
  FrameType,
  HELLO_BYTES,
  writeFrameHeader,
} from '../../src/rpc/frame.js';
import { MessageCodec } from '../../src/rpc/message.js';
import { systemRandom } from '../../src/system/system-random.js';
import { ManualClock } from '../_support/clock.js';
import { newClient, rawConnection, startServer, testEnvironment } from '../_support/rpc/server.js';
import { until } from '../_support/support.js';

const codec = new MessageCodec();

function frame(type: FrameType, requestId: number, message: unknown): Buffer {
  const bytes = codec.encode(message, FRAME_HEADER_BYTES);
  writeFrameHeader(bytes, type, requestId);
  return bytes;
}

/** Sends `bytes`, expects to be dropped with `kind` counted, and the server to answer others as before. */
async function expectDropped(t: ExecutionContext, bytes: Buffer, kind: string): Promise<Buffer> {
  const env = testEnvironment();
  const { server, endpoint } = await startServer(t, env);
  const raw = await rawConnection(t, endpoint.port);
  raw.socket.write(bytes);
  const received = await raw.closed;
  t.is(env.counts.get(`meshcache_rpc_errors_total ${kind}`), 1, kind);
  t.deepEqual(await newClient(t).call(endpoint, 'echo', { still: 'here' }), { still: 'here' });
  await until(() => server.stats().connections === 1);
  return received;
}

test('rpc: a connection that begins with anything but the hello is closed without a word', async (t) => {
  const received = await expectDropped(t, Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n'), 'bad_hello');
  t.is(received.length, 0);
});

test('rpc: another version of the protocol is refused', async (t) => {
  const hello = encodeHello();
  hello[4] = 99;
  await expectDropped(t, hello, 'bad_version');
});

test('rpc: flags of the hello that are not known are refused', async (t) => {
  const hello = encodeHello();
  hello[6] = 2;
  await expectDropped(t, hello, 'bad_version');
});

test('rpc: an oversized frame is refused at its header', async (t) => {
  const header = Buffer.alloc(FRAME_HEADER_BYTES);
  header.writeUInt32LE(RPC_FRAME_MAX_BYTES + 1, 0);
  header[8] = FrameType.call;
  await expectDropped(t, Buffer.concat([encodeHello(), header]), 'oversized');
});

test('rpc: a frame of an unknown type is refused', async (t) => {
  await expectDropped(t, Buffer.concat([encodeHello(), Buffer.alloc(FRAME_HEADER_BYTES)]), 'bad_frame');
});

test('rpc: a server’s frame sent to a server is refused', async (t) => {
  await expectDropped(t, Buffer.concat([encodeHello(), frame(FrameType.answer, 1, {})]), 'bad_frame');
});

test('rpc: a request id in use is refused', async (t) => {
  const env = testEnvironment();
  const { server, endpoint } = await startServer(t, env);
  server.handle('never', () => new Promise(() => {}));
  const raw = await rawConnection(t, endpoint.port);
  raw.socket.write(Buffer.concat([encodeHello(), frame(1, 5, ['never', {}]), frame(1, 5, ['never', {}])]));
  await raw.closed;
  t.is(server.stats().errors.bad_frame, 1);
});

test('rpc: malformed messages are refused', async (t) => {
  const bad = [Buffer.from([0xc1]), Buffer.from([0x92, 0xa1]), Buffer.alloc(0), Buffer.from([0xd4, 0x72, 0x40])];
  for (const message of bad) {
    const bytes = Buffer.concat([Buffer.alloc(FRAME_HEADER_BYTES), message]);
    writeFrameHeader(bytes, FrameType.call, 1);
    await expectDropped(t, Buffer.concat([encodeHello(), bytes]), 'bad_message');
  }
  for (const message of [null, 7, {}, ['echo'], [1, {}], ['echo', {}, 3]]) {
    await expectDropped(t, Buffer.concat([encodeHello(), frame(FrameType.call, 1, message)]), 'bad_message');
  }
});

test('rpc: a frame that is broken off is counted', async (t) => {
  const env = testEnvironment();
  const { server, endpoint } = await startServer(t, env);
  const raw = await rawConnection(t, endpoint.port);
  const bytes = Buffer.concat([encodeHello(), frame(FrameType.call, 1, ['echo', { text: 'x'.repeat(1000) }])]);
  raw.socket.end(bytes.subarray(0, bytes.length - 1));
  await raw.closed;
  await until(() => server.stats().errors.truncated === 1);
  t.is(server.stats().connections, 0);
});

test('rpc: random bytes end the connection and nothing else', async (t) => {
  const seed = systemRandom.u32();
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const env = testEnvironment();
  const { server, endpoint } = await startServer(t, env);
  for (let i = 0; i < 60; i++) {
    const raw = await rawConnection(t, endpoint.port);
    const garbage = Buffer.from(random.bytes(HELLO_BYTES + (random.u32() % 3000)));
    raw.socket.end(i % 2 === 0 ? garbage : Buffer.concat([encodeHello(), garbage]));
    await raw.closed;
  }
  await until(() => server.stats().connections === 0);
  const counted = Object.values(server.stats().errors).reduce((sum, count) => sum + (count ?? 0), 0);
  t.true(counted >= 60, `${counted} counted, seed ${seed}`);
  t.deepEqual(await newClient(t).call(endpoint, 'echo', { still: 'here' }), { still: 'here' });
});

test('rpc: a connection without a hello is closed in time', async (t) => {
  const clock = new ManualClock();
  const env = testEnvironment({ clock });
  const { server, endpoint } = await startServer(t, env);
  const raw = await rawConnection(t, endpoint.port);
  raw.socket.write(encodeHello().subarray(0, 5));
  await until(() => server.stats().connections === 1);
  clock.advance(RPC_HANDSHAKE_TIMEOUT_MS);
  await raw.closed;
  t.is(server.stats().errors.handshake_timeout, 1);
});

test('rpc: a peer that does not read its answers is dropped at a bounded number of bytes', async (t) => {
  const env = testEnvironment();
  const { server, endpoint } = await startServer(t, env);
  const answer = { bytes: new Uint8Array(2 ** 20) };
  server.handle('large', () => answer);
  const raw = await rawConnection(t, endpoint.port);
  raw.socket.pause();
  const calls = Array.from({ length: 200 }, (_, i) => frame(FrameType.call, i, ['large', {}]));
  raw.socket.write(Buffer.concat([encodeHello(), ...calls]));
  await until(() => server.stats().errors.slow_peer === 1);
  t.true(server.stats().bufferedBytes <= RPC_BUFFERED_MAX_BYTES + 2 ** 21);
  t.deepEqual(await newClient(t).call(endpoint, 'echo', {}), {});
});

test('rpc: a peer that stops reading is not listened to, and dropped when it takes nothing for long', async (t) => {
  const clock = new ManualClock();
  const env = testEnvironment({ clock });
  const { server, endpoint } = await startServer(t, env);
  const answer = { bytes: new Uint8Array(12 * 2 ** 20) };
  server.handle('large', () => answer);
  const raw = await rawConnection(t, endpoint.port);
  raw.socket.pause();
  raw.socket.write(Buffer.concat([encodeHello(), frame(FrameType.call, 1, ['large', {}])]));
  await until(() => server.stats().bufferedBytes > 2 ** 20);
  raw.socket.write(frame(FrameType.call, 2, ['large', {}]));
  await until(() => {
    clock.advance(1_000);
    return server.stats().errors.slow_peer === 1;
  });
  t.is(server.stats().calls, 1);
});

test('rpc: frames are found however the stream is cut', (t) => {
  const stream = Buffer.concat([
    encodeHello(),
    frame(FrameType.call, 1, ['a', {}]),
    frame(FrameType.call, 2, ['b', { text: 'y'.repeat(700) }]),
    frame(FrameType.cancel, 2, null),
  ]);
  for (let cut = 1; cut <= 40; cut++) {
    const seen: unknown[] = [];
    const reader = new FrameReader({
      opening: () => {
        seen.push('hello');
        return 0;
      },
      frame: ({ type, requestId, message }) => seen.push([type, requestId, codec.decode(message)]),
    });
    for (let at = 0; at < stream.length; at += cut) reader.push(Buffer.from(stream.subarray(at, at + cut)));
    t.deepEqual(
      seen,
      ['hello', [1, 1, ['a', {}]], [1, 2, ['b', { text: 'y'.repeat(700) }]], [4, 2, null]],
      `pieces of ${cut} bytes`,
    );
    t.false(reader.isWithinFrame);
  }
});
