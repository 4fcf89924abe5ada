import test from 'ava';
import { OP_STATUS, type OpStatusName } from '../../src/native/addon/contract.js';
import { PeerBackoff } from '../../src/native/engine/peer-backoff.js';
import { ManualClock } from '../_support/clock.js';

function fixture() {
  const clock = new ManualClock();
  const backoff = new PeerBackoff({ clock, retryAfterMs: 1000, retryMaxMs: 3000 });
  /** A batch that takes a millisecond. */
  const batch = (...statuses: OpStatusName[]): void => {
    const startedMs = clock.nowMs();
    clock.advance(1);
    const indices = statuses.map((name) => OP_STATUS.indexOf(name));
    backoff.ended('peer', startedMs, indices);
  };
  return { clock, backoff, batch };
}

for (const status of ['unreachable', 'rejected', 'timeout'] as const) {
  test(`back-off: ${status} starts it, it doubles up to its limit, and a read that succeeds ends it`, (t) => {
    const { clock, backoff, batch } = fixture();
    for (const pauseMs of [1000, 2000, 3000, 3000]) {
      batch('ok', status);
      clock.advance(pauseMs - 1);
      t.true(backoff.isSkipped('peer'), `${pauseMs}`);
      clock.advance(1);
      t.false(backoff.isSkipped('peer'), `${pauseMs}`);
      t.true(backoff.isTroubled('peer'));
    }
    batch('ok', 'refused');
    t.false(backoff.isTroubled('peer'));
    batch(status);
    clock.advance(1000);
    t.false(backoff.isSkipped('peer'), 'it begins anew');
  });
}

test('back-off: a lost connection is tried again at once, a second one in a row is not', (t) => {
  const { backoff, batch } = fixture();
  batch('ok', 'connection_lost');
  t.false(backoff.isSkipped('peer'));
  t.false(backoff.isTroubled('peer'));
  batch('connection_lost');
  t.true(backoff.isSkipped('peer'));
  t.true(backoff.isTroubled('peer'));
});

test('back-off: batches that fail together are one failure', (t) => {
  const { clock, backoff } = fixture();
  const startedMs = clock.nowMs();
  clock.advance(5);
  for (let i = 0; i < 3; i++) backoff.ended('peer', startedMs, [OP_STATUS.indexOf('connection_lost')]);
  t.false(backoff.isSkipped('peer'));
  const laterMs = clock.nowMs();
  for (let i = 0; i < 3; i++) {
    clock.advance(5);
    backoff.ended('peer', laterMs, [OP_STATUS.indexOf('unreachable')]);
  }
  clock.advance(990);
  t.false(backoff.isSkipped('peer'), 'counted from the first of them, and once');
});

test('back-off: mistakes of the caller and closing say nothing about the peer', (t) => {
  const { backoff, batch } = fixture();
  batch('bad_local_memory', 'closed');
  t.false(backoff.isTroubled('peer'));
  batch('unreachable');
  batch('closed');
  t.true(backoff.isTroubled('peer'));
});
