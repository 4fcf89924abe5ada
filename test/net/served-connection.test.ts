import test from 'ava';
import { WorkTurns } from '../../src/base/concurrency/work-turns.js';
import { InvariantError } from '../../src/base/errors.js';
import { CLIENTS_TURN_MS, RECEIVING_MIN_BYTES_PER_S, RECEIVING_PIECE_BYTES } from '../../src/base/limits.js';
import { SERVED_EVENTS, SERVED_STATES, STEPS_FROM } from '../../src/net/served/connection-states.js';
import { ServedConnections } from '../../src/net/served/served-connections.js';
import { ManualClock } from '../_support/clock.js';
import { PlainProtocol, SERVED_LIMITS, servedByItself } from '../_support/net/served.js';
import { assertFound } from '../_support/planted.js';
import { MemorySocket, turn } from '../fuzz/memory-socket.js';

const { greetingTimeoutMs, stallTimeoutMs, receivingWindowMs } = SERVED_LIMITS;
/** What is left of bytes in a socket that takes nothing. */
const SOME = Buffer.alloc(100);

test('served connection: its table leads on only, to its end from everywhere, and closing is always allowed', (t) => {
  for (const [i, state] of SERVED_STATES.entries()) {
    const steps = STEPS_FROM[state];
    const next = SERVED_EVENTS.map((event) => steps[event]).filter((step) => SERVED_STATES.includes(step as never));
    for (const step of next) t.true(SERVED_STATES.indexOf(step as never) > i, `${state} leads back to ${step}`);
    t.is(next.length > 0, state !== 'ended', `${state} leads nowhere, or the end does`);
    const isOver = state === 'closed' || state === 'ended';
    for (const event of ['close', 'gone', 'failed'] as const) t.is(steps[event], isOver ? 'ignored' : 'closed');
    t.is(steps.received, i < 3 ? 'told' : 'ignored');
    t.is(steps.slow, i < 3 ? 'told' : 'never');
  }
  t.deepEqual(
    SERVED_STATES.map((state) => STEPS_FROM[state].idle),
    ['ignored', 'ignored', 'ignored', 'ending', 'ignored', 'ended', 'never'],
  );
  t.deepEqual(
    SERVED_STATES.map((state) => STEPS_FROM[state].late),
    ['closed', 'never', 'never', 'never', 'never', 'never', 'never'],
  );
});

test('served connection: an event that its state does not allow ends the connection, not the node, and is told', (t) => {
  const { served, connections } = servedByItself();
  served.greeted();
  connections.verify('door');
  served.greeted();
  t.deepEqual([served.state, served.reason], ['ended', 'a mistake of this node: greeted while opening']);
  t.throws(() => connections.verify('door'), { message: 'door: greeted while opening' });
});

test('served connection: a peer that does not greet in time is closed, one that has greeted is not', (t) => {
  const silent = servedByItself();
  silent.clock.advance(greetingTimeoutMs - 1);
  t.is(silent.served.state, 'greeting');
  silent.clock.advance(1);
  t.deepEqual(silent.protocol.told, ['late: closed', 'idle: ended']);
  t.is(silent.served.reason, 'late');
  t.true(silent.socket.destroyed);
  const { served, clock, connections } = servedByItself();
  served.greeted();
  clock.advance(10 * greetingTimeoutMs);
  t.is(served.state, 'opening');
  t.deepEqual(connections.accepted(), []);
  served.opened();
  t.deepEqual([served.state, connections.accepted().length, clock.pendingCount], ['open', 1, 0]);
});

test('served connection: finishing waits for what is in progress, says the last word, and ends once', async (t) => {
  const { served, protocol, socket, connections } = servedByItself();
  protocol.onEntered = (state) => state === 'ending' && socket.write('bye');
  served.opened();
  served.begin(10);
  served.hold();
  served.finish('asked');
  socket.emit('data', SOME);
  t.is(protocol.receivedBytes.length, 0, 'nothing more is received');
  served.settle(10);
  t.is(served.state, 'finishing');
  served.letGo();
  t.is(served.state, 'ending');
  await turn();
  await turn();
  t.is(socket.sent.toString(), 'bye');
  t.deepEqual(protocol.told, ['opened: open', 'finish: finishing', 'idle: ending', 'sent: closed', 'idle: ended']);
  t.is(served.reason, 'asked');
  for (const again of [() => served.close(''), () => served.finish(''), () => served.end('')]) again();
  t.deepEqual([protocol.told.length, connections.unendedCount], [5, 0]);
});

