import test from 'ava';
import { FairTurns } from '../../src/base/concurrency/fair-turns.js';
import { FAIR_TURN_MS } from '../../src/base/limits.js';
import { ManualClock } from '../_support/clock.js';

/** Whether `work` resolves before the event loop has had its turn. */
async function isImmediate(work: Promise<unknown>): Promise<boolean> {
  const later = new Promise<boolean>((resolve) => setImmediate(() => resolve(false)));
  return Promise.race([work.then(() => true), later]);
}

test('fair turns: calls that take less than the interval together do not wait', async (t) => {
  const turns = new FairTurns(new ManualClock());
  for (let i = 0; i < 1000; i++) t.is(await turns.run(() => i), i);
  t.true(await isImmediate(turns.run(async () => {})));
});

test('fair turns: a call that ends after the interval waits for the turn of the event loop, once', async (t) => {
  const clock = new ManualClock();
  const turns = new FairTurns(clock);
  let hadTurn = false;
  setImmediate(() => {
    hadTurn = true;
  });
  await turns.run(() => {});
  clock.advance(FAIR_TURN_MS);
  await turns.run(() => {});
  t.true(hadTurn);
  t.true(await isImmediate(turns.run(() => {})));
});

test('fair turns: a call that has waited for the event loop itself does not wait again', async (t) => {
  const clock = new ManualClock();
  const turns = new FairTurns(clock);
  const call = turns.run(async () => {
    clock.advance(5 * FAIR_TURN_MS);
    await new Promise((resolve) => setImmediate(resolve));
  });
  let isOver = false;
  void call.then(() => {
    isOver = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  for (let i = 0; i < 16; i++) await Promise.resolve();
  t.true(isOver);
});

test('fair turns: a call that throws lets the event loop have its turn as well, and its error through', async (t) => {
  const clock = new ManualClock();
  const turns = new FairTurns(clock);
  let hadTurn = false;
  setImmediate(() => {
    hadTurn = true;
  });
  const failing = turns.run(() => {
    clock.advance(FAIR_TURN_MS);
    throw new Error('wrong');
  });
  await t.throwsAsync(failing, { message: 'wrong' });
  t.true(hadTurn);
});
