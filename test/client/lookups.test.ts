import { join } from 'node:path';
import test from 'ava';
import type { MeshCacheClient } from '../../src/client/meshcache-client.js';
import { decodeLookups, encodeLookups } from '../../src/clients/wire/lookup-messages.js';
import { encodeExists, RequestType } from '../../src/clients/wire/messages.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import type { StoreNamespace } from '../../src/store/namespace/store-namespace.js';
import { attach } from '../_support/client/attached-nodes.js';
import { folder, setBytes, startNode, startServer } from '../_support/clients/client-fixture.js';
import { numberBody, TestClient } from '../_support/clients/test-client.js';
import { commandOf, placeOf, RawClient, startRespNodes } from '../_support/resp/resp-fixture.js';
import { content, until } from '../_support/support.js';

interface Lookups {
  readonly asked: number;
  readonly found: number;
}

/** What the node has counted of all programs. */
async function countedBy(store: MeshCacheStore): Promise<Lookups> {
  return (await store.metrics.report()).lookups;
}

/** What a client has counted, and what its node has for it, which must be the same. */
async function countedFor(client: MeshCacheClient): Promise<Lookups> {
  const { lookupPages: asked, foundPages: found, node } = await client.stats();
  const { lookups, found: known } = (node as { client: { lookups: number; found: number } }).client;
  if (lookups !== asked || known !== found)
    throw new Error(`${found} of ${asked}, the node has ${known} of ${lookups}`);
  return { asked, found };
}

/** Lookups of every kind, where the pages a, b and d are there, and none in the pool `side`. */
async function lookUp(namespace: StoreNamespace): Promise<Lookups> {
  const side = [{ name: 'side', keys: null, hostIndices: null }];
  await namespace.batchExists(['a', 'b', 'c', 'd']); // 2 of 4
  await namespace.exists('d'); // 1 of 1
  await namespace.exists('c'); // 0 of 1
  await namespace.batchExistsV2(['a', 'b', 'd']); // 3 of 3
  await namespace.batchExistsV2(['a', 'b', 'd'], side); // 0 of 3: the other pool is asked for the same pages
  await namespace.batchExists([]);
  await namespace.getMany(['a', 'c']);
  return { asked: 12, found: 6 };
}

async function fill(namespace: StoreNamespace): Promise<void> {
  for (const key of ['a', 'b', 'd']) await namespace.set(key, content(1, 100));
}

test.serial('client lookups: they count for a store, a namespace of it and an attached program alike', async (t) => {
  const store = await startNode(t);
  const client = await attach(t, store.clientSocket, { namespace: { tag: 'attached' }, name: 'engine' });
  let before = await countedBy(store);
  t.deepEqual(before, { asked: 0, found: 0 });
  for (const namespace of [store, store.namespace({ tag: 'other' }), client]) {
    await fill(namespace);
    const expected = await lookUp(namespace);
    if (namespace === client) t.deepEqual(await countedFor(client), expected);
    const now = await countedBy(store);
    t.deepEqual({ asked: now.asked - before.asked, found: now.found - before.found }, expected);
    before = now;
  }
  const text = await store.metrics.renderPrometheus();
  const node = `node_id="${store.runtime.nodeId}"`;
  t.true(text.includes(`meshcache_client_lookup_pages_total{client="engine",result="found",${node}} 6\n`), text);
  t.true(text.includes(`meshcache_client_lookup_pages_total{client="engine",result="missing",${node}} 6\n`));
  t.true(text.includes(`meshcache_lookup_pages_total{result="found",${node}} 18\n`));
  t.like(store.clients()[0], { lookups: 12, found: 6, hits: 1, misses: 1 });
});

test.serial('client lookups: what no node could answer is told to the next one', async (t) => {
  const path = join(folder(t), 'node.sock');
  const client = await attach(t, path);
  await client.batchExists(['a', 'b']);
  t.like(await client.stats(), { lookupPages: 2, foundPages: 0, node: null });
  const store = await startNode(t, { client_socket: path });
  await until(() => client.isConnected);
  t.deepEqual(await countedFor(client), { asked: 2, found: 0 });
  t.deepEqual(await countedBy(store), { asked: 2, found: 0 });
});

