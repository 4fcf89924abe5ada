import test from 'ava';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import { DIRECTORY_REQUEST_MAX_KEYS, READ_REPORT_DELAY_MS } from '../../src/base/limits.js';
import { keyFields } from '../../src/directory/messages/wire.js';
import { PageNotices } from '../../src/node/remote-pages/page-notices.js';
import type { ReportedRead } from '../../src/node/remote-pages/read-reports.js';
import type { RpcClient } from '../../src/rpc/client.js';
import { MessageCodec } from '../../src/rpc/message.js';
import type { RpcHandler, RpcServer } from '../../src/rpc/server.js';
import type { ExpectedPages } from '../../src/store/sessions/session-book.js';
import { ManualClock } from '../_support/clock.js';
import { startCluster } from '../_support/node/simulated-stores.js';
import { testEnvironment } from '../_support/rpc/server.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

function u32(...values: number[]): Buffer {
  return Buffer.from(Uint32Array.from(values).buffer);
}

/** A node that is told, and one that tells it, with nothing but the messages between them. */
function bench() {
  const clock = new ManualClock();
  const codec = new MessageCodec();
  const handlers = new Map<string, RpcHandler>();
  const calls: { readonly method: string; readonly params: unknown }[] = [];
  const reads: ReportedRead[] = [];
  const expected: ExpectedPages[] = [];
  const rpc = {
    async call(_endpoint: unknown, method: string, params: unknown) {
      const received = codec.decode(codec.encode(params)) as Record<string, unknown>;
      calls.push({ method, params: received });
      return (handlers.get(method) as (given: unknown) => unknown)(received);
    },
  } as unknown as RpcClient;
  const notices = new PageNotices({
    rpc,
    endpointOf: (nodeId) => (nodeId === 'gone' ? undefined : { host: '127.0.0.1', port: 1 }),
    env: { ...testEnvironment({ clock }), metrics: noMetrics },
  });
  const server = { handle: (method: string, handler: RpcHandler) => handlers.set(method, handler) };
  notices.handle(server as unknown as RpcServer, {
    touch: (some) => void reads.push(...some),
    expect: (some) => void expected.push(...some),
    restate: async () => {},
  });
  const touch = (params: unknown) => (handlers.get('pool.touch') as (given: unknown) => unknown)(params);
  const expect = (params: unknown) => (handlers.get('pool.expect') as (given: unknown) => unknown)(params);
  return { clock, notices, calls, reads, expected, touch, expect };
}

test('page notices: an owner hears of reads as they were, call by call', (t) => {
  const { clock, notices, calls, reads } = bench();
  notices.touched('o', ['b', 'a'], 'closed');
  notices.touched('o', ['\u00e9']);
  notices.touched('o', ['d'], 3);
  notices.touched('gone', ['x']);
  clock.advance(READ_REPORT_DELAY_MS);
  t.deepEqual(calls, [
    {
      method: 'pool.touch',
      params: {
        key_lengths: u32(1, 1, 2, 1),
        key_text: Buffer.from('ba\u00e9d'),
        read_counts: u32(2, 1, 1),
        read_hints: Buffer.of(2, 0, 3),
      },
    },
  ]);
  t.deepEqual(reads, [
    { keys: ['b', 'a'], hint: 2 },
    { keys: ['\u00e9'], hint: 0 },
    { keys: ['d'], hint: 3 },
  ]);
});

test('page notices: an owner hears what is expected of its pages, after the reads before it', async (t) => {
  const { clock, notices, calls, expected } = bench();
  notices.touched('o', ['a']);
  notices.expected('o', ['a', 'b'], 5_000 + READ_REPORT_DELAY_MS);
  notices.expected('o', ['c'], Number.POSITIVE_INFINITY);
  notices.expected('o', ['d'], 1);
  clock.advance(READ_REPORT_DELAY_MS);
  for (let i = 0; i < 10; i++) await Promise.resolve();
  t.deepEqual(
    calls.map(({ method }) => method),
    ['pool.touch', 'pool.expect'],
  );
  t.deepEqual(expected, [
    { keys: ['a', 'b'], inMs: 5_000 },
    { keys: ['c'], inMs: Number.POSITIVE_INFINITY },
    { keys: ['d'], inMs: 0 },
  ]);
});

