import test from 'ava';
import { WRONG_PASSWORDS_BURST_COUNT } from '../../src/base/limits.js';
import { isDigestOf, PasswordCheck } from '../../src/net/auth-failures.js';
import { ManualClock } from '../_support/clock.js';

/** A check of the password `right`, and what it has counted and logged. */
function newCheck() {
  const clock = new ManualClock();
  const counts = new Map<string, number>();
  const lines: string[] = [];
  const isRight = isDigestOf('right');
  const passwords = new PasswordCheck((digest) => (isRight(digest) ? { name: 'right' } : undefined), 'resp', {
    clock,
    log: { log: (level, message, fields) => lines.push(JSON.stringify({ level, message, ...fields })) },
    metrics: {
      count(name, amount = 1, labels = {}) {
        const key = [name, ...Object.values(labels)].join(' ');
        counts.set(key, (counts.get(key) ?? 0) + amount);
      },
      setGaugeProvider() {},
      setCounterProvider() {},
    },
  });
  const check = {
    judge(given: string | Uint8Array, address: string): string {
      const owner = passwords.judge(given, address);
      return typeof owner === 'string' ? owner : owner.name;
    },
    verify: () => passwords.verify(),
  };
  return { check, clock, counts, lines };
}

test('passwords: the right one is right, as text and as bytes, and others are not', (t) => {
  const { check } = newCheck();
  t.is(check.judge('right', '192.0.2.1'), 'right');
  t.is(check.judge(Buffer.from('right'), ''), 'right');
  for (const wrong of ['', 'righ', 'right ', 'Right']) t.is(check.judge(wrong, '192.0.2.1'), 'wrong');
});

test('passwords: after a few wrong ones nothing of an address is looked at until time has passed; others go on', (t) => {
  const { check, clock, counts, lines } = newCheck();
  for (let i = 0; i < WRONG_PASSWORDS_BURST_COUNT; i++) t.is(check.judge(`guess ${i}`, '192.0.2.1'), 'wrong');
  t.is(check.judge('right', '192.0.2.1'), 'paused');
  t.is(check.judge('right', '::ffff:192.0.2.1'), 'paused');
  t.is(check.judge('right', '192.0.2.2'), 'right');
  clock.advance(999);
  t.is(check.judge('right', '192.0.2.1'), 'paused');
  clock.advance(1);
  t.is(check.judge('right', '192.0.2.1'), 'right');
  t.is(check.judge('a guess', '192.0.2.1'), 'wrong');
  t.is(check.judge('a guess', '192.0.2.1'), 'paused');
  t.is(counts.get('meshcache_auth_failures_total resp wrong_password'), WRONG_PASSWORDS_BURST_COUNT + 1);
  t.is(counts.get('meshcache_auth_failures_total resp paused'), 4);
  t.is(lines.length, 2, 'one record for each reason');
  t.notRegex(lines.join(), /guess|"right"/);
  t.notThrows(() => check.verify());
});

test('passwords: a network of IPv6 has one share, and right ones cost nothing', (t) => {
  const { check } = newCheck();
  for (let i = 0; i < 1000; i++) t.is(check.judge('right', '2001:db8::1'), 'right');
  for (let i = 0; i < WRONG_PASSWORDS_BURST_COUNT; i++) t.is(check.judge('guess', `2001:db8::${i}`), 'wrong');
  t.is(check.judge('right', '2001:db8::ffff'), 'paused');
  t.is(check.judge('right', '2001:db8:0:1::1'), 'right');
});
