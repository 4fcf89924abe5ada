import test from 'ava';
import {
  CLOCKS_APART,
  HybridClock,
  isVersion,
  VERSION_AHEAD_SLACK_MS,
  versionAt,
} from '../../src/base/concurrency/hybrid-clock.js';
import { EXPIRY_MAX_MS, VERSION_AHEAD_MAX_MS } from '../../src/base/limits.js';

test('hybrid clock: versions grow, whatever the wall clock does, and are newer than what was seen', (t) => {
  let wallMs = 1_700_000_000_000;
  const clock = new HybridClock({ wallMs: () => wallMs, nowMs: () => 0 });
  let latest = 0;
  for (const jumpMs of [0, 0, 5, -10_000, 0, 360_000, -360_000, 0, 1]) {
    wallMs += jumpMs;
    for (let i = 0; i < 5000; i++) {
      const version = clock.next();
      if (version <= latest) t.fail(`${version} after ${latest}`);
      latest = version;
    }
  }
  clock.see(latest + 1_000_000);
  const next = clock.next();
  t.true(next > latest + 1_000_000 && next <= latest + 1_000_032);
  clock.see(5);
  t.is(clock.next(), next + 32);
});

test('hybrid clock: of two nodes whose dates agree, what is set later is newer; versions stay exact until 2109', (t) => {
  let wallMs = 1_700_000_000_000;
  const [a, b] = [
    new HybridClock({ wallMs: () => wallMs, nowMs: () => 0 }),
    new HybridClock({ wallMs: () => wallMs, nowMs: () => 0 }),
  ];
  for (let i = 0; i < 100; i++) {
    const first = a.next();
    wallMs += 1;
    t.true(b.next() > first);
    wallMs += 1;
  }
  const last = new HybridClock({ wallMs: () => Date.UTC(2109, 0, 1), nowMs: () => 0 }, Number.MAX_SAFE_INTEGER);
  t.true(Number.isSafeInteger(last.next()));
});

test('hybrid clock: two nodes do not give out one version in the same instant', (t) => {
  let wallMs = 1_700_000_000_000;
  const [a, b] = [
    new HybridClock({ wallMs: () => wallMs, nowMs: () => 0 }, 2 ** 52 + 1),
    new HybridClock({ wallMs: () => wallMs, nowMs: () => 0 }, 2),
  ];
  for (let i = 0; i < 100; i++, wallMs++) {
    const [first, second] = [a.next(), b.next()];
    t.is(second, first + 1);
    t.true(second <= wallMs * 2_048 && first > wallMs * 2_048 - 32);
  }
});

test('hybrid clock: two nodes that have seen the same later version give out different ones', (t) => {
  // Cause: both gave out the next one; of two contents of one version the directory keeps one, and the node of the
  // other took both for void.
  const time = { wallMs: () => 1_700_000_000_000, nowMs: () => 0 };
  const [a, b] = [new HybridClock(time, 5), new HybridClock(time, 2 ** 52 + 6)];
  for (let i = 0; i < 100; i++) {
    const seen = Math.max(a.next(), b.next()) + i * 1_000;
    a.see(seen);
    b.see(seen);
    const [first, second] = [a.next(), b.next()];
    t.true(first > seen && second > seen && first !== second);
  }
});

test('hybrid clock: the present never goes back, and goes on at the pace of the monotonic clock', (t) => {
  const time = { wallMs: 1_700_000_000_000, nowMs: 500 };
  const clock = new HybridClock({ wallMs: () => time.wallMs, nowMs: () => time.nowMs });
  const pass = (ms: number): void => {
    time.wallMs += ms;
    time.nowMs += ms;
  };
  const start = clock.now();
  t.is(clock.msUntil(clock.in(2_500)), 2_500);
  const expires = clock.in(1_000);
  pass(999);
  t.is(clock.msUntil(expires), 1);
  time.wallMs -= 86_400_000;
  t.is(clock.msUntil(expires), 1, 'the date was set back');
  pass(1);
  t.is(clock.now(), expires);
  t.is(clock.now() - start, 1_000 * 2_048);
  time.wallMs += 2 * 86_400_000;
  const ahead = clock.now();
  t.true(ahead > expires + 86_300_000 * 2_048, 'the date was set forward');
  clock.see(ahead + 5_000 * 2_048);
  t.is(clock.now(), ahead + 5_000 * 2_048, 'another node is ahead');
  pass(3);
  t.is(clock.now(), ahead + 5_003 * 2_048);
});

test('hybrid clock: however many versions nodes give out, and hear of, the present does not run ahead of the dates', (t) => {
  // Cause: a version was ahead of the present by up to half a millisecond, and the present went on from there: a node
  // that set pages all the time had a clock that was up to 1.8 times as fast, which all others followed.
  const startMs = 1_700_000_000_000;
  for (const [a, b] of [
    [0, 31],
    [300, 1_000],
    [1_023, 511],
  ] as const) {
    let ms = startMs;
    const time = { wallMs: () => Math.floor(ms), nowMs: () => ms - startMs };
    const [first, second] = [new HybridClock(time, a), new HybridClock(time, b)];
    for (let step = 0; step < 20_000; step++) {
      ms += 0.1;
      // Now and then a thousand versions within an instant.
      for (let count = step % 1_000 === 0 ? 1_000 : 1; count > 0; count--) first.next();
      second.see(first.next());
      first.see(second.next());
      if (step % 100 === 0) first.hear(second.present());
      if (step % 100 === 50) second.hear(first.present());
    }
    for (const clock of [first, second]) {
      const aheadMs = clock.present() / 2_048 - ms;
      t.true(Math.abs(aheadMs) < 1, `nodes ${a} and ${b}: ${aheadMs} ms`);
      t.true(clock.next() / 2_048 - ms < 20, 'nor do versions, but by a burst');
    }
  }
});