test('page notices: what is expected and does not fit together is refused whole', (t) => {
  const { expected, expect } = bench();
  const times = (...ms: number[]) => Buffer.from(Float64Array.from(ms).buffer);
  const keys = keyFields(['a', 'b']);
  for (const [expected_counts, expected_ms] of [
    [u32(2), times(1, 2)],
    [u32(1, 1), times(1)],
    [u32(1), times(1)],
    [u32(3), times(1)],
    [u32(0, 2), times(1, 2)],
    [u32(2), times(-1)],
    [u32(2), times(Number.NaN)],
    [Buffer.alloc(6), Buffer.alloc(12)],
  ]) {
    t.throws(() => expect({ ...keys, expected_counts, expected_ms }), { message: /expected_/ });
  }
  t.deepEqual(expected, []);
});

test('page notices: deferred reads wait until they are let through, and then are told when asked', async (t) => {
  const { clock, notices, reads } = bench();
  const deferred: (() => void)[] = [];
  notices.deferReads((add) => deferred.push(add));
  notices.touched('o', ['a']);
  notices.touched('o', ['b']);
  clock.advance(10 * READ_REPORT_DELAY_MS);
  await notices.tellReads();
  t.deepEqual(reads, []);
  deferred[0]?.();
  await notices.tellReads();
  t.deepEqual(reads, [{ keys: ['a'], hint: 0 }]);
});

test('page notices: hints and fields of later versions tell nothing', (t) => {
  const { reads, touch } = bench();
  touch({ ...keyFields([]), read_counts: u32(), read_hints: Buffer.of() });
  touch({ ...keyFields(['a', 'b']), read_counts: u32(2), read_hints: Buffer.of(9), more: true });
  t.deepEqual(reads, [{ keys: ['a', 'b'], hint: 0 }]);
});

test('page notices: what does not fit together is refused whole', (t) => {
  const { reads, touch } = bench();
  const keys = keyFields(['a', 'b']);
  const hints = Buffer.of(0, 0);
  const wrong = [
    null,
    {},
    keys,
    // As nodes of an earlier version say it.
    { keys: ['a', 'b'] },
    { keys: ['a', 'b'], reads: [[2, 0]] },
    { ...keys, reads: [[2, 0]] },
    { ...keys, read_counts: [1, 1], read_hints: hints },
    { ...keys, read_counts: u32(1, 1) },
    { ...keys, read_counts: u32(1, 1), read_hints: Buffer.of(0) },
    { ...keys, read_counts: u32(2).subarray(0, 3), read_hints: Buffer.of(0) },
    { ...keys, read_counts: u32(), read_hints: Buffer.of() },
    { ...keys, read_counts: u32(1), read_hints: Buffer.of(0) },
    { ...keys, read_counts: u32(3), read_hints: Buffer.of(0) },
    { ...keys, read_counts: u32(0, 2), read_hints: hints },
    { ...keys, read_counts: u32(2, 0), read_hints: hints },
    { ...keys, read_counts: u32(2 ** 32 - 1, 3), read_hints: hints },
    { ...keyFields([]), read_counts: u32(0), read_hints: Buffer.of(0) },
    { key_lengths: u32(1, 2), key_text: Buffer.from('ab'), read_counts: u32(2), read_hints: Buffer.of(0) },
    {
      ...keyFields(new Array<string>(DIRECTORY_REQUEST_MAX_KEYS + 1).fill('a')),
      read_counts: u32(DIRECTORY_REQUEST_MAX_KEYS + 1),
      read_hints: Buffer.of(0),
    },
  ];
  for (const params of wrong) t.throws(() => touch(params), { code: 'ERR_PROTOCOL' }, JSON.stringify(params));
  t.deepEqual(reads, []);
});

simulated('page notices: an owner keeps what others read, a while after they have', async (t, world) => {
  const pageBytes = 2 ** 18;
  const stores = await startCluster(world, 2, {
    global_segment_size: '4mb',
    eviction_policy: 'lru',
    reuse_quarantine_ms: 0,
  });
  const [owner, reader] = stores as [(typeof stores)[0], (typeof stores)[0]];
  const fill = async (first: number, count: number) => {
    for (let i = first; i < first + count; i++) t.true(await owner.set(`page ${i}`, content(i, pageBytes)));
  };
  await fill(0, 12);
  for (const i of [0, 1]) t.deepEqual(await reader.get(`page ${i}`, { hint: 'open' }), content(i, pageBytes));
  await world.until(async () => (await reader.metric('meshcache_reported_reads_total', { result: 'told' })) === 2);
  await fill(12, 10);
  t.deepEqual(await Promise.all([0, 1, 2, 3].map((i) => owner.exists(`page ${i}`))), [true, true, false, false]);
});
