import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import {
  decodeBytesAnswer,
  encodeExists,
  encodeKeyRequest,
  encodePools,
  LENGTH_MISS,
  RequestType,
} from '../../src/clients/wire/messages.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { regionBody, setBytes, setBytesBody, startNode, startNodes } from '../_support/clients/client-fixture.js';
import { TestClient } from '../_support/clients/test-client.js';
import { content, until } from '../_support/support.js';

const NAMESPACE = { modelName: 'other', tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };

function exists(keys: string[], { pool = '', suffixes = [] as string[], wantsFlags = true } = {}): Buffer {
  return encodeExists({ pool, wantsFlags, suffixes, keys });
}

function keysBody(keys: string[], { pool = '', hasFlags = false } = {}): Buffer {
  return encodeKeyRequest(pool, keys, { hasFlags });
}

async function getBytes(client: TestClient, keys: string[], pool = ''): Promise<(Buffer | number)[]> {
  const body = await client.ok(RequestType.getBytes, keysBody(keys, { pool, hasFlags: true }));
  return decodeBytesAnswer(body, keys.length).map((page) => (typeof page === 'number' ? page : Buffer.from(page)));
}

const page = (seed: number, length = 1000): Buffer => Buffer.from(content(seed, length));

test('client requests: pages that are set by bytes are those of the node’s namespace, here and on other nodes', async (t) => {
  const [here, there] = (await startNodes(t, 2)) as [MeshCacheStore, MeshCacheStore];
  const client = await TestClient.attach(t, here.clientSocket);
  const far = await TestClient.attach(t, there.clientSocket, { name: 'far' });
  t.deepEqual(await setBytes(client, { a: page(1), b: page(2, 1) }), [1, 1]);
  t.deepEqual(await here.get('a'), new Uint8Array(page(1)));
  t.deepEqual(await there.get('b'), new Uint8Array(page(2, 1)));
  t.deepEqual(await getBytes(far, ['b', 'none', 'a', 'b']), [page(2, 1), LENGTH_MISS, page(1), page(2, 1)]);
  t.true(await there.set('c', content(3, 70_000)));
  t.deepEqual(await getBytes(client, ['c']), [page(3, 70_000)]);
  t.like(here.clients()[0], {
    name: 'test',
    mode: 'bytes',
    hits: 1,
    pages_written: 2,
    written_bytes: 1001,
    regions: 0,
  });
});

test('client requests: EXISTS gives the prefix without a gap, and flags where they are wanted', async (t) => {
  const store = await startNode(t);
  const client = await TestClient.attach(t, store.clientSocket);
  await setBytes(client, { a: page(1), b: page(2), d: page(3), 'd-k': page(4), 'd-v': page(5), 'a-k': page(6) });
  const ask = async (body: Buffer) => [...(await client.ok(RequestType.exists, body))];
  t.deepEqual(await ask(exists(['a', 'b', 'c', 'd'])), [2, 0, 0, 0, 1, 1, 0, 1]);
  t.deepEqual(await ask(exists(['a', 'b', 'c', 'd'], { wantsFlags: false })), [2, 0, 0, 0]);
  t.deepEqual(await ask(exists(['d', 'a'], { suffixes: ['-k', '-v'] })), [1, 0, 0, 0, 1, 0]);
  t.deepEqual(await ask(exists(['d', 'a'], { suffixes: ['-k'] })), [2, 0, 0, 0, 1, 1]);
  t.deepEqual(await ask(exists(['a'], { pool: 'mamba' })), [0, 0, 0, 0, 0], 'another pool');
  t.deepEqual(await ask(exists(['a'], { pool: 'kv' })), [1, 0, 0, 0, 1], 'the main pool by its name');
  t.deepEqual(await ask(exists([])), [0, 0, 0, 0]);
  t.is(await store.batchExists(['a', 'b', 'c']), 2);
});

test('client requests: no keys are no failure', async (t) => {
  const client = await TestClient.attach(t, (await startNode(t)).clientSocket);
  const bodies: [number, Buffer][] = [
    [RequestType.get, regionBody([], [])],
    [RequestType.set, regionBody([], [])],
    [RequestType.getBytes, keysBody([], { hasFlags: true })],
    [RequestType.setBytes, setBytesBody({})],
    [RequestType.delete, keysBody([])],
  ];
  for (const [type, body] of bodies) t.is((await client.ok(type, body)).length, 0, `type ${type}`);
  t.is((await client.ok(RequestType.stat, keysBody([]))).toString(), '[]');
});

