import { inspect } from 'node:util';
import test from 'ava';
import type { Logger } from '../../src/base/environment/log.js';
import { ArgumentError, ClosedError } from '../../src/base/errors.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { createCluster, createStore, quiet } from '../_support/node/store-fixture.js';
import { content, freePort } from '../_support/support.js';

async function allOf(keys: AsyncIterable<string>): Promise<string[]> {
  const all: string[] = [];
  for await (const key of keys) all.push(key);
  return all.sort();
}

test('store details: the keys of the own pages, namespace by namespace and pool by pool', async (t) => {
  const [a, b] = (await createCluster(2)) as [MeshCacheStore, MeshCacheStore];
  t.teardown(() => Promise.all([a.close(), b.close()]));
  const names = Array.from({ length: 9_000 }, (_, i) => `k${i}`);
  using region = HostRegion.allocate(64);
  t.true(
    (
      await a.batchSet(
        names,
        names.map(() => region.addr),
        names.map(() => 1),
      )
    ).every((isSet) => isSet),
  );
  t.true(await a.namespace({ tag: 'other' }).set('k0', new Uint8Array(1)));
  t.true(await b.set('elsewhere', new Uint8Array(1)));
  const lookups = { ...a.stats().hits };
  t.deepEqual(await allOf(a.keys()), names.toSorted());
  t.deepEqual(await allOf(a.namespace({ tag: 'other' }).keys()), ['k0']);
  t.deepEqual(await allOf(a.keys({ pool: 'none' })), []);
  t.deepEqual(await allOf(b.keys()), ['elsewhere']);
  t.deepEqual(a.stats().hits, lookups);
  // The event loop has its turn before and between slices.
  let turns = 0;
  const turn = (): void => {
    turns++;
    ticking = setImmediate(turn);
  };
  let ticking = setImmediate(turn);
  for await (const _ of a.keys()) if (turns === 0) break;
  clearImmediate(ticking);
  t.true(turns >= 2, `${turns} turns`);
});

test('store details: listing keys ends with the signal, the time and the store', async (t) => {
  const store = await createStore(await freePort());
  t.teardown(() => store.close());
  await store.set('k', new Uint8Array(1));
  const abort = new AbortController();
  const listing = store.keys({ signal: abort.signal });
  t.is((await listing.next()).value, 'k');
  abort.abort();
  t.is(await listing.next().catch((reason: unknown) => reason), abort.signal.reason);
  await t.throwsAsync(store.keys({ pol: 'kv' } as never).next(), {
    instanceOf: ArgumentError,
    message: /^keys: unknown option "pol"; did you mean "pool"\? Allowed are .*pool$/,
  });
  await t.throwsAsync(store.keys({ timeoutMs: 0 }).next(), { message: /^keys: timeoutMs/ });
  const open = store.keys();
  t.is((await open.next()).value, 'k');
  await store.close();
  await t.throwsAsync(open.next(), { instanceOf: ClosedError });
  await t.throwsAsync(store.keys().next(), { instanceOf: ClosedError });
});

test('store details: a set says why it has not been done, and the log says it once', async (t) => {
  const lines: string[] = [];
  const log: Logger = {
    log: (_level, message, fields) => {
      if (message.startsWith('pages not')) lines.push(`${message} ${JSON.stringify(fields)}`);
    },
  };
  const options = { discoveryAddr: `127.0.0.1:${await freePort()}`, protocol: 'tcp', metricsEnabled: false } as const;
  await using store = await MeshCacheStore.create({ ...options, globalSegmentSize: '1mb' }, { ...quiet, log });
  t.deepEqual(await store.setDetailed('fits', content(1, 1000)), { isSet: true });
  const tooLarge = { isSet: false, reason: 'too_large' } as const;
  for (let i = 0; i < 3; i++) t.deepEqual(await store.setDetailed('large', content(2, 2 << 20)), tooLarge);
  t.deepEqual(await store.getDetailed('fits'), { page: content(1, 1000) });
  t.deepEqual(await store.getDetailed('fits', new Float32Array(250)), { isRead: true });
  t.deepEqual(await store.getDetailed('fits', new Float32Array(251)), { isRead: false, reason: 'other_size' });
  t.deepEqual(await store.getDetailed('none'), { page: null, reason: 'absent' });
  t.deepEqual(lines, [
    'pages not set {"reason":"too_large","pages":1}',
    'pages not read {"reason":"other_size","pages":1}',
  ]);
});

test('store details: a store and its memory print in one line, and a store in short as JSON', async (t) => {
  const store = await createStore(await freePort(), { node_id: 'node-7' });
  t.teardown(() => store.close());
  await store.set('k', content(1, 1024));
  t.is(inspect(store), 'MeshCacheStore { node-7, members: 1, pages: 1, 1 KiB of 16 MiB }');
  const sizes = '"members":1,"poolEntries":1,"poolUsedBytes":1024,"poolCapacityBytes":16777216';
  t.is(JSON.stringify({ store }), `{"store":{"nodeId":"node-7","isClosed":false,${sizes}}}`);
  await store.close();
  t.is(inspect(store), 'MeshCacheStore { node-7, closed, pages: 1, 1 KiB of 16 MiB }');
  const region = HostRegion.allocate(100);
  t.is(inspect(region), `HostRegion { 100 bytes, at ${region.addr} }`);
  region.free();
  t.is(inspect(region), 'HostRegion { 100 bytes, freed }');
});
