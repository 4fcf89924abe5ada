import test, { type ExecutionContext } from 'ava';
import { Redis } from 'ioredis';
import type { MeshCacheClient } from '../../src/client/meshcache-client.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { attach } from '../_support/client/attached-nodes.js';
import { startNode, startNodes } from '../_support/clients/client-fixture.js';
import { metricOf } from '../_support/metrics/metric-of.js';
import { content, until } from '../_support/support.js';

const MIB = 2 ** 20;

/** Sets so many pages; the number of those that were set. */
async function flood(pages: MeshCacheClient, count: number, name: string, bytes = MIB): Promise<number> {
  let taken = 0;
  for (let i = 0; i < count; i++) if (await pages.set(`${name}-${i}`, content(i, bytes))) taken++;
  return taken;
}

async function countRead(pages: MeshCacheClient, count: number, name: string, bytes = MIB): Promise<number> {
  let read = 0;
  for (let i = 0; i < count; i++) {
    const page = await pages.get(`${name}-${i}`);
    if (page === null) continue;
    if (Buffer.compare(page, content(i, bytes)) !== 0) throw new Error(`${name}-${i}: wrong bytes`);
    read++;
  }
  return read;
}

/** A client of a tag. */
function tenant(t: ExecutionContext, { clientSocket }: MeshCacheStore, tag: string): Promise<MeshCacheClient> {
  return attach(t, clientSocket, { namespace: { tag } });
}

test('tenants: pins of one tenant leave another one its minimum', async (t) => {
  const config = { global_segment_size: 16 * MIB, pin_max_share: 0.5, namespace_quotas: { a: { min: 0.75 } } };
  const store = await startNode(t, config);
  const [b, alsoB, a] = [await tenant(t, store, 'b'), await tenant(t, store, 'b'), await tenant(t, store, 'a')];
  t.is(await flood(b, 8, 'page'), 8);
  const keys = Array.from({ length: 8 }, (_, i) => `page-${i}`);
  const pinned = await Promise.all([b.pin(keys, { forMs: 60_000 }), alsoB.pin(keys.slice(4), { forMs: 60_000 })]);
  t.deepEqual(pinned, [
    [true, true, true, true, false, false, false, false],
    [false, false, false, false],
  ]);
  t.is(await flood(a, 12, 'own'), 12);
  // One page of room is left for them, or none: that depends on whether the other tenant has all of its minimum.
  const later = await flood(b, 30, 'later');
  t.true(later === 30 || later === 0, `${later} set`);
  t.true((await countRead(a, 12, 'own')) >= 11, 'its minimum of 12, to within one page');
  t.is(await countRead(b, 4, 'page'), 4);
});

test('tenants: a tenant with clients that pin all they can sets pages still, in a quota of four pages', async (t) => {
  const config = { global_segment_size: 16 * MIB, pin_max_share: 0.5, namespace_quotas: { a: { max: 0.25 } } };
  const store = await startNode(t, config);
  const clients = await Promise.all([1, 2, 3, 4].map(() => tenant(t, store, 'a')));
  const [first] = clients as [MeshCacheClient, ...MeshCacheClient[]];
  t.is(await flood(first, 4, 'page'), 4);
  const keys = Array.from({ length: 4 }, (_, i) => `page-${i}`);
  for (const client of clients) await client.pin(keys.reverse(), { forMs: 60_000 });
  t.is(store.stats().pinnedEntries, 2);
  t.is(await flood(first, 20, 'later'), 20);
  t.is(await countRead(first, 4, 'page'), 2);
});

for (const [ownBytes, floodBytes] of [
  [2 ** 19, 5_000],
  [20_000, 700_000],
] as const) {
  test(`tenants: pages of ${ownBytes} bytes outlast a flood of ${floodBytes}, ten times its quota`, async (t) => {
    const quotas = { quiet: { min: 0.5, max: 0.5 }, noisy: { max: 0.5 } };
    const store = await startNode(t, { global_segment_size: 8 * MIB, namespace_quotas: quotas });
    const [quiet, noisy] = [await tenant(t, store, 'quiet'), await tenant(t, store, 'noisy')];
    const count = Math.floor((4 * MIB) / ownBytes);
    t.is(await flood(quiet, count, 'page', ownBytes), count);
    t.is(await flood(noisy, 100, 'flood', floodBytes), 100);
    for (let i = 0; i < (40 * MIB) / floodBytes; i++) t.true(await noisy.set(`more-${i}`, content(i, floodBytes)));
    t.is(await countRead(quiet, count, 'page', ownBytes), count);
    t.is(await metricOf(store, 'meshcache_namespace_evictions_total', { namespace: 'quiet', tier: 'pool' }), 0);
  });
}

test('tenants: a page that expires while clients of two nodes have pinned it is nowhere, and its pins end', async (t) => {
  const [one, other] = (await startNodes(t, 2, { global_segment_size: 4 * MIB, resp_port: 0 })) as [
    MeshCacheStore,
    MeshCacheStore,
  ];
  const [a, b] = [await tenant(t, one, 'redis'), await tenant(t, other, 'redis')];
  t.true(await a.set('page', content(1, MIB), { expiresInMs: 3_000 }));
  const setAt = performance.now();
  for (const client of [a, b]) t.deepEqual(await client.pin(['page'], { forMs: 60_000 }), [true]);
  for (const store of [one, other]) t.is(store.stats().pinnedEntries, 1);
  await until(() => performance.now() > setAt + 3_000 + 1);
  for (const client of [a, b]) t.true((await client.get('page')) === null);
  for (const { respEndpoint } of [one, other]) {
    const redis = new Redis(Number(respEndpoint.slice(respEndpoint.lastIndexOf(':') + 1)));
    t.teardown(() => redis.disconnect());
    t.is(await redis.pttl('page'), -2);
  }
  for (const store of [one, other]) {
    await until(() => store.stats().pinnedEntries === 0 && store.stats().poolEntries === 0);
  }
  for (const client of [a, b]) t.deepEqual(await client.unpin(['page']), [false]);
});
