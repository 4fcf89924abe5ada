import test from 'ava';
import { WorkTurns } from '../../src/base/concurrency/work-turns.js';
import { InvariantError } from '../../src/base/errors.js';
import { CLIENTS_TURN_MS } from '../../src/base/limits.js';
import { ManualClock } from '../_support/clock.js';
import { lose } from '../_support/planted.js';

const of = (one: string, group = 'user') => ({ one, group });

/** Turns on a clock, on which each piece of work takes so long, and what was done in which order. */
function turnsOf(workMs: number): {
  turns: WorkTurns;
  clock: ManualClock;
  done: string[];
  work(name: string): () => void;
} {
  const clock = new ManualClock();
  const done: string[] = [];
  const work = (name: string) => () => {
    done.push(name);
    clock.advance(workMs);
  };
  return { turns: new WorkTurns(clock), clock, done, work };
}

test('work turns: work is done at once while a turn has time, and what comes then waits for the next one', async (t) => {
  const { turns, clock, done, work } = turnsOf(CLIENTS_TURN_MS / 2);
  for (const name of ['a', 'b', 'c']) turns.run(of('one'), work(name));
  t.deepEqual(done, ['a', 'b']);
  await clock.yield();
  await clock.yield();
  t.deepEqual(done, ['a', 'b', 'c']);
  turns.run(of('one'), work('d'));
  t.deepEqual(done, ['a', 'b', 'c', 'd'], 'nothing waits');
});

test('work turns: however much one has waiting, another one waits for one piece of it', async (t) => {
  const { turns, clock, done, work } = turnsOf(CLIENTS_TURN_MS);
  for (let i = 0; i < 5; i++) turns.run(of('greedy'), work('greedy'));
  turns.run(of('modest'), work('modest'));
  for (let i = 0; i < 3; i++) await clock.yield();
  t.is(done.indexOf('modest'), 1, done.join(' '));
  for (let i = 0; i < 6; i++) await clock.yield();
  t.is(done.length, 6);
  turns.verify();
});

test('work turns: a user with many processes has the turns of one', async (t) => {
  const { turns, clock, done, work } = turnsOf(CLIENTS_TURN_MS);
  for (let i = 0; i < 8; i++) turns.run(of(`process ${i}`, 'greedy'), work(`greedy ${i}`));
  turns.run(of('process 9', 'modest'), work('modest'));
  for (let i = 0; i < 3; i++) await clock.yield();
  t.is(done.indexOf('modest'), 1, done.join(' '));
});

test('work turns: who comes later has no more time than who has worked for long', async (t) => {
  // Cause: what one had used over a second counted against it, and somebody new went first for as long.
  const { turns, clock, done, work } = turnsOf(CLIENTS_TURN_MS);
  for (let i = 0; i < 100; i++) {
    turns.run(of('old'), work('old'));
    await clock.yield();
  }
  done.length = 0;
  for (let i = 0; i < 20; i++) {
    turns.run(of('new'), work('new'));
    turns.run(of('old'), work('old'));
  }
  for (let i = 0; i < 30; i++) await clock.yield();
  t.true(done.indexOf('old') <= 6, done.join(' '));
  t.is(done.slice(0, 30).filter((name) => name === 'old').length >= 12, true, done.join(' '));
});

test('work turns: who pauses in between comes first, whoever else has work without an end', async (t) => {
  const { turns, clock, done, work } = turnsOf(CLIENTS_TURN_MS);
  for (let i = 0; i < 200; i++) turns.run(of(`greedy ${i % 3}`), work('greedy'));
  for (let i = 0; i < 10; i++) {
    for (let j = 0; j < 3; j++) await clock.yield();
    const at = done.length;
    turns.run(of('modest'), work('modest'));
    await clock.yield();
    await clock.yield();
    t.true(done.indexOf('modest', at) <= at + 1, done.slice(at).join(' '));
  }
});

test('work turns: who is not heard of any more is forgotten', async (t) => {
  const { turns, clock, work } = turnsOf(CLIENTS_TURN_MS);
  const kept = new Set<Map<unknown, unknown>>();
  const { set } = Map.prototype;
  Map.prototype.set = function (this: Map<unknown, unknown>, ...args: Parameters<typeof set>) {
    kept.add(this);
    return set.apply(this, args);
  };
  t.teardown(() => {
    Map.prototype.set = set;
  });
  for (let i = 0; i < 2_000; i++) {
    turns.run(of(`process ${i}`, `user ${i % 1000}`), work('work'));
    await clock.yield();
  }
  t.true([...kept].every(({ size }) => size <= 400));
});

test('work turns: longer work goes on at once while there is time, and one step in a turn after that', async (t) => {
  const { turns, clock, done, work } = turnsOf(CLIENTS_TURN_MS);
  t.is(turns.goOn(of('one')), undefined);
  const long = async (name: string): Promise<void> => {
    for (let step = 0; step < 3; step++) {
      await turns.goOn(of(name));
      work(`${name} ${step}`)();
    }
  };
  const ended = Promise.all([long('a'), long('b')]);
  await clock.yield();
  t.true(done.length <= 3, done.join(' '));
  for (let i = 0; i < 10; i++) await clock.yield();
  await ended;
  t.deepEqual(
    done.map((step) => step.split(' ')[1]),
    ['0', '0', '1', '1', '2', '2'],
  );
});

test('work turns: among many that wait, who has used nothing yet is next', async (t) => {
  // Cause: only the first 16 that waited were looked at, and a connection waited for a piece of each of 300 others of
  // its address.
  const { turns, clock, done, work } = turnsOf(CLIENTS_TURN_MS);
  for (let round = 0; round < 3; round++) for (let i = 0; i < 300; i++) turns.run(of(`greedy ${i}`), work('greedy'));
  for (let i = 0; i < 500; i++) await clock.yield();
  turns.verify();
  const at = done.length;
  turns.run(of('modest'), work('modest'));
  for (let i = 0; i < 3; i++) await clock.yield();
  t.true(done.indexOf('modest') <= at + 1, done.slice(at).join(' '));
  turns.verify();
});

test('work turns: the accounting is right while a step is being worked on, and more of it waits', async (t) => {
  // Cause: whoever uses the loop is in no order until its time is counted, and was said to wait without work.
  const { turns, clock } = turnsOf(CLIENTS_TURN_MS);
  turns.run(of('other'), () => clock.advance(CLIENTS_TURN_MS));
  let steps = 0;
  for (let i = 0; i < 2; i++) {
    void turns.goOn(of('one'))?.then(() => {
      steps++;
      turns.verify();
    });
  }
  for (let i = 0; i < 4; i++) await clock.yield();
  t.is(steps, 2);
  turns.verify();
});

test('work turns: a sharer that waits without work is found', async (t) => {
  const { turns, clock, work } = turnsOf(CLIENTS_TURN_MS);
  turns.run(of('one'), work('a'));
  turns.run(of('planted sharer'), work('b'));
  turns.verify();
  const found = lose(Map.prototype, 'delete', { when: (_, [key]) => key === 'planted sharer' });
  for (let i = 0; i < 2; i++) await clock.yield();
  found();
  t.throws(() => turns.verify(), { instanceOf: InvariantError, message: 'work turns: user waits without work' });
});
