import { Readable } from 'node:stream';
import test, { type ExecutionContext } from 'ava';
import { EVENT_STREAMS_MAX_COUNT } from '../../src/base/limits.js';
import { eventStream, type StreamedEvent } from '../../src/metrics/event-stream.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { ManualClock } from '../_support/clock.js';
import { EventSource } from '../_support/node/event-source.js';
import { createStore } from '../_support/node/store-fixture.js';
import { content, freePort, until } from '../_support/support.js';

async function startNode(t: ExecutionContext, extra: Record<string, unknown> = {}) {
  const options = { metrics_enabled: true, metrics_port: 0, metrics_token: 'tok-123', ...extra };
  const store = await createStore(await freePort(), options);
  t.teardown(() => store.close());
  return { store, url: `http://${store.metricsEndpoint}/api/events` };
}

/** The namespace of a store's keys, as object keys begin with it. */
function namespaceOf(store: MeshCacheStore): string {
  return (store.keyEncoder.encodeKeys(['']) as [string])[0].slice(0, -1);
}

/** Opens a stream with the token of the node. */
function open(url: string, headers: Record<string, string> = {}): Promise<EventSource> {
  return EventSource.open(url, { authorization: 'Bearer tok-123', ...headers });
}

test('event stream: a list, then changes, in the form of KV events', async (t) => {
  const { store, url } = await startNode(t);
  t.true(await store.set('page 1', content(1, 100)));
  const source = await open(url);
  t.teardown(() => source.close());
  const { nodeId } = store.runtime;
  const namespace = namespaceOf(store);
  t.deepEqual(await source.take(), { id: '', event: 'reset', data: { node_id: nodeId } });
  t.like(await source.take(), {
    event: 'namespace',
    data: { namespace, pool: 'kv', model_name: 'test', tp_rank: 0, tp_size: 1 },
  });
  t.deepEqual(await source.take(), {
    event: 'kv',
    data: {
      node_id: nodeId,
      events: [{ type: 'BlockStored', namespace, medium: 'CPU', block_hashes: ['page 1'] }],
    },
  });
  const complete = await source.take();
  t.is(complete?.event, 'complete');
  t.regex(complete?.id ?? '', /^[0-9a-z]+-\d+$/);
  t.deepEqual(await store.delete(['page 1']), [true]);
  const gone = await source.take();
  t.like(gone, { event: 'kv', data: { events: [{ type: 'BlockRemoved', namespace, block_hashes: ['page 1'] }] } });
  t.true(Math.abs(gone?.data.ts - Date.now() / 1000) < 60, 'seconds since 1970');
});

test('event stream: goes on after the last event that the reader has had', async (t) => {
  const { store, url } = await startNode(t);
  const source = await open(url);
  const complete = await source.until(({ event }) => event === 'complete');
  source.close();
  t.true(await store.set('missed', content(1, 100)));
  for (const again of [
    await open(url, { 'Last-Event-ID': complete.id as string }),
    await open(`${url}?after=${complete.id}`),
  ]) {
    t.is((await again.take())?.event, 'namespace');
    t.deepEqual((await again.take())?.data.events[0].block_hashes, ['missed']);
    again.close();
  }
  const other = await open(url, { 'Last-Event-ID': 'another-1' });
  t.is((await other.take())?.event, 'reset');
  other.close();
});

test('event stream: keeps a silent connection alive, and ends with the node', async (t) => {
  const { store, url } = await startNode(t);
  const source = await open(url);
  await source.until(({ event }) => event === 'complete');
  const next = source.take().catch(() => undefined);
  await until(() => source.comments > 0);
  await store.close();
  t.is(await next, undefined);
});

test('event stream: only so many at a time; one that has ended makes room', async (t) => {
  const { url } = await startNode(t);
  const sources: EventSource[] = [];
  for (let i = 0; i < EVENT_STREAMS_MAX_COUNT; i++) sources.push(await open(url));
  await t.throwsAsync(open(url), { message: /^503 16 streams of events are open/ });
  for (const source of sources) source.close();
  await until(async () => {
    const again = await open(url).catch(() => undefined);
    again?.close();
    return again !== undefined;
  });
});

// Cause: the stream of events that is behind the text was never ended when a reader had stalled before it went: it
// counted as a reader for ever.
test('event stream: a reader that has stalled and then goes is no reader any more', async (t) => {
  let [told, isEnded] = [0, false];
  async function* follow(): AsyncGenerator<StreamedEvent, void> {
    try {
      for (;;) {
        told++;
        yield { kind: 'changed', position: `1-${told}`, atMs: 0, changes: [] };
      }
    } finally {
      isEnded = true;
    }
  }
  const source = { nodeId: 'node', follow, describe: () => undefined };
  const body = Readable.from(eventStream(source, { signal: new AbortController().signal, clock: new ManualClock() }));
  body.read(0);
  await until(() => told > 0);
  t.false(isEnded);
  body.destroy();
  await until(() => isEnded);
});

test('event stream: needs the token, also where none is set, and HEAD has no body', async (t) => {
  const { url } = await startNode(t, { metrics_token: 'secret' });
  await t.throwsAsync(EventSource.open(url), { message: /^401/ });
  const open = await startNode(t, { metrics_token: undefined });
  await t.throwsAsync(EventSource.open(open.url), { message: /^403 .*name keys, models and tags.*set metrics_token/ });
  const headers = { Authorization: 'Bearer secret' };
  const head = await fetch(url, { method: 'HEAD', headers });
  t.is(head.headers.get('content-type'), 'text/event-stream; charset=utf-8');
  const source = await EventSource.open(url, headers);
  t.is((await source.take())?.event, 'reset');
  source.close();
});