test('client requests: keys of 0 bytes, the longest keys and those twice in one request', async (t) => {
  const store = await startNode(t);
  const client = await TestClient.attach(t, store.clientSocket);
  const long = 'ü'.repeat(32_767);
  t.deepEqual(await setBytes(client, { '': page(1), [long]: page(2) }), [1, 1]);
  t.deepEqual(await getBytes(client, ['', long, '', '']), [page(1), page(2), page(1), page(1)]);
  t.deepEqual(await store.get(''), new Uint8Array(page(1)));
  const twice = setBytesBody({ x: page(3), y: page(4) })
    .toString('latin1')
    .replace('xy', 'xx');
  const flags = [...(await client.ok(RequestType.setBytes, Buffer.from(twice, 'latin1')))];
  t.true(flags.includes(1));
  const [found] = await getBytes(client, ['x']);
  t.true(page(3).equals(found as Buffer) || page(4).equals(found as Buffer), 'one of the two, whole');
});

test('client requests: of a name the newest content is there, of what is computed the first is as good', async (t) => {
  const store = await startNode(t);
  const client = await TestClient.attach(t, store.clientSocket);
  for (const seed of [1, 2]) {
    await client.ok(RequestType.setBytes, setBytesBody({ named: page(seed) }, { isNamed: true }));
    await client.ok(RequestType.setBytes, setBytesBody({ computed: page(seed) }));
  }
  const [named, computed] = await getBytes(client, ['named', 'computed']);
  t.deepEqual(named, page(2));
  t.true(page(1).equals(computed as Buffer) || page(2).equals(computed as Buffer));
});

test('client requests: DELETE takes pages from every node', async (t) => {
  const [here, there] = (await startNodes(t, 2)) as [MeshCacheStore, MeshCacheStore];
  const client = await TestClient.attach(t, here.clientSocket);
  await there.set('a', content(1, 100));
  await setBytes(client, { b: page(2) });
  t.deepEqual([...(await client.ok(RequestType.delete, keysBody(['a', 'b', 'none'])))], [1, 1, 1]);
  t.deepEqual(await getBytes(client, ['a', 'b']), [LENGTH_MISS, LENGTH_MISS]);
  t.is(await there.get('a'), null);
});

test('client requests: STAT names the nodes that have a page', async (t) => {
  const [here, there] = (await startNodes(t, 2)) as [MeshCacheStore, MeshCacheStore];
  const client = await TestClient.attach(t, here.clientSocket);
  await there.set('far', content(1, 100));
  await setBytes(client, { near: page(2, 7) });
  const ask = async (keys: string[]) => JSON.parse((await client.ok(RequestType.stat, keysBody(keys))).toString());
  t.deepEqual(await ask(['far', 'none', 'near']), [
    { length: 100, holders: [{ node_id: there.runtime.nodeId, tier: 'memory' }] },
    null,
    { length: 7, holders: [{ node_id: here.runtime.nodeId, tier: 'memory' }] },
  ]);
  t.is((await client.request(RequestType.stat, keysBody(Array(257).fill('k')))).header.status, 1);
});

for (const hasDisk of [false, true]) {
  test(`client requests: CLEAR drops all pools of one namespace, and of no other${hasDisk ? ', with a disk' : ''}`, async (t) => {
    const diskPath = mkdtempSync(join(tmpdir(), 'meshcache-clients-disk-'));
    t.teardown(() => rmSync(diskPath, { recursive: true, force: true }));
    const disk = hasDisk ? { disk_enabled: true, disk_path: diskPath, disk_size: '256mb' } : {};
    const store = await startNode(t, disk);
    const own = await TestClient.attach(t, store.clientSocket, { name: 'own' });
    const one = await TestClient.attach(t, store.clientSocket, { name: 'one', namespace: NAMESPACE });
    const two = await TestClient.attach(t, store.clientSocket, { name: 'two', namespace: NAMESPACE });
    const fill = async (client: TestClient): Promise<void> => {
      for (const pool of ['', 'mamba']) {
        await client.ok(RequestType.setBytes, setBytesBody({ a: page(1) }, { pool }));
      }
    };
    const left = async (client: TestClient) =>
      Promise.all(['', 'mamba'].map(async (pool) => (await getBytes(client, ['a'], pool))[0] !== LENGTH_MISS));
    await fill(own);
    await fill(one);
    t.deepEqual(await store.namespace(NAMESPACE).get('a'), new Uint8Array(page(1)));
    // Cause: each connection knew of the pools that it had used itself, and left those of others.
    await two.ok(RequestType.clear, encodePools([]));
    t.deepEqual(await left(one), [false, false]);
    t.deepEqual(await left(own), [true, true]);
    await fill(one);
    await store.namespace(NAMESPACE).clear();
    t.deepEqual(await left(two), [false, false]);
    await fill(one);
    await own.ok(RequestType.clear, encodePools(['never used']));
    t.deepEqual(
      [await left(own), await left(two)],
      [
        [false, false],
        [true, true],
      ],
    );
  });
}

