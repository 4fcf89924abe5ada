import test from 'ava';
import { CallWatch } from '../../src/sim/check/call-watch.js';
import { PageBytes } from '../../src/sim/check/page-bytes.js';
import { FaultTimes, ReadOrder, type ReadOrderOptions } from '../../src/sim/check/read-order.js';
import { type Statement, Statements } from '../../src/sim/check/statements.js';
import { Violations } from '../../src/sim/check/violations.js';

test('page bytes: every byte of a page is checked, and it says whose it is', (t) => {
  const bytes = new PageBytes(7);
  for (const length of [20, 21, 64, 1001]) {
    const page = bytes.make(3, 12, length);
    t.is(bytes.contentOf(page), 12);
    t.is(bytes.problemOf(page, 3, 12), undefined);
    for (let i = 0; i < length; i++) {
      page[i]! ^= 1;
      t.not(bytes.problemOf(page, 3, 12), undefined, `byte ${i} of ${length}`);
      page[i]! ^= 1;
    }
    t.not(bytes.problemOf(page, 4, 12), undefined);
    t.not(bytes.problemOf(page, 3, 13), undefined);
    t.not(bytes.problemOf(page.subarray(0, length - 1), 3, 12), undefined);
    t.not(new PageBytes(8).problemOf(page, 3, 12), undefined);
  }
  t.is(bytes.contentOf(new Uint8Array(64)), undefined);
});

type Kind = 'named' | 'computed' | 'delete';

/** A history of calls, written down call by call. */
class History {
  readonly statements = new Statements();
  readonly faults = new FaultTimes();
  readonly order: ReadOrder;

  constructor(options: Partial<ReadOrderOptions> = {}) {
    this.order = new ReadOrder(this.statements, this.faults, {
      hasClockFaults: false,
      hasCopies: true,
      replicas: 2,
      ...options,
    });
  }

  /** Versions are as a clock that is right gives them, and `skew` ahead of it. */
  call(
    kind: Kind,
    node: number,
    [beginMs, endMs]: readonly [number, number],
    { isTrue = true, skew = 0, process = node, expiresInMs = Number.POSITIVE_INFINITY } = {},
  ): Statement {
    const id = { node, process };
    const begin = { ...id, kind, key: 'key', length: 64, atMs: beginMs, version: beginMs + skew, expiresInMs };
    const statement = this.statements.begin(begin);
    const expiredBy = endMs + skew + expiresInMs;
    this.statements.end(statement, 'key', { atMs: endMs, version: endMs + skew, members: 3, isTrue, expiredBy });
    return statement;
  }

  clear(node: number, [beginMs, endMs]: readonly [number, number], scope = ''): void {
    const clear = this.statements.beginClear({ node, process: node, atMs: beginMs, version: beginMs, scope });
    this.statements.end(clear, undefined, { atMs: endMs, version: endMs, members: 3, isTrue: true });
  }

  /** `present`: the clock of the reading node. */
  read({ content }: Statement, node: number, beginMs: number, present = beginMs): string | undefined {
    const read = { node, process: node, content, beginMs, endMs: beginMs + 1, present };
    return this.order.problemOf(this.statements.of('key'), read)?.rule;
  }
}

test('read order: a node reads nothing older than what it has set itself', (t) => {
  const history = new History();
  history.faults.begin(0);
  const first = history.call('named', 1, [10, 20]);
  t.is(history.read(first, 2, 50), undefined);
  history.call('named', 2, [30, 60]);
  t.is(history.read(first, 2, 50), undefined, 'the set is under way');
  t.is(history.read(first, 2, 61), 'same-node');
  t.is(history.read(first, 3, 61), undefined, 'another node, while a fault lasts');
});

