import test from 'ava';
import { HybridClock } from '../../src/base/concurrency/hybrid-clock.js';

test('hybrid clock: versions grow, whatever the wall clock does, and are newer than what was seen', (t) => {
  let wallMs = 1_700_000_000_000;
  const clock = new HybridClock({ wallMs: () => wallMs });
  let latest = 0;
  for (const jumpMs of [0, 0, 5, -10_000, 0, 3_600_000, -3_600_000, 0, 1]) {
    wallMs += jumpMs;
    for (let i = 0; i < 5000; i++) {
      const version = clock.next();
      if (version <= latest) t.fail(`${version} after ${latest}`);
      latest = version;
    }
  }
  clock.see(latest + 1_000_000);
  t.is(clock.next(), latest + 1_000_001);
  clock.see(5);
  t.is(clock.next(), latest + 1_000_002);
});

test('hybrid clock: of two nodes whose dates agree, what is set later is newer; versions stay exact until 2109', (t) => {
  let wallMs = 1_700_000_000_000;
  const [a, b] = [new HybridClock({ wallMs: () => wallMs }), new HybridClock({ wallMs: () => wallMs })];
  for (let i = 0; i < 100; i++) {
    const first = a.next();
    wallMs += 1;
    t.true(b.next() > first);
    wallMs += 1;
  }
  const last = new HybridClock({ wallMs: () => Date.UTC(2109, 0, 1) }, Number.MAX_SAFE_INTEGER);
  t.true(Number.isSafeInteger(last.next()));
});

test('hybrid clock: two nodes do not give out one version in the same millisecond', (t) => {
  let wallMs = 1_700_000_000_000;
  const [a, b] = [new HybridClock({ wallMs: () => wallMs }, 2 ** 52 + 1), new HybridClock({ wallMs: () => wallMs }, 2)];
  for (let i = 0; i < 100; i++, wallMs++) {
    const [first, second] = [a.next(), b.next()];
    t.is(second, first + 1);
    t.true(Math.floor(first / 2048) === wallMs);
  }
});
