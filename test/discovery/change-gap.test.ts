import test from 'ava';
import { ChangeGap } from '../../src/discovery/timing.js';

/** When it is acted on when a change comes every `everyMs`. */
function actsOf(gap: ChangeGap, { members, everyMs, untilMs }: Record<'members' | 'everyMs' | 'untilMs', number>) {
  const times: number[] = [];
  let dueMs: number | undefined;
  for (let nowMs = 0; nowMs <= untilMs; nowMs++) {
    if (nowMs % everyMs === 0 && dueMs === undefined) dueMs = nowMs + gap.plan(nowMs, members);
    if (dueMs === undefined || nowMs < dueMs) continue;
    // A timer of a busy machine is a little late.
    gap.acted(nowMs + 1);
    times.push(nowMs);
    dueMs = undefined;
  }
  return times;
}

test('change gap: a change after a quiet time is acted on at once', (t) => {
  const gap = new ChangeGap();
  t.is(gap.plan(0, 1000), 0);
  gap.acted(0);
  t.is(gap.plan(10_000, 1000), 0);
});

test('change gap: of a storm of a thousand nodes that lasts twenty seconds there are a few dozen steps, none a second late', (t) => {
  const times = actsOf(new ChangeGap(), { members: 1000, everyMs: 20, untilMs: 20_000 });
  t.true(times.length < 30, `${times.length} steps`);
  const gaps = times.slice(1).map((time, i) => time - (times[i] as number));
  t.true(Math.max(...gaps) < 1_100, gaps.join());
  t.true(Math.min(...gaps) >= 120, gaps.join());
});

test('change gap: few members hear of every change within a tenth of a second', (t) => {
  const times = actsOf(new ChangeGap(), { members: 5, everyMs: 10, untilMs: 2_000 });
  const gaps = times.slice(1).map((time, i) => time - (times[i] as number));
  t.true(Math.max(...gaps) <= 100, gaps.join());
});