test('read order: what has its only holder freed is not read, by nobody', (t) => {
  for (const [hasCopies, rule] of [
    [false, 'freed'],
    [true, undefined],
  ] as const) {
    const history = new History({ hasCopies });
    history.faults.begin(0);
    const first = history.call('named', 1, [10, 20]);
    history.call('delete', 1, [30, 40]);
    t.is(history.read(first, 2, 41), rule);
    t.is(history.read(first, 2, 40), undefined, 'a read that had begun before');
  }
});

test('read order: nothing is read from its expiry on, by the clock of the reader and by time', (t) => {
  for (const hasClockFaults of [false, true]) {
    const history = new History({ hasClockFaults });
    const first = history.call('named', 1, [10, 20], { expiresInMs: 100 });
    t.is(history.read(first, 2, 119), undefined);
    t.is(history.read(first, 2, 120), 'expired');
    t.is(history.read(first, 2, 60, 500), 'expired', 'the reader is ahead');
    t.is(history.read(first, 2, 124, 50), undefined, 'the reader is behind, a little');
    t.is(history.read(first, 2, 125, 50), hasClockFaults ? undefined : 'expired');
  }
  const history = new History();
  const first = history.call('computed', 1, [10, 20], { expiresInMs: 100 });
  history.call('computed', 2, [30, 40], { expiresInMs: 200 });
  t.is(history.read(first, 2, 239), undefined, 'set again with a later expiry');
  t.is(history.read(first, 2, 240), 'expired');
  history.call('computed', 2, [50, 60]);
  t.is(history.read(first, 2, 10_000), undefined, 'set again without one');
});

test('read order: without faults nothing old is read from the moment that a call has returned', (t) => {
  const history = new History();
  const first = history.call('named', 1, [20_010, 20_020]);
  const second = history.call('named', 2, [20_030, 20_040]);
  t.is(history.read(first, 3, 20_041), 'calm');
  t.is(history.read(second, 3, 20_041), undefined);
  history.faults.begin(20_100)(20_200);
  t.is(history.read(first, 3, 20_301), undefined, 'a fault has ended just now');
  t.is(history.read(first, 3, 30_201), 'bound');
});

test('read order: where processes only end and start, nothing old is read from the moment that a call has returned', (t) => {
  for (const [startedMs, effect, rule] of [
    [20_025, 'ends', 'answering'],
    [20_035, 'ends', undefined],
    [20_025, 'silences', undefined],
  ] as const) {
    const history = new History();
    history.faults.begin(20_001, effect)(20_020);
    history.faults.started(3, startedMs);
    const first = history.call('named', 1, [20_010, 20_020]);
    history.call('named', 2, [20_030, 20_040]);
    t.is(history.read(first, 3, 20_041), rule, `started at ${startedMs}, ${effect}`);
    history.faults.died(1, 20_040);
    history.faults.died(2, 20_040);
    t.is(history.read(first, 3, 20_042), undefined, 'perhaps nobody lives who knows');
  }
});

test('read order: when as many nodes have ended as know what was set last, an older page may come back', (t) => {
  for (const [deaths, rule] of [
    [1, 'bound'],
    [2, undefined],
  ] as const) {
    const history = new History();
    history.faults.begin(20_060)(20_100);
    const first = history.call('named', 1, [20_010, 20_020]);
    history.call('named', 2, [20_030, 20_040]);
    for (let node = 1; node <= deaths; node++) history.faults.died(node, 20_050);
    t.is(history.read(first, 3, 30_201), rule);
  }
});

test('read order: a page that others may have made their own stays when its process clears', (t) => {
  const history = new History();
  const first = history.call('computed', 1, [20_010, 20_020]);
  history.call('computed', 2, [20_030, 20_040]);
  history.clear(1, [20_050, 20_060]);
  t.is(history.read(first, 3, 90_000), undefined);
  history.call('delete', 3, [90_010, 90_020]);
  t.is(history.read(first, 2, 90_030), 'calm');
});

