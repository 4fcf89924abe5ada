import test from 'ava';
import { withOverTold } from '../../src/cli/sim/trace-over.js';

const all = { overTold: 1, toldWrong: 0 };

/** Requests of a session with these pages. */
const requests = (...given: readonly (readonly [session: number | undefined, ...hashIds: number[]])[]) =>
  given.map(([session, ...hashIds], i) => ({ timestampMs: i, hashIds, session }));

const overOf = (...args: Parameters<typeof withOverTold>) => withOverTold(...args).map(({ overIds }) => overIds);

test('trace over: a session leaves pages behind, and ends with its last request', (t) => {
  const trace = requests([1, 1, 2, 3, 4], [1, 1, 2, 5], [1, 1, 2, 5, 6]);
  t.deepEqual(overOf(trace, all), [undefined, [3, 4], [1, 2, 3, 4, 5, 6]]);
});

test('trace over: pages of several sessions are never over', (t) => {
  const trace = requests([1, 1, 2, 3], [2, 1, 4], [1, 1, 2, 3, 5], [2, 1, 6]);
  t.deepEqual(overOf(trace, all), [undefined, undefined, [2, 3, 5], [4, 4, 6]]);
});

test('trace over: without sessions, a conversation ends with the last use of its last two pages', (t) => {
  const trace = requests([undefined, 1, 2, 3], [undefined, 1, 2, 3, 4], [undefined, 1, 7]);
  t.deepEqual(overOf(trace, all), [undefined, [2, 3, 4], [7]]);
});

test('trace over: nobody tells, or a part does, or all are wrong', (t) => {
  const trace = requests(...Array.from({ length: 1000 }, (_, i) => [i, 10 * i, 10 * i + 1] as const));
  t.deepEqual(withOverTold(trace, { overTold: 0, toldWrong: 0 }), trace);
  const told = overOf(trace, { overTold: 0.5, toldWrong: 0 }).filter((over) => over !== undefined).length;
  t.true(told > 400 && told < 600, `${told}`);
  t.deepEqual(new Set(overOf(trace, { overTold: 1, toldWrong: 1 })), new Set([undefined]));
  const going = requests([1, 1], [1, 1, 2]);
  t.deepEqual(overOf(going, { overTold: 1, toldWrong: 1 }), [[1], undefined]);
});