test('served connection: one that is closed ends when nothing is in progress any more', async (t) => {
  const { served, protocol, connections, clock } = servedByItself();
  served.opened();
  served.begin(5);
  let hasEnded = false;
  void served.whenEnded().then(() => {
    hasEnded = true;
  });
  served.close('asked');
  await turn();
  t.deepEqual([served.state, connections.size, connections.unendedCount, hasEnded], ['closed', 0, 1, false]);
  t.is(connections.inFlightCount, 1);
  served.settle(5);
  await turn();
  t.deepEqual([served.state, connections.unendedCount, hasEnded], ['ended', 0, true]);
  await served.whenEnded();
  t.deepEqual(protocol.told, ['opened: open', 'close: closed', 'idle: ended']);
  t.is(clock.pendingCount, 0);
});

test('served connection: a peer that takes nothing is closed, one that takes a little is not', (t) => {
  const { served, socket, protocol, clock } = servedByItself();
  served.opened();
  socket.isStuck = true;
  for (let i = 0; i < 4; i++) socket.write(SOME);
  served.wrote();
  for (let i = 0; i < 3; i++) {
    clock.advance(stallTimeoutMs - 1);
    socket.takeOne();
    clock.advance(1);
    t.is(served.state, 'open', `after ${i + 1} windows`);
  }
  clock.advance(stallTimeoutMs);
  t.is(protocol.told[1], 'stuck: closed');
  t.is(served.reason, 'the client does not take its answers');
  t.is(served.takenBytes, 300);
});

test('served connection: a peer for which nothing waits may be silent, and one that does not take the end may not', (t) => {
  const { served, socket, clock } = servedByItself();
  served.opened();
  socket.isStuck = true;
  socket.write(SOME);
  served.wrote();
  socket.isStuck = false;
  socket.takeOne();
  clock.advance(100 * stallTimeoutMs);
  t.deepEqual([served.state, clock.pendingCount], ['open', 0]);
  socket.isStuck = true;
  socket.write(SOME);
  served.finish('asked');
  t.is(served.state, 'ending');
  clock.advance(stallTimeoutMs);
  t.is(served.state, 'ended');
});

test('served connection: output is watched above a bound, and too much of it ends the connection', (t) => {
  const limits = { watchedMinBytes: 150, outputMaxBytes: 350, allOutputMaxBytes: 1_000 };
  const { served, socket, protocol, clock } = servedByItself(limits);
  served.opened();
  socket.isStuck = true;
  const write = (): void => {
    socket.write(SOME);
    served.wrote();
  };
  write();
  t.is(clock.pendingCount, 0);
  protocol.mustWait = true;
  write();
  t.deepEqual([clock.pendingCount, socket.isPaused()], [1, true]);
  write();
  t.is(served.state, 'open');
  write();
  t.deepEqual(protocol.told, ['opened: open', 'flooded: closed', 'idle: ended']);
});

test('served connection: a message that has begun goes on at the least rate, unless this node has held it up', (t) => {
  const leastBytes = Math.ceil((RECEIVING_MIN_BYTES_PER_S * receivingWindowMs) / 1000);
  const { served, socket, protocol, clock } = servedByItself();
  served.opened();
  served.awaitAtRate();
  socket.emit('data', Buffer.alloc(leastBytes));
  clock.advance(receivingWindowMs);
  t.deepEqual(protocol.told, ['opened: open']);
  protocol.mustWait = true;
  served.updateReading();
  protocol.mustWait = false;
  served.updateReading();
  clock.advance(receivingWindowMs);
  t.deepEqual(protocol.told, ['opened: open'], 'it was held up for a moment');
  socket.emit('data', Buffer.alloc(leastBytes - 1));
  clock.advance(receivingWindowMs);
  t.deepEqual(protocol.told, ['opened: open', 'slow: rate']);
});

test('served connection: a message that must come whole has the time limit, and more while it is not read', (t) => {
  const { served, socket, protocol, clock } = servedByItself();
  served.opened();
  served.awaitWhole();
  protocol.mustWait = true;
  served.updateReading();
  clock.advance(stallTimeoutMs);
  protocol.mustWait = false;
  served.updateReading();
  clock.advance(stallTimeoutMs - 1);
  served.awaitWhole();
  socket.emit('data', SOME);
  t.deepEqual(protocol.told, ['opened: open'], 'bytes alone do not help');
  clock.advance(1);
  t.deepEqual(protocol.told, ['opened: open', 'slow: end']);
  served.awaitWhole();
  served.messageCame();
  t.is(clock.pendingCount, 0);
});