test('read order: computed pages make nothing void, and are made void by other calls', (t) => {
  const history = new History({ hasCopies: false });
  const first = history.call('computed', 1, [20_010, 20_020]);
  history.call('computed', 1, [20_030, 20_040]);
  history.call('computed', 2, [20_050, 20_060]);
  t.is(history.read(first, 3, 90_000), undefined);
  history.call('delete', 3, [90_010, 90_020]);
  t.is(history.read(first, 2, 90_030), 'calm');
});

test('read order: calls that overlap, and those that were not acknowledged, make nothing void', (t) => {
  const history = new History();
  const first = history.call('named', 1, [20_010, 20_040]);
  history.call('named', 2, [20_030, 20_050]);
  history.call('named', 2, [20_060, 20_070], { isTrue: false });
  t.is(history.read(first, 3, 90_000), undefined);
});

test('read order: a clear makes void what its process had set, in its scope', (t) => {
  const history = new History({ hasCopies: false });
  const first = history.call('named', 1, [20_010, 20_020]);
  const other = history.call('named', 2, [20_010, 20_020]);
  history.clear(1, [20_030, 20_040], 'elsewhere/');
  t.is(history.read(first, 3, 20_050), undefined);
  history.clear(1, [20_060, 20_070]);
  t.is(history.read(first, 3, 20_080), 'freed');
  t.is(history.read(other, 3, 90_000), undefined);
});

test('read order: with clocks that are wrong, versions say what is older', (t) => {
  for (const [hasClockFaults, rule] of [
    [true, undefined],
    [false, 'bound'],
  ] as const) {
    const history = new History({ hasClockFaults });
    history.faults.begin(0)(1);
    const first = history.call('named', 1, [10, 20], { skew: 1_000 });
    history.call('named', 2, [30, 40]);
    t.is(history.read(first, 3, 90_000), rule);
  }
});

test('read order: also with clocks that are wrong, time decides where all have heard of each other', (t) => {
  const history = new History({ hasClockFaults: true });
  history.faults.begin(0)(1);
  const first = history.call('named', 1, [20_010, 20_020], { skew: 1_000, expiresInMs: 100_000 });
  t.is(history.read(first, 2, 121_000, 20_030), 'expired', 'the reader is behind');
  history.call('named', 2, [21_030, 21_040], { skew: -5_000 });
  t.is(history.read(first, 3, 90_000, 20_030), 'calm');
});

test('read order: what is read has been set', (t) => {
  const history = new History();
  const late = history.call('named', 1, [100, 110]);
  t.is(history.read(late, 2, 50), 'unset');
  t.is(history.read({ ...late, content: 99 }, 2, 150), 'unset');
});

test('call watch: a call that is late is told once, and time stood still does not count', (t) => {
  const clock = { ms: 0, frozenMs: 0 };
  const late: string[] = [];
  const watch = new CallWatch({
    nowMs: () => clock.ms,
    frozenMs: () => clock.frozenMs,
    onLate: ({ node }, kind, tookMs) => late.push(`${node} ${kind} ${tookMs}`),
    boundsMs: { get: 100 },
  });
  const end = watch.begin('get', { node: 1, process: 1 });
  clock.ms = 100;
  watch.look();
  t.deepEqual(late, []);
  clock.ms = 150;
  clock.frozenMs = 60;
  watch.look();
  t.deepEqual(late, []);
  clock.ms = 170;
  watch.look();
  watch.look();
  end();
  t.deepEqual(late, ['1 get 110']);
  t.is(watch.longestMs.get, 110);
  watch.begin('get', { node: 1, process: 2 });
  watch.cut({ process: 2 });
  t.is(watch.openCount, 0);
});

test('violations: of those that are alike the first ten are kept, and all are counted', (t) => {
  const violations = new Violations();
  for (let i = 0; i < 30; i++) violations.add({ kind: 'late', rule: 'get', atMs: i, node: 1, detail: '' });
  violations.add({ kind: 'late', rule: 'set', atMs: 40, node: 1, detail: '' });
  t.is(violations.count, 31);
  t.is(violations.kept.length, 11);
});
