import test from 'ava';
import { PREFETCH_LEAD_MS, PREFETCH_POOL_FRACTION } from '../../src/base/limits.js';
import { encodePrefetch } from '../../src/clients/wire/care-messages.js';
import { encodeExists, RequestType } from '../../src/clients/wire/messages.js';
import { attach } from '../_support/client/attached-nodes.js';
import { folder, startNode, startServer } from '../_support/clients/client-fixture.js';
import { TestClient } from '../_support/clients/test-client.js';
import { content, until } from '../_support/support.js';

const LONG_S = 3600;

function prefetchBody(keys: readonly string[], inMs: number): Buffer {
  return encodePrefetch({ pool: '', inMs, keys: [...keys] });
}

test('prefetch: a client has pages brought now, later, or never if it closes or gives up before', async (t) => {
  const store = await startNode(t);
  const client = await attach(t, store.clientSocket);
  t.true(await client.set('page', content(1, 4096)));
  t.deepEqual(await client.prefetch(['page', 'absent']), [true, false]);
  const startMs = performance.now();
  t.deepEqual(await client.prefetch(['page', 'absent'], { by: PREFETCH_LEAD_MS / 1000 + 0.3 }), [true, false]);
  t.true(performance.now() - startMs >= 290);
  t.deepEqual(await client.prefetch(['page'], { by: LONG_S, timeoutMs: 50 }), [false]);
  const giveUp = new AbortController();
  const givenUp = client.prefetch(['page'], { by: LONG_S, signal: giveUp.signal });
  giveUp.abort();
  t.deepEqual(await givenUp, [false]);
  // Far more than a client may have in flight: they wait in the client, and keep no other call waiting.
  const waiting = Array.from({ length: 300 }, () => client.prefetch(['page'], { by: LONG_S }));
  t.is(await client.batchExists(['page']), 1);
  await client.close();
  for (const results of await Promise.all(waiting)) t.deepEqual(results, [false]);
});

test('prefetch: pages that are fetched keep no other request of their client waiting', async (t) => {
  const { server, store, path } = await startServer(t, { limits: { runningMaxCount: 1 } });
  const client = await TestClient.attach(t, path);
  const fetching = [1, 2, 3].map((i) => client.send(RequestType.prefetch, prefetchBody([`page-${i}`], 0)));
  await until(() => store.of('prefetch').length === 3);
  server.verify();
  const asking = client.send(
    RequestType.exists,
    encodeExists({ pool: '', wantsFlags: false, suffixes: [], keys: ['page'] }),
  );
  await until(() => store.of('exists').length === 1);
  store.of('exists')[0]?.end([true]);
  await client.answerTo(asking);
  for (const [i, call] of store.of('prefetch').entries()) call.end([i === 1]);
  for (const [i, id] of fetching.entries()) t.deepEqual([...(await client.answerTo(id)).body], [Number(i === 1)]);
  server.verify();
});

test('prefetch: a node answers at once for pages that are expected later, and fetches them while the client is there', async (t) => {
  const { store, path } = await startServer(t);
  const client = await TestClient.attach(t, path);
  t.deepEqual([...(await client.ok(RequestType.prefetch, prefetchBody(['a', 'b'], PREFETCH_LEAD_MS + 1)))], [0, 0]);
  await until(() => store.of('prefetch').length === 1);
  const [call] = store.of('prefetch');
  t.false(call?.signal?.aborted);
  // There is room for as many pages as one request may have, and for so many requests.
  const many = Array.from({ length: 65_535 }, (_, i) => `${i}`);
  await client.ok(RequestType.prefetch, prefetchBody(many, 60_000));
  t.is(store.of('prefetch').length, 1);
  await client.ok(RequestType.prefetch, prefetchBody(many.slice(1), 60_000));
  t.is(store.of('prefetch').length, 2);
  client.socket.destroy();
  await until(() => call?.signal?.aborted === true);
});

test('prefetch: what one client brings and never reads leaves others their part of the pool', async (t) => {
  const pages = 64;
  const pageBytes = 64 * 1024;
  const store = await startNode(t, {
    ...{ global_segment_size: pages * pageBytes, eviction_policy: 'lru' },
    ...{ disk_enabled: true, disk_path: folder(t), disk_size: '64mb' },
  });
  const keys = Array.from({ length: pages }, (_, i) => `page-${i}`);
  for (const [i, key] of [...keys, ...keys.map((key) => `flood-${key}`)].entries()) {
    t.true(await store.set(key, content(i, pageBytes)));
  }
  await until(() => store.stats().disk?.queueBytes === 0);
  const brought = async (of: { prefetch(keys: string[]): Promise<boolean[]> }, some: string[]): Promise<number> =>
    (await of.prefetch(some)).filter((isHere) => isHere).length;
  const ofProgram = await brought(store, keys.slice(0, 40));
  t.is(ofProgram, (pages * PREFETCH_POOL_FRACTION) / 2);
  const client = await attach(t, store.clientSocket);
  t.is(await brought(client, keys.slice(40)), ofProgram / 2);
});