test('client requests: namespaces never meet', async (t) => {
  const store = await startNode(t);
  const [own, other] = await Promise.all([
    TestClient.attach(t, store.clientSocket),
    TestClient.attach(t, store.clientSocket, { namespace: NAMESPACE }),
  ]);
  await setBytes(other, { a: page(1) });
  t.deepEqual(await getBytes(own, ['a']), [LENGTH_MISS]);
  t.is(await store.get('a'), null);
  await setBytes(own, { a: page(2) });
  t.deepEqual(await getBytes(other, ['a']), [page(1)]);
});

test('client requests: PING, STATS and FILE', async (t) => {
  const store = await startNode(t);
  const client = await TestClient.attach(t, store.clientSocket);
  t.deepEqual(await client.ok(RequestType.ping), client.hello.bootToken);
  const stats = JSON.parse((await client.ok(RequestType.stats)).toString());
  t.like(stats.client, { name: 'test', pid: 1, mode: 'bytes', requests: 2 });
  t.is(stats.node.pool_capacity_bytes, store.stats().poolCapacityBytes);
  t.is((await client.request(RequestType.file, Buffer.alloc(24))).header.status, 1, 'region 0 is the staging memory');
  for (const type of [RequestType.ping, RequestType.stats]) {
    t.is((await client.request(type, Buffer.from('x'))).header.status, 1, 'they have no body');
  }
  t.is(client.hello.pid, process.pid);
  t.is(client.hello.nodeId, store.runtime.nodeId);
});

test('client requests: a page that does not fit into any answer is a miss, one that does not fit beside others is not', async (t) => {
  const store = await startNode(t, { global_segment_size: '192mb' });
  const client = await TestClient.attach(t, store.clientSocket);
  const [large, half] = [content(1, 65 * 2 ** 20), content(2, 40 * 2 ** 20)];
  t.true(await store.set('large', large));
  t.true(await store.set('half', half));
  t.deepEqual(await getBytes(client, ['large']), [LENGTH_MISS]);
  const [first, second, third] = await getBytes(client, ['half', 'half', 'none']);
  t.true(Buffer.from(half).equals(first as Buffer));
  t.is(second, 0xfffffffe);
  t.is(third, LENGTH_MISS);
});

test('client requests: the node’s close ends clients, and removes both sockets', async (t) => {
  const store = await startNode(t);
  const path = store.clientSocket;
  const client = await TestClient.attach(t, path);
  t.true(existsSync(path));
  const asked = Array.from({ length: 50 }, (_, i) =>
    client.request(RequestType.getBytes, keysBody([`k${i}`], { hasFlags: true })),
  );
  const ended = Promise.allSettled(asked);
  await store.close();
  await client.closed;
  await ended;
  t.false(existsSync(path));
  t.false(existsSync(`${path}.fds`));
  t.deepEqual(store.clients(), []);
  await until(() => client.isClosed);
});

test('client requests: keys with suffixes are bounded together', async (t) => {
  // Cause: a body of some MiB made texts of several GiB.
  const client = await TestClient.attach(t, (await startNode(t)).clientSocket);
  const keys = Array.from({ length: 40 }, (_, i) => `${i}`.padEnd(60_000, 'k'));
  const suffixes = Array.from({ length: 255 }, (_, i) => `-${i}`);
  const refused = await client.request(RequestType.exists, exists(keys, { suffixes }));
  t.is(refused.header.status, 1);
  t.regex(String(refused.body), /keys of \d+ bytes with their suffixes/);
  const many = await client.request(RequestType.exists, exists(Array(300).fill('k'), { suffixes }));
  t.regex(String(many.body), /300 keys with 255 suffixes/);
  t.is((await client.ok(RequestType.exists, exists(keys, { suffixes: ['-k'] }))).length, 44);
});

test('client requests: pools are bounded', async (t) => {
  const client = await TestClient.attach(t, (await startNode(t)).clientSocket, { namespace: NAMESPACE });
  const statusOf = async (pool: string) =>
    (await client.request(RequestType.exists, exists(['a'], { pool }))).header.status;
  t.is(await statusOf('x'.repeat(257)), 1);
  // The main one is among them.
  for (let i = 0; i < 255; i++) t.is(await statusOf(`pool-${i}`), 0);
  t.is(await statusOf('one more'), 4);
  t.is(await statusOf('pool-7'), 0);
  t.is((await client.request(RequestType.clear, encodePools(['one more']))).header.status, 4);
});
