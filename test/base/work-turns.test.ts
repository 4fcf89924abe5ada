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
  t.is(done.indexOf('modest'), 2, done.join(' '));
  for (let i = 0; i < 6; i++) await clock.yield();
  t.is(done.length, 6);
  turns.verify();
});

test('work turns: a user with many processes has the turns of one', async (t) => {
  const { turns, clock, done, work } = turnsOf(CLIENTS_TURN_MS);
  for (let i = 0; i < 8; i++) turns.run(of(`process ${i}`, 'greedy'), work(`greedy ${i}`));
  turns.run(of('process 9', 'modest'), work('modest'));
  for (let i = 0; i < 3; i++) await clock.yield();
  t.is(done.indexOf('modest'), 2, done.join(' '));
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