test('hybrid clock: only a version of a clock that is far ahead is a jump', (t) => {
  const clock = new HybridClock({ wallMs: () => 1_700_000_000_000, nowMs: () => 0 });
  const first = clock.next();
  clock.see(first + CLOCKS_APART / 2);
  t.is(clock.jumpedTo, 0);
  const second = clock.next();
  const ahead = second + 300 * CLOCKS_APART;
  clock.see(ahead);
  t.is(clock.jumpedTo, ahead);
  t.true(clock.next() > ahead);
  clock.see(clock.next());
  t.is(clock.jumpedTo, ahead);
});

test('hybrid clock: after the wall clock was ahead and is right again, versions go on from the present', (t) => {
  // Cause: versions went on from the latest one, while the present had gone on by real time: what was set later was
  // older, and expired too late elsewhere.
  const time = { wallMs: 1_700_000_000_000, nowMs: 500 };
  const clock = new HybridClock({ wallMs: () => time.wallMs, nowMs: () => time.nowMs }, 7);
  const ahead = (ms: number): void => {
    time.wallMs += ms;
    clock.now();
  };
  ahead(60_000);
  ahead(-60_000);
  const first = clock.next();
  t.true(first >= clock.now() - 2_048);
  time.wallMs += 30_000;
  time.nowMs += 30_000;
  const later = clock.next();
  t.true(later >= clock.now() - 2_048, 'not before the present');
  t.true(later - first >= 29_999 * 2_048, 'as far apart as they were in time');
  t.true(clock.msUntil(later) <= 0, 'and not after it');
});

test('hybrid clock: a version that is further ahead than the bound is not followed, and is refused', (t) => {
  const time = { wallMs: Date.UTC(2026, 0, 1), nowMs: 1_000 };
  const clock = new HybridClock({ wallMs: () => time.wallMs, nowMs: () => time.nowMs });
  clock.see(versionAt(time.wallMs + 86_400_000 * 365 * 80));
  t.true(clock.isAhead(versionAt(time.wallMs + 86_400_000 * 365 * 80)), 'a date that no machine has by mistake');
  const hour = versionAt(time.wallMs + 3_600_000);
  t.false(clock.isAhead(hour), 'this clock may be the wrong one');
  clock.remember(hour);
  t.true(clock.now() < hour, 'of earlier versions of its own it believes less');
  clock.follow(time.wallMs, 2);
  clock.follow(time.wallMs, 1);
  const first = clock.next();
  for (const aheadMs of [VERSION_AHEAD_MAX_MS + 1_000, 86_400_000 * 210, 86_400_000 * 365 * 80]) {
    const version = versionAt(time.wallMs + aheadMs);
    clock.see(version);
    t.true(clock.next() < first + 2_048, `${aheadMs}`);
    t.is(clock.isAhead(version), aheadMs > VERSION_AHEAD_MAX_MS + VERSION_AHEAD_SLACK_MS);
  }
  t.true(clock.isAhead(first, versionAt(time.wallMs + 11 * 365 * 86_400_000 + VERSION_AHEAD_MAX_MS)));
  t.false(clock.isAhead(first, clock.in(EXPIRY_MAX_MS)));
  // A clock that is behind goes by the date of the cluster.
  const cluster = time.wallMs + 86_400_000 * 365;
  clock.follow(cluster, 3);
  t.is(clock.offsetMs, -86_400_000 * 365);
  clock.see(versionAt(cluster));
  t.true(clock.next() > versionAt(cluster));
});

test('hybrid clock: it begins anew only where its date is known to be right again, and keeps nothing that is ahead', (t) => {
  const DAY_MS = 86_400_000;
  const time = { wallMs: Date.UTC(2026, 0, 1), nowMs: 1_000 };
  const clock = new HybridClock({ wallMs: () => time.wallMs, nowMs: () => time.nowMs });
  const rightMs = time.wallMs;
  clock.see(versionAt(rightMs + 210 * DAY_MS));
  t.true(clock.now() > versionAt(rightMs + 209 * DAY_MS), 'one date alone says nothing');
  t.false(clock.isRightAt(rightMs, false), 'its own date may be the one that is behind');
  t.true(clock.isRightAt(rightMs, true), 'another node has the same date');
  time.wallMs += 210 * DAY_MS;
  const ahead = clock.next();
  t.false(clock.isRightAt(rightMs, true), 'its own date is ahead');
  time.wallMs -= 210 * DAY_MS;
  t.true(clock.isRightAt(rightMs, false), 'its date has stepped back');
  t.true(clock.beginAgain(rightMs));
  t.false(clock.beginAgain(rightMs), 'nothing is ahead any more');
  t.true(clock.next() < versionAt(rightMs + 1_000) && clock.now() < versionAt(rightMs + 1_000));
  t.true(clock.isAhead(ahead));
  clock.see(ahead);
  t.true(clock.next() < versionAt(rightMs + 1_000), 'and nothing that is ahead is followed');
  t.true(clock.afterEarlier() > ahead, 'what is left of before is known for earlier');
});

test('hybrid clock: a date that is centuries wrong still gives versions, in order', (t) => {
  for (const wallMs of [Date.UTC(2526, 0, 1), 8.64e15, Date.UTC(1901, 0, 1)]) {
    const clock = new HybridClock({ wallMs: () => wallMs, nowMs: () => 0 }, 3);
    let latest = 0;
    for (let i = 0; i < 1000; i++) {
      const version = clock.next();
      t.true(isVersion(version) && version > latest && isVersion(clock.in(EXPIRY_MAX_MS)));
      latest = version;
    }
  }
});
