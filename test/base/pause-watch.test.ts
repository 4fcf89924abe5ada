import test from 'ava';
import { PauseWatch } from '../../src/base/concurrency/pause-watch.js';
import { ManualClock } from '../_support/clock.js';

test('pause watch: what is read was sent now while the process runs', (t) => {
  const clock = new ManualClock();
  const watch = new PauseWatch(clock);
  for (let i = 0; i < 50; i++) {
    clock.advance(90);
    t.is(watch.sentAfterMs(), clock.nowMs());
  }
  watch.close();
  t.is(clock.pendingCount, 0);
});

test('pause watch: a process that is busy for long has not paused', (t) => {
  const clock = Object.assign(new ManualClock(), { worked: 0, workedMs: () => clock.worked });
  const watch = new PauseWatch(clock);
  clock.worked += 3_000;
  clock.stall(4_000);
  t.is(watch.sentAfterMs(), clock.nowMs());
  const sinceMs = clock.nowMs();
  clock.worked += 300;
  clock.stall(4_000);
  t.is(watch.sentAfterMs(), sinceMs);
});

test('pause watch: what is read after a pause may have been sent since it began, before and after the timers have run', (t) => {
  const clock = new ManualClock();
  const watch = new PauseWatch(clock);
  clock.advance(1_000);
  const sinceMs = clock.nowMs();
  clock.stall(0);
  t.is(watch.sentAfterMs(), sinceMs);
  // Timers have their turn before what came meanwhile is read.
  clock.stall(7_000);
  t.is(watch.sentAfterMs(), sinceMs);
  clock.advance(900);
  t.is(watch.sentAfterMs(), sinceMs);
  // By then everything has been read.
  clock.advance(200);
  t.is(watch.sentAfterMs(), clock.nowMs());
});
