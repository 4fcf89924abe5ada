import test from 'ava';
import { SparseLog } from '../../src/base/environment/sparse-log.js';
import { LOG_KINDS_MAX_COUNT, LOG_LINE_INTERVAL_MS } from '../../src/base/limits.js';
import { ManualClock } from '../_support/clock.js';

function newLog() {
  const clock = new ManualClock();
  const lines: unknown[] = [];
  const log = new SparseLog({ clock, log: { log: (...line) => void lines.push(line) } });
  return { clock, log, take: () => lines.splice(0) };
}

test('sparse log: one line for each kind and ten seconds, with the number of those left out', (t) => {
  const { clock, log, take } = newLog();
  for (let i = 0; i < 1000; i++) log.log('warn', 'refused', { i }, 'a');
  log.log('warn', 'refused', { i: 7 }, 'b');
  log.log('info', 'ended', { i: 8 }, 'b');
  t.deepEqual(take(), [
    ['warn', 'refused', { i: 0, more_like_it: undefined }],
    ['warn', 'refused', { i: 7, more_like_it: undefined }],
    ['info', 'ended', { i: 8, more_like_it: undefined }],
  ]);
  clock.advance(LOG_LINE_INTERVAL_MS - 1);
  log.log('warn', 'refused', { i: 1 }, 'a');
  t.deepEqual(take(), []);
  clock.advance(1);
  log.log('warn', 'refused', { i: 2 }, 'a');
  t.deepEqual(take(), [['warn', 'refused', { i: 2, more_like_it: 1000 }]]);
});

test('sparse log: kinds that somebody makes up are one kind beyond a number, until the first ones are old', (t) => {
  const { clock, log, take } = newLog();
  for (let i = 0; i < 10_000; i++) log.log('info', 'attached', {}, `name-${i}`);
  t.is(take().length, LOG_KINDS_MAX_COUNT + 1);
  clock.advance(LOG_LINE_INTERVAL_MS);
  log.log('info', 'attached', {}, 'another');
  t.is(take().length, 1);
});
