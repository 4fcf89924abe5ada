import test, { type ExecutionContext } from 'ava';
import {
  READ_REPORT_DELAY_MS,
  READ_REPORT_FULL_KEYS,
  READ_REPORT_MAX_CHARACTERS,
  READ_REPORT_MAX_KEYS,
  READ_REPORTS_WAITING_MAX_CHARACTERS,
  READ_REPORTS_WAITING_MAX_KEYS,
} from '../../src/base/limits.js';
import type { RequestHint } from '../../src/core/index.js';
import { ReadReports, type ReportedRead } from '../../src/node/remote-pages/read-reports.js';
import { ManualClock } from '../_support/clock.js';

interface Message {
  readonly owner: string;
  readonly reads: readonly ReportedRead[];
  readonly end: (error?: Error) => void;
}

function bench(t: ExecutionContext) {
  const clock = new ManualClock();
  const messages: Message[] = [];
  const counts: Record<string, number> = { told: 0, failed: 0, dropped: 0 };
  const reports = new ReadReports({
    send: (owner, reads) =>
      new Promise((resolve, reject) => {
        messages.push({
          owner,
          reads: reads as readonly ReportedRead[],
          end: (error) => (error === undefined ? resolve() : reject(error)),
        });
      }),
    clock,
    metrics: {
      count(name, amount = 1, labels) {
        t.is(name, 'meshcache_reported_reads_total');
        const result = labels?.result as string;
        counts[result] = (counts[result] as number) + amount;
      },
      setGaugeProvider() {},
      setCounterProvider() {},
    },
  });
  t.teardown(() => reports.close());
  const add = (owner: string, keys: readonly string[], hint: RequestHint = 0) => {
    reports.add(owner, { keys, hint });
    reports.verify();
  };
  const settled = async () => {
    for (let i = 0; i < 10; i++) await clock.yield();
    reports.verify();
  };
  return { clock, messages, counts, reports, add, settled };
}

function keysFrom(first: number, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `k${first + i}`);
}

test('read reports: an owner is told a while after the first read, read by read and in order', async (t) => {
  const { clock, messages, counts, reports, add, settled } = bench(t);
  add('a', ['k3', 'k1'], 'closed');
  add('b', ['x']);
  clock.advance(READ_REPORT_DELAY_MS - 1);
  add('a', ['k2'], 1);
  add('a', []);
  t.deepEqual(messages, []);
  clock.advance(1);
  t.deepEqual(
    messages.map(({ owner, reads }) => [owner, reads.map(({ keys, hint }) => [keys, hint])]),
    [
      [
        'a',
        [
          [['k3', 'k1'], 'closed'],
          [['k2'], 1],
        ],
      ],
      ['b', [[['x'], 0]]],
    ],
  );
  t.is(reports.waitingKeys, 0);
  for (const message of messages) message.end();
  await settled();
  t.deepEqual(counts, { told: 4, failed: 0, dropped: 0 });
  clock.advance(10 * READ_REPORT_DELAY_MS);
  t.is(messages.length, 2, 'once');
});

test('read reports: enough reads go at once, one message at a time', async (t) => {
  const { clock, messages, add, settled } = bench(t);
  add('a', keysFrom(0, READ_REPORT_FULL_KEYS - 1));
  t.is(messages.length, 0);
  add('a', ['one']);
  t.is(messages.length, 1);
  // While it is under way: what came then is due in its turn.
  add('a', ['two']);
  clock.advance(READ_REPORT_DELAY_MS);
  add('a', keysFrom(1000, READ_REPORT_FULL_KEYS));
  await settled();
  t.is(messages.length, 1);
  messages[0]?.end();
  await settled();
  t.is(messages.length, 2);
  t.deepEqual(messages[1]?.reads[0]?.keys, ['two']);
  messages[1]?.end();
  await settled();
  t.is(messages.length, 2);
});

test('read reports: asked to, they tell all owners at once of what waits', async (t) => {
  const { clock, messages, reports, add, settled } = bench(t);
  await reports.tellAll();
  add('a', ['one']);
  add('b', ['two']);
  let isTold = false;
  const told = reports.tellAll().then(() => {
    isTold = true;
  });
  t.deepEqual(
    messages.map(({ owner }) => owner),
    ['a', 'b'],
  );
  add('a', ['later']);
  messages[1]?.end(new Error('the owner is gone'));
  await settled();
  t.false(isTold, 'one of the reports is on its way');
  messages[0]?.end();
  await told;
  t.is(messages.length, 2, 'a read that came meanwhile waits for its own time');
  clock.advance(READ_REPORT_DELAY_MS);
  t.deepEqual(messages[2]?.reads, [{ keys: ['later'], hint: 0 }]);
});

