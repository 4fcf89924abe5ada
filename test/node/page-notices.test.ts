import test from 'ava';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import { DIRECTORY_REQUEST_MAX_KEYS, READ_REPORT_DELAY_MS } from '../../src/base/limits.js';
import { PageNotices } from '../../src/node/remote-pages/page-notices.js';
import type { ReportedRead } from '../../src/node/remote-pages/read-reports.js';
import type { RpcClient } from '../../src/rpc/client.js';
import type { RpcHandler, RpcServer } from '../../src/rpc/server.js';
import { ManualClock } from '../_support/clock.js';
import { startCluster } from '../_support/node/simulated-stores.js';
import { testEnvironment } from '../_support/rpc/server.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

/** A node that is told, and one that tells it, with nothing but the messages between them. */
function bench() {
  const clock = new ManualClock();
  const handlers = new Map<string, RpcHandler>();
  const calls: { readonly method: string; readonly params: unknown }[] = [];
  const reads: ReportedRead[] = [];
  const rpc = {
    async call(_endpoint: unknown, method: string, params: unknown) {
      // As they come out of a message.
      const received = JSON.parse(JSON.stringify(params)) as Record<string, unknown>;
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
    restate: async () => {},
  });
  const touch = (params: unknown) => (handlers.get('pool.touch') as (given: unknown) => unknown)(params);
  return { clock, notices, calls, reads, touch };
}

test('page notices: an owner hears of reads as they were, call by call', (t) => {
  const { clock, notices, calls, reads } = bench();
  notices.touched('o', ['b', 'a'], 'closed');
  notices.touched('o', ['c']);
  notices.touched('o', ['d'], 3);
  notices.touched('gone', ['x']);
  clock.advance(READ_REPORT_DELAY_MS);
  t.deepEqual(calls, [
    {
      method: 'pool.touch',
      params: {
        keys: ['b', 'a', 'c', 'd'],
        reads: [
          [2, 2],
          [1, 0],
          [1, 3],
        ],
      },
    },
  ]);
  t.deepEqual(reads, [
    { keys: ['b', 'a'], hint: 2 },
    { keys: ['c'], hint: 0 },
    { keys: ['d'], hint: 3 },
  ]);
});

test('page notices: nodes of other versions are understood', (t) => {
  const { reads, touch } = bench();
  touch({ keys: ['a', 'b'] });
  touch({ keys: [] });
  touch({ keys: ['a', 'b'], reads: [[2, 9]], more: true });
  t.deepEqual(reads, [
    { keys: ['a', 'b'], hint: 0 },
    { keys: [], hint: 0 },
    { keys: ['a', 'b'], hint: 0 },
  ]);
});

test('page notices: what does not fit together is refused whole', (t) => {
  const { reads, touch } = bench();
  const keys = ['a', 'b'];
  const wrong = [
    null,
    {},
    { keys: 'a' },
    { keys: ['a', 1] },
    { keys: new Array<string>(DIRECTORY_REQUEST_MAX_KEYS + 1).fill('a') },
    { keys, reads: 2 },
    { keys, reads: [] },
    { keys, reads: [[1, 0]] },
    { keys, reads: [[3, 0]] },
    { keys, reads: [[2, -1]] },
    { keys, reads: [[2, 0.5]] },
    { keys, reads: [[2]] },
    { keys, reads: [2] },
    {
      keys,
      reads: [
        [0, 0],
        [2, 0],
      ],
    },
    {
      keys,
      reads: [
        [1, 0],
        [1, 0],
        [0, 0],
      ],
    },
    {
      keys,
      reads: [
        [-1, 0],
        [3, 0],
      ],
    },
    { keys, reads: [[Number.NaN, 0]] },
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
