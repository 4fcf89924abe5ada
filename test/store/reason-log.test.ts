import test from 'ava';
import { type MissReason, ReasonLog } from '../../src/store/call/call-options.js';
import { ManualClock } from '../_support/clock.js';

test('reason log: one line for each reason and ten seconds, with the pages since the last one', (t) => {
  const clock = new ManualClock();
  const lines: unknown[] = [];
  const log = new ReasonLog<MissReason>('pages not read', {
    clock,
    log: { log: (level, event, fields) => lines.push([level, event, fields]) },
  });
  const expect = (...expected: readonly (readonly [reason: MissReason, pages: number])[]) =>
    t.deepEqual(
      lines.splice(0),
      expected.map(([reason, pages]) => ['warn', 'pages not read', { reason, pages }]),
    );
  log.note('checksum');
  expect(['checksum', 1]);
  for (let i = 0; i < 1000; i++) log.note('checksum', 2);
  log.note('other_size', 3);
  expect(['other_size', 3]);
  clock.advance(9_999);
  log.note('checksum');
  expect();
  clock.advance(1);
  log.note('checksum');
  expect(['checksum', 2002]);
});