test('read reports: what is left behind a full message waits for its own time', async (t) => {
  const { clock, messages, add, settled } = bench(t);
  add('a', keysFrom(0, READ_REPORT_FULL_KEYS));
  add('a', ['late']);
  messages[0]?.end();
  await settled();
  t.is(messages.length, 1);
  clock.advance(READ_REPORT_DELAY_MS);
  t.deepEqual(messages[1]?.reads, [{ keys: ['late'], hint: 0 } as ReportedRead]);
});

test('read reports: a message is bounded in keys and characters, and loses none', async (t) => {
  const { messages, add, settled } = bench(t);
  const long = 'x'.repeat(READ_REPORT_MAX_CHARACTERS / 2);
  const keys = [...keysFrom(0, 2 * READ_REPORT_MAX_KEYS + 7), `${long}1`, `${long}2`, `${long}3`];
  add('a', keys, 3);
  const told: string[] = [];
  for (let i = 0; i < messages.length; i++) {
    const { reads, end } = messages[i] as Message;
    const some = reads.flatMap((read) => read.keys);
    t.true(some.length <= READ_REPORT_MAX_KEYS);
    const characters = some.reduce((sum, key) => sum + key.length, 0);
    t.true(characters <= READ_REPORT_MAX_CHARACTERS || some.length === 1);
    t.true(reads.every(({ hint }) => hint === 3));
    told.push(...some);
    end();
    await settled();
    // The last ones are fewer than go at once.
    if (told.length < keys.length && messages.length === i + 1) break;
  }
  t.deepEqual(told, keys.slice(0, told.length));
  t.true(told.length >= 2 * READ_REPORT_MAX_KEYS);
});

test('read reports: an owner that does not answer holds up no other, and costs bounded memory', async (t) => {
  const { messages, counts, reports, add, settled } = bench(t);
  const step = READ_REPORT_FULL_KEYS;
  add('deaf', keysFrom(0, step));
  for (let first = step; first <= READ_REPORTS_WAITING_MAX_KEYS + 3 * step; first += step) {
    add('deaf', keysFrom(first, step));
  }
  t.is(reports.waitingKeys, READ_REPORTS_WAITING_MAX_KEYS);
  t.is(counts.dropped, 3 * step);
  add('b', keysFrom(0, step));
  t.is(messages.length, 2);
  t.is(messages[1]?.owner, 'b');
  messages[0]?.end(new Error('timeout'));
  await settled();
  t.is(counts.failed, step);
  t.is(messages[2]?.owner, 'deaf');
  t.is(messages[2]?.reads[0]?.keys[0], `k${4 * step + step}`, 'the oldest were dropped');
});

test('read reports: long keys count by their length', (t) => {
  const { counts, reports, add } = bench(t);
  const long = 'x'.repeat(READ_REPORT_MAX_CHARACTERS);
  for (let i = 0; i < READ_REPORTS_WAITING_MAX_CHARACTERS / READ_REPORT_MAX_CHARACTERS; i++) add('a', [long]);
  t.is(counts.dropped, 0);
  add('b', ['k']);
  t.is(counts.dropped, 1);
  t.is(reports.waitingKeys, 8);
});

test('read reports: an owner all of whose reads were dropped is forgotten', (t) => {
  const { clock, messages, counts, add } = bench(t);
  const long = 'x'.repeat(READ_REPORT_MAX_CHARACTERS);
  const owners = READ_REPORTS_WAITING_MAX_CHARACTERS / READ_REPORT_MAX_CHARACTERS + 1;
  for (let i = 0; i < owners; i++) add(`owner-${i}`, [long]);
  t.is(counts.dropped, 1);
  clock.advance(READ_REPORT_DELAY_MS);
  t.deepEqual(
    messages.map(({ owner }) => owner),
    Array.from({ length: owners - 1 }, (_, i) => `owner-${i + 1}`),
  );
});

test('read reports: nothing is told after the end', (t) => {
  const { clock, messages, reports, add } = bench(t);
  add('a', ['k']);
  reports.close();
  add('a', ['l']);
  clock.advance(READ_REPORT_DELAY_MS);
  t.deepEqual(messages, []);
});
