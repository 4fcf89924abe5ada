import test, { type ExecutionContext } from 'ava';
import { CLIENT_BODY_MAX_BYTES } from '../../src/base/limits.js';
import type { MeshCacheClient } from '../../src/client/meshcache-client.js';
import type { HostRegion } from '../../src/memory/host-region.js';
import type { PoolTransfer } from '../../src/store/namespace/hybrid.js';
import { attach, memoryOf } from '../_support/client/attached-nodes.js';
import { startNode } from '../_support/clients/client-fixture.js';
import { serialWithAddon, suffix } from '../_support/native/addon.js';
import { content, until } from '../_support/support.js';

const KIB = 2 ** 10;
const MIB = 2 ** 20;

async function moved(client: MeshCacheClient): Promise<{ direct: number; socket: number }> {
  const { directBytes, socketBytes } = await client.stats();
  return { direct: directBytes, socket: socketBytes };
}

/** Sets what lies at the start of the region and reads it back behind that; whether both were done, with the bytes. */
async function roundTrip(
  t: ExecutionContext,
  client: MeshCacheClient,
  region: HostRegion,
  { key, size }: { readonly key: string; readonly size: number },
): Promise<void> {
  const page = content(size, size);
  region.bytes(0, size).set(page);
  t.true(await client.set(key, region.addr, size), `${size} bytes are set`);
  t.true(await client.get(key, region.addr + BigInt(size), size), `${size} bytes are read`);
  t.true(Buffer.from(page.buffer).equals(region.bytes(size, size)), `${size} bytes are the same`);
}

serialWithAddon(`client: pages in shared memory are moved by the node, of any size${suffix}`, async (t) => {
  const node = await startNode(t);
  const client = await attach(t, node.clientSocket);
  const region = memoryOf(t, 8 * MIB, { shared: true });
  let bytes = 0;
  for (const size of [1, 2, 4095, 4097, 64 * KIB, 3 * MIB + 1]) {
    await roundTrip(t, client, region, { key: `page-${size}`, size });
    bytes += 2 * size;
    t.deepEqual(await moved(client), { direct: bytes, socket: 0 });
  }
  const [info] = node.clients();
  t.is(info?.regions, 1, 'the region is registered once');
});

for (const [how, options, mode] of [
  ['memory of its own', {}, 'auto'],
  ['shared memory, by bytes', { shared: true }, 'bytes'],
] as const) {
  test.serial(`client: pages go on the socket from ${how}`, async (t) => {
    const client = await attach(t, (await startNode(t)).clientSocket, { mode });
    const region = memoryOf(t, 8 * MIB, options);
    let bytes = 0;
    for (const size of [1, 64 * KIB, 64 * KIB + 1, 3 * MIB + 1]) {
      await roundTrip(t, client, region, { key: `page-${size}`, size });
      bytes += 2 * size;
      t.deepEqual(await moved(client), { direct: 0, socket: bytes });
    }
  });
}

serialWithAddon(`client: a call has pages in both kinds of memory, of several pieces each${suffix}`, async (t) => {
  const client = await attach(t, (await startNode(t)).clientSocket);
  const shared = memoryOf(t, MIB, { shared: true });
  const own = memoryOf(t, MIB);
  const keys = Array.from({ length: 6 }, (_, i) => `page-${i}`);
  // Odd pages have one of their two pieces in memory that the node cannot have.
  const pool = {
    region: [shared, own],
    getPageBufferMeta: (indices: ArrayLike<number | bigint>) => {
      const places = Array.from(indices, (index) => Number(index)).flatMap((index) => [
        shared.addr + BigInt(index * 1000),
        (index % 2 === 0 ? shared : own).addr + BigInt(500_000 + index * 3000),
      ]);
      return { ptrs: places, sizes: places.map((_, i) => (i % 2 === 0 ? 1000 : 3000)) };
    },
  };
  await client.registerMemPoolHost(pool);
  shared.bytes().set(content(1, MIB));
  own.bytes().set(content(2, MIB));
  const before = [Buffer.from(shared.bytes()), Buffer.from(own.bytes())];
  const indices = keys.map((_, i) => i);
  t.deepEqual(
    await client.batchSetV1(keys, indices),
    keys.map(() => true),
  );
  t.deepEqual(await moved(client), { direct: 3 * 4000, socket: 3 * 4000 });
  for (const region of [shared, own]) region.bytes().fill(0);
  const wanted: PoolTransfer[] = [{ name: 'kv', keys, hostIndices: indices }];
  t.deepEqual(await client.batchGetV2(wanted), { kv: keys.map(() => true) });
  for (const index of indices) {
    const second = index % 2 === 0 ? shared : own;
    const was = before[index % 2] as Buffer;
    t.true((before[0] as Buffer).subarray(index * 1000, (index + 1) * 1000).equals(shared.bytes(index * 1000, 1000)));
    const at = 500_000 + index * 3000;
    t.true(was.subarray(at, at + 3000).equals(second.bytes(at, 3000)), `page ${index}`);
  }
});

