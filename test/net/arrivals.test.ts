import test from 'ava';
import { WorkTurns } from '../../src/base/concurrency/work-turns.js';
import { CLIENTS_TURN_MS, RECEIVING_PIECE_BYTES } from '../../src/base/limits.js';
import { Arrivals } from '../../src/net/arrivals.js';
import { ManualClock } from '../_support/clock.js';

test('arrivals: what has come is taken in pieces and in order, and what waits is told', async (t) => {
  const clock = new ManualClock();
  const taken: Buffer[] = [];
  const sentAfterMs: number[] = [];
  const told: boolean[] = [];
  const arrivals: Arrivals = new Arrivals({
    turns: new WorkTurns(clock),
    sharer: { one: 'process', group: 'user' },
    pauses: { sentAfterMs: () => clock.nowMs() },
    receive: (bytes) => {
      taken.push(bytes);
      sentAfterMs.push(arrivals.sentAfterMs);
      clock.advance(CLIENTS_TURN_MS);
    },
    onWaiting: () => told.push(arrivals.isWaiting),
  });
  const bytes = Buffer.from(Array.from({ length: 3 * RECEIVING_PIECE_BYTES + 5 }, (_, i) => i % 251));
  const cameMs = clock.nowMs();
  arrivals.add(bytes);
  t.deepEqual(
    taken.map(({ length }) => length),
    [RECEIVING_PIECE_BYTES],
  );
  t.deepEqual(told, [true], 'nothing more is to be read');
  arrivals.add(Buffer.from('end'));
  for (let i = 0; i < 8; i++) await clock.yield();
  t.deepEqual(Buffer.concat(taken), Buffer.concat([bytes, Buffer.from('end')]));
  t.deepEqual(told, [true, false]);
  t.deepEqual(sentAfterMs, [cameMs, cameMs, cameMs, cameMs, cameMs + CLIENTS_TURN_MS], 'as it was when it came');
  arrivals.add(Buffer.from('at once'));
  t.is(taken.at(-1)?.toString(), 'at once');
});

test('arrivals: what waits on a connection that has ended is dropped', async (t) => {
  const clock = new ManualClock();
  const taken: Buffer[] = [];
  const arrivals = new Arrivals({
    turns: new WorkTurns(clock),
    sharer: { one: 'process', group: 'user' },
    pauses: { sentAfterMs: () => 0 },
    receive: (bytes) => {
      taken.push(bytes);
      clock.advance(CLIENTS_TURN_MS);
    },
    onWaiting: () => {},
  });
  arrivals.add(Buffer.alloc(2 * RECEIVING_PIECE_BYTES));
  arrivals.stop();
  for (let i = 0; i < 4; i++) await clock.yield();
  t.is(taken.length, 1);
});

test('arrivals: bytes that are lent are copied if they wait', async (t) => {
  const clock = new ManualClock();
  const taken: Buffer[] = [];
  const arrivals = new Arrivals({
    turns: new WorkTurns(clock),
    sharer: { one: 'process', group: 'user' },
    pauses: { sentAfterMs: () => 0 },
    areLent: true,
    receive: (bytes) => {
      taken.push(Buffer.from(bytes));
      clock.advance(CLIENTS_TURN_MS);
    },
    onWaiting: () => {},
  });
  const lent = Buffer.alloc(2 * RECEIVING_PIECE_BYTES + 3, 'a');
  arrivals.add(lent);
  lent.fill('x');
  const further = Buffer.from('further');
  arrivals.add(further);
  further.fill('x');
  for (let i = 0; i < 8; i++) await clock.yield();
  t.is(Buffer.concat(taken).toString(), `${'a'.repeat(lent.length)}further`);
});
