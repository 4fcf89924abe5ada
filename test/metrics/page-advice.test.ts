import test, { type ExecutionContext } from 'ava';
import { ADVICE_BODY_MAX_BYTES } from '../../src/base/limits.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { metricOf } from '../_support/metrics/metric-of.js';
import { createStore } from '../_support/node/store-fixture.js';
import { content, freePort, until } from '../_support/support.js';

const TOKEN = { authorization: 'Bearer tok-123', 'content-type': 'application/json' };
const PAGE = 4096;

async function startNode(t: ExecutionContext, port: number, extra: Record<string, unknown> = {}) {
  const options = { metrics_enabled: true, metrics_port: 0, metrics_token: 'tok-123', ...extra };
  const store = await createStore(port, options);
  t.teardown(() => store.close());
  return store;
}

function namespaceOf(store: MeshCacheStore): string {
  return (store.keyEncoder.encodeKeys(['']) as [string])[0].slice(0, -1);
}

async function post(store: MeshCacheStore, path: string, body: unknown, headers: Record<string, string> = TOKEN) {
  const isReady = typeof body === 'string' || body instanceof Uint8Array;
  const text = isReady ? (body as string | Uint8Array<ArrayBuffer>) : JSON.stringify(body);
  const answer = await fetch(`http://${store.metricsEndpoint}${path}`, { method: 'POST', headers, body: text });
  return { status: answer.status, text: await answer.text(), headers: answer.headers };
}

test('page advice: a router has pages brought to a node before they are read there', async (t) => {
  const port = await freePort();
  const a = await startNode(t, port);
  const b = await startNode(t, port);
  await until(() => a.stats().members === 2 && b.stats().members === 2);
  t.true(await a.set('page', content(1, PAGE)));
  const advice = { namespace: namespaceOf(b), keys: ['page', 'absent'], by: 0 };
  const { status, text } = await post(b, '/api/prefetch', advice);
  t.deepEqual([status, JSON.parse(text)], [202, { pages: 2 }]);
  await until(async () => (await metricOf(b, 'meshcache_prefetched_pages_total', { result: 'brought' })) === 1);
  t.deepEqual(await b.get('page'), content(1, PAGE));
  t.like(b.stats().hits, { local: 1, remote: 0 });
});

test('page advice: a router tells that a session has ended, and its pages go first', async (t) => {
  const store = await startNode(t, await freePort(), { global_segment_size: 32 * PAGE, eviction_policy: 'yield' });
  const keys = (name: string, count: number) => Array.from({ length: count }, (_, i) => `${name}-${i}`);
  for (const key of keys('old', 10)) t.true(await store.set(key, content(1, PAGE)));
  for (const key of keys('over', 10)) t.true(await store.set(key, content(1, PAGE), { session: 's' }));
  const { status } = await post(store, '/api/sessions', { namespace: namespaceOf(store), session: 's', ended: true });
  t.is(status, 202);
  for (const key of keys('new', 15)) t.true(await store.set(key, content(1, PAGE)));
  const left = async (name: string) =>
    (await Promise.all(keys(name, 10).map((key) => store.exists(key)))).filter(Boolean).length;
  t.is(await left('old'), 10);
  t.true((await left('over')) < 10);
});

test('page advice: only those may give it who have the token, and only as JSON', async (t) => {
  const store = await startNode(t, await freePort());
  const advice = { namespace: namespaceOf(store), keys: ['page'] };
  const { authorization: _, ...json } = TOKEN;
  t.is((await post(store, '/api/prefetch', advice, json)).status, 401);
  t.is((await post(store, '/api/prefetch', advice, { ...json, authorization: 'Bearer other' })).status, 401);
  t.regex(
    (await post(store, '/api/prefetch', advice, { ...TOKEN, 'content-type': 'text/plain' })).text,
    /must be JSON/,
  );
  const read = await fetch(`http://${store.metricsEndpoint}/api/prefetch`, { headers: TOKEN });
  t.deepEqual([read.status, read.headers.get('allow')], [405, 'POST']);
  const open = await startNode(t, await freePort(), { metrics_token: undefined });
  t.regex(
    (await post(open, '/api/sessions', { ...advice, session: 's' }, json)).text,
    /set metrics_token on this node/,
  );
});

test('page advice: what is wrong is said', async (t) => {
  const store = await startNode(t, await freePort());
  const namespace = namespaceOf(store);
  const wrong: [string, unknown, RegExp][] = [
    ['/api/prefetch', 'nothing', /the body is no JSON/],
    ['/api/prefetch', [], /must be a JSON object/],
    ['/api/prefetch', { keys: ['a'] }, /"namespace" must be 32 hexadecimal digits/],
    ['/api/prefetch', { namespace, keys: [] }, /must name a page at least/],
    ['/api/prefetch', { namespace, keys: [1] }, /must be a list of at most/],
    ['/api/prefetch', { namespace, keys: ['a'], by: -1 }, /"by" must be a number from 0 to 604800, got -1/],
    ['/api/prefetch', { namespace, keys: ['a'], soon: 1 }, /unknown field "soon"/],
    ['/api/sessions', { namespace }, /"session" must be text of 1 to 256 bytes/],
    ['/api/sessions', { namespace, session: 's'.repeat(257) }, /1 to 256 bytes/],
    ['/api/sessions', { namespace, session: 's', ended: 'yes' }, /"ended" must be true or false/],
    ['/api/sessions', { namespace, session: 's', waiting: '3' }, /"waiting" must be a number/],
    ['/api/sessions', { namespace, session: 's', shared: 1.5 }, /"shared" must be a number of pages, got 1.5/],
    ['/api/prefetch', { namespace, keys: ['k'.repeat(70_000)] }, /key 0 has 70000 bytes, at most 65536 are allowed/],
    ['/api/prefetch', { namespace, keys: ['\ud800'] }, /key 0 must be well-formed text/],
    ['/api/prefetch', Buffer.from([0x22, 0xff, 0x22]), /the body is no JSON in UTF-8/],
    ['/api/prefetch', `{"pad":"${'x'.repeat(ADVICE_BODY_MAX_BYTES)}"}`, /the body is above/],
  ];
  for (const [path, body, message] of wrong) {
    const { status, text } = await post(store, path, body);
    t.is(status, 400, text);
    t.regex(text, message);
  }
});
