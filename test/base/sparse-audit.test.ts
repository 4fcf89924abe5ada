import test from 'ava';
import { type AuditEvent, SparseAudit } from '../../src/base/environment/audit.js';
import { LOG_KINDS_MAX_COUNT, LOG_LINE_INTERVAL_MS } from '../../src/base/limits.js';
import { ManualClock } from '../_support/clock.js';

const refusal = (address: string, reason = 'wrong'): AuditEvent => ({
  action: 'connect',
  door: 'control',
  outcome: 'refused',
  actor: { address },
  reason,
});

function joined() {
  const clock = new ManualClock();
  const passed: [address: string, count: number][] = [];
  const audit = new SparseAudit(clock, ({ actor, action }, count) => passed.push([actor?.address ?? action, count]));
  return { clock, audit, take: () => passed.splice(0) };
}

test('sparse audit: the first of a kind at once, the others together at the end of the interval', (t) => {
  const { clock, audit, take } = joined();
  for (let i = 0; i < 5; i++) audit.record(refusal('a'));
  audit.record(refusal('b'), 7);
  audit.record(refusal('a', 'missing'));
  t.deepEqual(take(), [
    ['a', 1],
    ['b', 7],
    ['a', 1],
  ]);
  clock.advance(LOG_LINE_INTERVAL_MS);
  t.deepEqual(take(), [['a', 4]]);
  clock.advance(2 * LOG_LINE_INTERVAL_MS);
  t.deepEqual(take(), []);
  audit.record(refusal('a'));
  t.deepEqual(take(), [['a', 1]]);
});

test('sparse audit: many sources have few lines, every event counts, and another action is not hidden', (t) => {
  const { clock, audit, take } = joined();
  const sources = 100 * LOG_KINDS_MAX_COUNT;
  for (let i = 0; i < sources; i++) audit.record(refusal(`10.0.${i >> 8}.${i & 255}`));
  audit.record({ action: 'drain', door: 'control', outcome: 'done' });
  const lines = take();
  t.deepEqual(lines.at(-1), ['drain', 1]);
  clock.advance(LOG_LINE_INTERVAL_MS);
  lines.push(...take());
  t.true(lines.length <= 2 * LOG_KINDS_MAX_COUNT + 3, `${lines.length} lines`);
  t.is(
    lines.reduce((sum, [, count]) => sum + count, 0),
    sources + 1,
  );
});

test('sparse audit: what waits is passed on at the end', (t) => {
  const { audit, take } = joined();
  for (let i = 0; i < 3; i++) audit.record(refusal('a'));
  audit.end();
  t.deepEqual(take(), [
    ['a', 1],
    ['a', 2],
  ]);
});