test.serial('client: a page that no body has room for is a miss on the socket', async (t) => {
  const node = await startNode(t, { global_segment_size: '256mb' });
  const client = await attach(t, node.clientSocket);
  const size = CLIENT_BODY_MAX_BYTES + 1;
  const page = new Uint8Array(size).fill(7);
  t.false(await client.set('large', page));
  t.false(await client.exists('large'));
  t.true(await node.set('large', page));
  t.is(await client.get('large'), null);
  t.false(await client.get('large', new Uint8Array(size)));
  t.true(await client.exists('large'));
  // The largest that has room, beside others in the same call.
  const memory = memoryOf(t, size + 64 * KIB);
  memory.bytes(0, 64 * KIB).set(content(1, 64 * KIB));
  const largest = CLIENT_BODY_MAX_BYTES - 4;
  t.true(await node.set('fits', page.subarray(0, largest)));
  t.true(await node.set('small', content(1, 64 * KIB)));
  const results = await client.batchGet(
    ['small', 'fits'],
    [memory.addr, memory.addr + BigInt(64 * KIB)],
    [64 * KIB, largest],
  );
  t.deepEqual(results, [true, true]);
  t.true(memory.bytes(64 * KIB, largest).every((byte) => byte === 7));
});

serialWithAddon(`client: a page that no body has room for goes direct${suffix}`, async (t) => {
  const client = await attach(t, (await startNode(t, { global_segment_size: '256mb' })).clientSocket);
  const size = CLIENT_BODY_MAX_BYTES + 1;
  await roundTrip(t, client, memoryOf(t, 2 * size, { shared: true }), { key: 'large', size });
});

test.serial('client: a call has more pages than a body', async (t) => {
  const node = await startNode(t, { global_segment_size: '256mb' });
  const client = await attach(t, node.clientSocket);
  const size = 5 * MIB + 3;
  const count = 16;
  const memory = memoryOf(t, count * size);
  for (let i = 0; i < count; i++) memory.bytes(i * size, size).fill(i + 1);
  const keys = Array.from({ length: count }, (_, i) => `page-${i}`);
  const ptrs = keys.map((_, i) => memory.addr + BigInt(i * size));
  const sizes = keys.map(() => size);
  t.deepEqual(
    await client.batchSet(keys, ptrs, sizes),
    keys.map(() => true),
  );
  memory.bytes().fill(0);
  t.deepEqual(
    await client.batchGet(keys, ptrs, sizes),
    keys.map(() => true),
  );
  for (let i = 0; i < count; i++)
    t.true(
      memory.bytes(i * size, size).every((byte) => byte === i + 1),
      `page ${i}`,
    );
});

test.serial('client: a call has more keys than a request, and than a body', async (t) => {
  const node = await startNode(t);
  const client = await attach(t, node.clientSocket);
  const last = 'the last one';
  t.true(await node.set(last, content(1, 10)));
  const many = Array.from({ length: 70_000 }, () => last);
  t.is(await client.batchExists(many), many.length);
  // Cause: their bytes were not counted, and the node ended the connection.
  const long = 'x'.repeat(60_000);
  t.true(await node.set(long, content(2, 10)));
  const longKeys = Array.from({ length: 2_400 }, () => long);
  t.is(await client.batchExists([...longKeys, last]), 2_401);
  t.deepEqual(new Set(await client.delete([...longKeys, last])), new Set([true]));
  t.false(await node.exists(long));
});

serialWithAddon(`client: a region that is freed is forgotten by the node, and another is taken${suffix}`, async (t) => {
  const node = await startNode(t);
  const client = await attach(t, node.clientSocket);
  // More than a node has for one client, one after the other.
  for (let i = 0; i < 70; i++) {
    const region = memoryOf(t, 64 * KIB, { shared: true });
    await roundTrip(t, client, region, { key: `page-${i}`, size: 1000 + i });
    region.free();
  }
  t.is((await moved(client)).socket, 0);
  await until(() => node.clients()[0]?.regions === 0);
});

serialWithAddon(`client: regions may be freed while calls are under way${suffix}`, async (t) => {
  const node = await startNode(t);
  const client = await attach(t, node.clientSocket);
  const kept = memoryOf(t, MIB, { shared: true });
  await roundTrip(t, client, kept, { key: 'kept', size: 1000 });
  for (let i = 0; i < 50; i++) {
    const region = memoryOf(t, 256 * KIB, { shared: true });
    region.bytes().set(content(i, 256 * KIB));
    const keys = Array.from({ length: 8 }, (_, k) => `${i}-${k}`);
    const ptrs = keys.map((_, k) => region.addr + BigInt(k * 8 * KIB));
    const sizes = keys.map(() => 8 * KIB);
    const set = client.batchSet(keys, ptrs, sizes);
    if (i % 2 === 0) await set;
    const got = client.batchGet(keys, ptrs, sizes);
    if (i % 3 === 0) await new Promise((resolve) => setImmediate(resolve));
    region.free();
    await Promise.all([set, got]);
  }
  await roundTrip(t, client, kept, { key: 'kept', size: 2000 });
  const { direct } = await moved(client);
  await roundTrip(t, client, kept, { key: 'still direct', size: 3000 });
  t.is((await moved(client)).direct, direct + 6000);
  await until(() => (node.clients()[0]?.regions ?? 0) <= 1);
});

serialWithAddon(
  `client: memory that nobody has touched is touched by the client if the node does not pay${suffix}`,
  async (t) => {
    const node = await startNode(t, { global_segment_size: '512mb' });
    const client = await attach(t, node.clientSocket);
    const region = memoryOf(t, 512 * MIB, { shared: true });
    const length = 90 * MIB;
    t.true(await client.set('page', region.addr, length));
    t.true(await client.get('page', region.addr + BigInt(256 * MIB), length));
    t.deepEqual(await moved(client), { direct: 2 * length, socket: 0 });
  },
);
