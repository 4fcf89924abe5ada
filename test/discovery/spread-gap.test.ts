import test from 'ava';
import { SpreadGap } from '../../src/discovery/spread-gap.js';

/** Times of the spreads when a change comes every `everyMs`. */
function spreadsOf(gap: SpreadGap, { members, everyMs, untilMs }: Record<'members' | 'everyMs' | 'untilMs', number>) {
  const times: number[] = [];
  let dueMs: number | undefined;
  for (let nowMs = 0; nowMs <= untilMs; nowMs++) {
    if (nowMs % everyMs === 0 && dueMs === undefined) dueMs = nowMs + gap.plan(nowMs, members);
    if (dueMs === undefined || nowMs < dueMs) continue;
    // A timer of a busy machine is a little late.
    gap.spread(nowMs + 1);
    times.push(nowMs);
    dueMs = undefined;
  }
  return times;
}

test('spread gap: a change after a quiet time is spread at once', (t) => {
  const gap = new SpreadGap();
  t.is(gap.plan(0, 1000), 0);
  gap.spread(0);
  t.is(gap.plan(10_000, 1000), 0);
});

test('spread gap: of a storm of a thousand nodes that lasts twenty seconds there are a few dozen spreads, none a second late', (t) => {
  const times = spreadsOf(new SpreadGap(), { members: 1000, everyMs: 20, untilMs: 20_000 });
  t.true(times.length < 30, `${times.length} spreads`);
  const gaps = times.slice(1).map((time, i) => time - (times[i] as number));
  t.true(Math.max(...gaps) < 1_100, gaps.join());
  t.true(Math.min(...gaps) >= 120, gaps.join());
});

test('spread gap: few members hear of every change within a tenth of a second', (t) => {
  const times = spreadsOf(new SpreadGap(), { members: 5, everyMs: 10, untilMs: 2_000 });
  const gaps = times.slice(1).map((time, i) => time - (times[i] as number));
  t.true(Math.max(...gaps) <= 100, gaps.join());
});
