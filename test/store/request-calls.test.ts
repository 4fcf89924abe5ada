import test from 'ava';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import { ArgumentError } from '../../src/base/errors.js';
import type { RequestOptions } from '../../src/core/index.js';
import { CONCURRENT_CALLERS_COUNT, STORE_CALLERS_COUNT } from '../../src/core/pool/request-terms.js';
import { checkRequest, RequestCalls } from '../../src/store/call/request-calls.js';

test('request calls: the parts of a call are one request, in each pool', (t) => {
  const calls = new RequestCalls(noMetrics);
  const { pool, disk } = calls.begin({ hint: 'closed', caller: 3 }, 9);
  t.deepEqual(pool.next(), { hint: 'closed', caller: 3 });
  t.deepEqual(pool.next(), { hint: 'closed', caller: 3, continues: true });
  t.is(pool.next(), pool.next(), 'the same object: pages of later parts are put away together');
  t.deepEqual(disk.next(), { hint: 'closed', caller: 3 });
});

test('request calls: a call goes on with a request when it says so, and begins one when it says so', (t) => {
  const calls = new RequestCalls(noMetrics);
  for (const continues of [true, false]) {
    const call = calls.begin({ continues }, 1);
    t.deepEqual(call.pool.next(), { caller: 0, continues });
    call.end();
  }
});

test('request calls: calls of one caller that overlap are requests of their own', (t) => {
  const calls = new RequestCalls(noMetrics);
  const first = calls.begin({}, 1);
  const second = calls.begin({}, 1);
  const third = calls.begin({}, 1);
  const other = calls.begin({ caller: 1 }, 1);
  t.deepEqual(first.pool.next(), { caller: 0 });
  t.deepEqual(second.pool.next(), { caller: STORE_CALLERS_COUNT, continues: false });
  t.deepEqual(third.pool.next(), { caller: STORE_CALLERS_COUNT + 1, continues: false });
  t.deepEqual(other.pool.next(), { caller: 1 });
  // The rest of a request may be asked for while its first part is under way.
  t.deepEqual(calls.begin({ continues: true }, 1).pool.next(), { caller: 0, continues: true });
  second.end();
  second.end();
  t.deepEqual(calls.begin({}, 1).pool.next(), { caller: STORE_CALLERS_COUNT, continues: false });
  first.end();
  t.deepEqual(calls.begin({}, 1).pool.next(), { caller: 0 });
});

test('request calls: however many overlap, each has a number', (t) => {
  const calls = new RequestCalls(noMetrics);
  const count = CONCURRENT_CALLERS_COUNT + 10;
  const all = Array.from({ length: count }, () => calls.begin({ caller: STORE_CALLERS_COUNT + 5 }, 1));
  const numbers = all.map(({ pool }) => pool.next().caller as number);
  t.is(numbers[0], 5);
  t.deepEqual(new Set(numbers).size, 1 + CONCURRENT_CALLERS_COUNT);
  t.true(numbers.every((number) => number < STORE_CALLERS_COUNT + CONCURRENT_CALLERS_COUNT));
  for (const { end } of all) end();
  t.deepEqual(calls.begin({ caller: 5 }, 1).pool.next(), { caller: 5 });
});

test('request calls: what was told is counted by hint', (t) => {
  const counted: unknown[] = [];
  const count = (name: string, amount?: number, labels?: Readonly<Record<string, string>>) =>
    void counted.push([name, amount, labels]);
  const calls = new RequestCalls({ ...noMetrics, count });
  calls.begin({}, 4);
  calls.begin({ hint: 0 }, 4);
  calls.begin({ hint: 'closed' }, 5);
  calls.begin({ hint: 2, continues: true }, 6);
  calls.begin({ hint: 1 }, 7);
  calls.begin({ hint: 3 }, 8);
  t.deepEqual(calls.figures(), {
    open: { calls: 1, pages: 7 },
    closed: { calls: 1, pages: 11 },
    other: { calls: 1, pages: 8 },
  });
  t.deepEqual(counted.slice(0, 3), [
    ['meshcache_hinted_pages_total', 5, { hint: 'closed' }],
    ['meshcache_hinted_calls_total', 1, { hint: 'closed' }],
    ['meshcache_hinted_pages_total', 6, { hint: 'closed' }],
  ]);
});

test('request calls: what cannot be told is refused, and what can is named', (t) => {
  const refused: [unknown, RegExp][] = [
    [{ hint: 'shut' }, /^get: hint must be "open", "closed", 0, 1, 2 or 3, got "shut"$/],
    [{ hint: 4 }, /hint must be/],
    [{ hint: '1' }, /hint must be/],
    [{ hint: null }, /hint must be .* got null/],
    [{ hint: ['open'] }, /hint must be .* got a list/],
    [{ caller: -1 }, /^get: caller must be an integer from 0 to 134217727, got -1$/],
    [{ caller: 1.5 }, /caller/],
    [{ caller: '1' }, /caller/],
    [{ continues: 1 }, /^get: continues must be true or false, got 1$/],
    [null, /^get: request options must be an object, such as \{ hint: 'closed' \}; got null$/],
    ['closed', /must be an object/],
  ];
  for (const [request, message] of refused) {
    t.throws(() => checkRequest('get', request as RequestOptions), { instanceOf: ArgumentError, message });
  }
  t.notThrows(() => checkRequest('get', { hint: 3, caller: 2 ** 27 - 1, continues: false }));
});