test('served connection: what comes waits for the turns of others, and is dropped when the connection is over', async (t) => {
  const clock = new ManualClock();
  const connections = new ServedConnections<PlainProtocol>(clock, SERVED_LIMITS, {
    turns: new WorkTurns(clock),
    pauses: { sentAfterMs: () => clock.nowMs() },
  });
  class Busy extends PlainProtocol {
    override received(bytes: Buffer): void {
      super.received(bytes);
      clock.advance(CLIENTS_TURN_MS);
    }
  }
  const peer = { origin: '', sharer: { one: 'a', group: 'g' } };
  const [one, other] = [new MemorySocket(), new MemorySocket()];
  const [busy, closed] = [new Busy(one, connections, peer), new Busy(other, connections, peer)];
  const cameMs = clock.nowMs();
  for (const socket of [one, other]) socket.emit('data', Buffer.alloc(RECEIVING_PIECE_BYTES + 1));
  t.deepEqual([busy.receivedBytes.length, closed.receivedBytes.length], [1, 0]);
  t.deepEqual([one.isPaused(), other.isPaused()], [true, true]);
  closed.served.close('asked');
  for (let i = 0; i < 4; i++) await turn();
  t.deepEqual([busy.receivedBytes.length, closed.receivedBytes.length], [2, 0]);
  t.deepEqual([one.isPaused(), busy.served.sentAfterMs], [false, cameMs]);
});

test('served connection: the bounds of what is in flight, of one and of all, and what each has in any case', (t) => {
  const limits = { allInFlightMaxCount: 5, allInFlightMaxBytes: 150, grantedCount: 1, grantedBytes: 10 };
  const { served, connections } = servedByItself(limits);
  served.begin(60);
  t.is(served.tooMuch(41), 'bytes');
  t.is(served.tooMuch(40), undefined);
  for (let i = 0; i < 3; i++) served.begin(0);
  t.is(served.tooMuch(0), 'count');
  const other = new PlainProtocol(new MemorySocket(), connections);
  connections.add(other);
  t.is(other.served.tooMuch(91), 'all');
  t.is(other.served.tooMuch(90), undefined);
  other.served.begin(90);
  const third = new PlainProtocol(new MemorySocket(), connections);
  connections.add(third);
  t.is(third.served.tooMuch(11), 'all');
  t.is(third.served.tooMuch(10), undefined, 'it has little');
  connections.verify('test');
});

test('served connections: of those that greet, a further one replaces the oldest of the origin that has most', (t) => {
  const { connections, protocol: first } = servedByItself();
  const [second, third] = ['a', 'a'].map((origin) => {
    const protocol = new PlainProtocol(new MemorySocket(), connections, { origin });
    connections.add(protocol);
    return protocol;
  }) as [PlainProtocol, PlainProtocol];
  t.deepEqual(second.told, ['replaced: closed', 'idle: ended']);
  t.deepEqual([first.served.state, third.served.state, second.served.reason], ['greeting', 'greeting', 'replaced']);
});

test('served connections: shutting down lets them finish, and closes those that take too long', async (t) => {
  const { connections, served, clock, protocol } = servedByItself();
  served.opened();
  served.begin(1);
  const quick = new PlainProtocol(new MemorySocket(), connections);
  connections.add(quick);
  let isDown = false;
  const down = connections.shutDown('closing', 1_000).then(() => {
    isDown = true;
  });
  await turn();
  await turn();
  t.deepEqual([quick.served.state, served.state], ['ended', 'finishing']);
  clock.advance(1_000);
  await turn();
  t.deepEqual([served.state, isDown], ['closed', false]);
  served.settle(1);
  await down;
  t.is(protocol.told.at(-1), 'idle: ended');
  await connections.shutDown('again', 1_000);
});

test('verify: served connections', async (t) => {
  const { connections, served } = servedByItself();
  served.opened();
  const whole = { verify: () => connections.verify('door') };
  await assertFound(t, whole, /door: requests in flight: 1 by what is kept, 0/, () => connections.count(1, 5));
  connections.count(-1, -5);
  t.throws(() => served.settle(1), {
    instanceOf: InvariantError,
    message: /served connection: in flight count: 1 given back of 0/,
  });
});