test.serial('client lookups: EXISTS counts unless its client states the lookup, or has cancelled it', async (t) => {
  const store = await startNode(t);
  const client = await TestClient.attach(t, store.clientSocket);
  await setBytes(client, { a: content(1, 9), b: content(2, 9), 'p-k': content(3, 9) });
  const ask = (keys: string[], more = {}) =>
    client.ok(RequestType.exists, encodeExists({ pool: '', wantsFlags: false, suffixes: [], keys, ...more }));
  await ask(['a', 'b', 'c', 'a']);
  t.deepEqual(await countedBy(store), { asked: 4, found: 2 });
  await ask(['p', 'p'], { suffixes: ['-k', '-v'], wantsFlags: true });
  t.deepEqual(await countedBy(store), { asked: 6, found: 2 }, 'keys, not their parts');
  await ask(['a', 'b'], { isUncounted: true, wantsFlags: true });
  t.deepEqual(await countedBy(store), { asked: 6, found: 2 });
  client.send(RequestType.lookups, encodeLookups({ asked: 10, found: 3 }));
  await client.ok(RequestType.ping);
  t.deepEqual(await countedBy(store), { asked: 16, found: 5 });
  t.like(store.clients()[0], { lookups: 16, found: 5 });
});

test('client lookups: a lookup that is cancelled does not count, one at its deadline does', async (t) => {
  const { path, store, server } = await startServer(t);
  const client = await TestClient.attach(t, path);
  const ask = (deadlineMs: number) => {
    const body = encodeExists({ pool: '', wantsFlags: false, suffixes: [], keys: ['a'] });
    return client.send(RequestType.exists, body, { deadlineMs });
  };
  const cancelled = ask(0);
  await until(() => store.calls.length === 1);
  client.send(RequestType.cancel, numberBody(cancelled));
  await client.answerTo(cancelled);
  t.like(server.clients()[0], { lookups: 0, found: 0 });
  await client.answerTo(ask(2_000));
  t.like(server.clients()[0], { lookups: 1, found: 0 });
});

test('client lookups: a statement that cannot be ends the connection', async (t) => {
  t.deepEqual(decodeLookups(encodeLookups({ asked: 2 ** 40, found: 7 })), { asked: 2 ** 40, found: 7 });
  const store = await startNode(t);
  for (const body of [encodeLookups({ asked: 1, found: 2 }), Buffer.alloc(15), Buffer.alloc(17)]) {
    const client = await TestClient.attach(t, store.clientSocket);
    client.send(RequestType.lookups, body);
    await client.closed;
  }
  t.deepEqual(await countedBy(store), { asked: 0, found: 0 });
});

test('client lookups: of Redis clients only EXISTS is one, of each key by itself', async (t) => {
  const [store] = await startRespNodes(t, 1);
  const client = await RawClient.connect(t, placeOf(store as MeshCacheStore));
  client.send(
    commandOf('MSET', 'a', '1', 'b', '2'),
    commandOf('EXISTS', 'none', 'a', 'b', 'a'),
    commandOf('EXISTS', 'c'),
  );
  t.is(await client.text('+OK\r\n:3\r\n:0\r\n'), '+OK\r\n:3\r\n:0\r\n');
  t.deepEqual(await countedBy(store as MeshCacheStore), { asked: 5, found: 3 });
  client.send(commandOf('TYPE', 'a'), commandOf('GET', 'none'), commandOf('DEL', 'a', 'none'));
  t.is(await client.text('+string\r\n$-1\r\n:1\r\n'), '+string\r\n$-1\r\n:1\r\n');
  t.deepEqual(await countedBy(store as MeshCacheStore), { asked: 5, found: 3 });
});
