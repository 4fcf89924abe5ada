import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import test, { type ExecutionContext } from 'ava';
import { WorkTurns } from '../../src/base/concurrency/work-turns.js';
import { CLIENTS_TURN_MS } from '../../src/base/limits.js';
import { PacedStream } from '../../src/net/paced-stream.js';
import { ManualClock } from '../_support/clock.js';
import { listenAlone, until } from '../_support/support.js';

const PIECE_BYTES = 100;

/** A connection of this process to itself, whose accepted side is paced. */
async function pair(t: ExecutionContext, turns: WorkTurns): Promise<{ stream: PacedStream; peer: Socket }> {
  const server = createServer({ allowHalfOpen: true });
  t.teardown(() => server.close());
  const peer = connect(await listenAlone(server), '127.0.0.1');
  t.teardown(() => peer.destroy());
  const [socket] = (await once(server, 'connection')) as [Socket];
  const stream = new PacedStream(socket, { turns, sharer: { one: 'a', group: 'g' }, pieceBytes: PIECE_BYTES });
  t.teardown(() => stream.destroy());
  return { stream, peer };
}

test('paced stream: what has come is handed out in pieces, one in each turn that others need', async (t) => {
  const clock = new ManualClock();
  const turns = new WorkTurns(clock);
  const { stream, peer } = await pair(t, turns);
  const pieces: Buffer[] = [];
  const order: string[] = [];
  let hasEnded = false;
  stream.on('data', (bytes: Buffer) => {
    pieces.push(bytes);
    order.push('piece');
    if (pieces.length === 1) turns.run({ one: 'b', group: 'g' }, () => order.push('other'));
    clock.advance(CLIENTS_TURN_MS);
  });
  stream.on('end', () => {
    hasEnded = true;
  });
  const bytes = Buffer.from(Array.from({ length: 10 * PIECE_BYTES + 5 }, (_, i) => i % 251));
  peer.end(bytes);
  await until(() => hasEnded);
  t.deepEqual(Buffer.concat(pieces), bytes);
  t.true(pieces.every(({ length }) => length <= PIECE_BYTES));
  t.true(order.indexOf('other') <= 2, 'another one waits for a piece or two, not for all');
  stream.end('answer');
  t.is(String(Buffer.concat(await peer.toArray())), 'answer');
});

test('paced stream: a reader that pauses gets no more, and then one piece after the other', async (t) => {
  const { stream, peer } = await pair(t, new WorkTurns(new ManualClock()));
  const pieces: number[] = [];
  stream.on('data', ({ length }: Buffer) => {
    pieces.push(length);
    stream.pause();
  });
  peer.write(Buffer.alloc(5 * PIECE_BYTES));
  for (let count = 1; count <= 5; count++) {
    await until(() => pieces.length === count);
    for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
    t.is(pieces.length, count);
    stream.resume();
  }
  t.true(pieces.every((length) => length <= PIECE_BYTES));
});

test('paced stream: what is written arrives, however slowly it is read, and the end of one side is that of the other', async (t) => {
  const { stream, peer } = await pair(t, new WorkTurns(new ManualClock()));
  stream.resume();
  const bytes = Buffer.alloc(8 * 2 ** 20, 7);
  for (let at = 0; at < bytes.length; at += 2 ** 20) stream.write(bytes.subarray(at, at + 2 ** 20));
  stream.destroySoon();
  const received = Buffer.concat(await peer.toArray());
  t.true(received.equals(bytes));
  await until(() => stream.destroyed);

  const other = await pair(t, new WorkTurns(new ManualClock()));
  other.stream.on('error', () => {});
  other.peer.resetAndDestroy();
  await until(() => other.stream.destroyed);
});
