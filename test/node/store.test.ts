import test, { type ExecutionContext } from 'ava';
import { ArgumentError, ClosedError, ConfigError } from '../../src/base/errors.js';
import { KeyEncoder } from '../../src/core/index.js';
import { HostRegion } from '../../src/memory/host-region.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { DataLocation } from '../../src/types.js';
import { createCluster, createStore, TestHostPool } from '../_support/node/store-fixture.js';
import { content, freePort, until } from '../_support/support.js';

const PAGE_BYTES = 64 * 1024;

async function cluster(t: ExecutionContext, count: number, extra: Record<string, unknown> = {}) {
  const stores = await createCluster(count, extra);
  t.teardown(() => Promise.all(stores.map((store) => store.close())));
  return stores as [MeshCacheStore, MeshCacheStore, MeshCacheStore];
}

function freeAll(regions: readonly HostRegion[]): void {
  for (const region of regions) region.free();
}

test.serial('store: a page set on one node is read on every node, byte for byte', async (t) => {
  const stores = await cluster(t, 3);
  const pages = Array.from({ length: 12 }, (_, i) => content(i, PAGE_BYTES + i));
  for (const [i, page] of pages.entries()) t.true(await stores[(i % 3) as 0].set(`key ${i}`, page));
  for (const store of stores) {
    for (const [i, page] of pages.entries()) {
      t.deepEqual(await store.get(`key ${i}`), page);
      const into = new Uint8Array(page.length);
      t.true(await store.get(`key ${i}`, into));
      t.deepEqual(into, page);
      t.true(await store.exists(`key ${i}`));
    }
    t.is(store.stats().hits.local, 8);
    t.is(store.stats().hits.remote, 16);
  }
});

test.serial('store: a page of K and V is one entry, the same as its bytes one after the other', async (t) => {
  const [a, b] = await cluster(t, 2);
  const from = new TestHostPool(4, 4096, 2, 2);
  const to = new TestHostPool(4, 4096, 2, 2);
  t.teardown(() => freeAll([from.region, to.region]));
  from.region.bytes().set(content(7, from.region.length));
  await a.registerMemPoolHost(from);
  await b.registerMemPoolHost(to);
  const keys = ['p0', 'p1', 'p2'];

  t.deepEqual(await a.batchSetV1(keys, from.indices(1, 3)), [true, true, true]);
  t.deepEqual(await b.batchGetV1([...keys, 'p3'], to.indices(0, 4)), [true, true, true, false]);
  for (let i = 0; i < 3; i++) {
    t.deepEqual(to.component(i, 0), from.component(i + 1, 0));
    t.deepEqual(to.component(i, 1), from.component(i + 1, 1));
  }
  const whole = await b.get('p1');
  t.deepEqual(whole, new Uint8Array([...from.component(2, 0), ...from.component(2, 1)]));
  t.is(await b.batchExists([...keys, 'p3']), 3);
  t.is(await b.batchExists(['p3', ...keys]), 0);
});

test.serial('store: set by K then V in one array is read back as components', async (t) => {
  const [a, b] = await cluster(t, 2);
  const to = new TestHostPool(1, 1000, 2);
  t.teardown(() => to.region.free());
  await b.registerMemPoolHost(to);
  const page = content(3, 2000);
  t.true(await a.set('kv', page));
  t.deepEqual(await b.batchGetV1(['kv'], [0]), [true]);
  t.deepEqual(to.component(0, 0), page.slice(0, 1000));
  t.deepEqual(to.component(0, 1), page.slice(1000));
});

test.serial('store: setting the same bytes again copies nothing and is true, other bytes replace', async (t) => {
  const [a, b] = await cluster(t, 2);
  const first = content(1, PAGE_BYTES);
  const second = content(2, PAGE_BYTES);
  t.true(await a.set('k', first));
  const used = a.stats().poolUsedBytes;
  t.true(await a.set('k', first));
  t.is(a.stats().poolUsedBytes, used);
  t.is(a.stats().quarantinedBytes, 0);
  t.true(await a.set('k', second));
  t.deepEqual(await a.get('k'), second);
  t.deepEqual(await b.get('k'), second);
});

test.serial('store: a size other than the stored length is a miss, here and elsewhere', async (t) => {
  const [a, b] = await cluster(t, 2);
  t.true(await a.set('k', content(1, 1000)));
  for (const store of [a, b]) {
    t.false(await store.get('k', new Uint8Array(999)));
    t.false(await store.get('k', new Uint8Array(1001)));
  }
});

test.serial('store: namespaces never meet', async (t) => {
  const port = await freePort();
  const a = await createStore(port, { namespace: 'one' });
  const b = await createStore(port, { namespace: 'two' });
  const c = await createStore(port, { namespace: 'one', dtype: 'fp8' });
  t.teardown(() => Promise.all([a, b, c].map((store) => store.close())));
  await until(() => [a, b, c].every((store) => store.stats().members === 3));
  t.true(await a.set('k', content(1, 100)));
  t.false(await b.exists('k'));
  t.is(await c.get('k'), null);
});

test.serial('store: evicted pages are misses on every node and their directory entries go', async (t) => {
  const [a, b] = await cluster(t, 2, { global_segment_size: '1mb', reuse_quarantine_ms: 0 });
  for (let i = 0; i < 64; i++) t.true(await a.set(`k${i}`, content(i, PAGE_BYTES)));
  await until(async () => (await b.batchExists(['k0'])) === 0);
  t.is(await b.get('k0'), null);
  t.deepEqual(await b.get('k63'), content(63, PAGE_BYTES));
  t.true(a.stats().evictions >= 48);
});

test.serial('store: a page larger than the pool is refused and hurts nothing', async (t) => {
  const [a] = await cluster(t, 1, { global_segment_size: '1mb' });
  t.true(await a.set('small', content(1, 1000)));
  t.false(await a.set('large', content(2, 2 << 20)));
  t.deepEqual(await a.get('small'), content(1, 1000));
});

test.serial('store: clear drops the own pages and nothing of other nodes', async (t) => {
  const [a, b] = await cluster(t, 2);
  t.true(await a.set('of a', content(1, 100)));
  t.true(await b.set('of b', content(2, 100)));
  await a.clear();
  t.false(await a.exists('of a'));
  t.false(await b.exists('of a'));
  t.deepEqual(await a.get('of b'), content(2, 100));
  t.is(a.stats().poolEntries, 0);
});

test.serial('store: hybrid pools have their own entries and a common boundary', async (t) => {
  const [a, b] = await cluster(t, 2);
  const kv = new TestHostPool(4, 512, 2);
  const index = new TestHostPool(4, 128, 1);
  t.teardown(() => freeAll([kv.region, index.region]));
  for (const pool of [kv, index]) pool.region.bytes().set(content(pool.componentBytes, pool.region.length));
  for (const store of [a, b]) {
    await store.registerMemPoolHost(kv);
    await store.registerMemHostPoolV2(index, 'indexer');
  }
  const keys = ['p0', 'p1', 'p2', 'p3'];
  t.deepEqual(
    await a.batchSetV2([
      { name: 'kv', keys, hostIndices: [0, 1, 2, 3] },
      { name: 'indexer', keys: keys.slice(0, 2), hostIndices: [0, 1] },
      { name: 'mamba', keys: null, hostIndices: null },
    ]),
    { kv: [true, true, true, true], indexer: [true, true], mamba: [] },
  );
  const transfer = { name: 'indexer', keys: null, hostIndices: null };
  t.deepEqual(await b.batchExistsV2(keys), { kvHitPages: 4, extraPoolHitPages: {} });
  t.deepEqual(await b.batchExistsV2(keys, [transfer]), { kvHitPages: 2, extraPoolHitPages: { indexer: 2 } });
  t.deepEqual(await b.batchExistsV2(keys, [{ ...transfer, keys: ['', ''], hitPolicy: 'trailing_pages' }]), {
    kvHitPages: 2,
    extraPoolHitPages: { indexer: 2 },
  });
  const before = index.component(1, 0).slice();
  index.component(3, 0).fill(0);
  t.deepEqual(await b.batchGetV2([{ name: 'indexer', keys: ['p1', 'p2'], hostIndices: [3, 2] }]), {
    indexer: [true, false],
  });
  t.deepEqual(index.component(3, 0), before);
});

test.serial(
  'store: a node that joins later finds every key, and so does everybody when shards have moved to it',
  async (t) => {
    const port = await freePort();
    const a = await createStore(port);
    const keys = Array.from({ length: 200 }, (_, i) => `k${i}`);
    for (const [i, key] of keys.entries()) t.true(await a.set(key, content(i, 512)));
    const b = await createStore(port);
    const c = await createStore(port);
    const stores = [a, b, c];
    t.teardown(() => Promise.all(stores.map((store) => store.close())));
    for (const store of stores) await until(async () => (await store.batchExists(keys)) === keys.length);
    t.deepEqual(await c.get('k77'), content(77, 512));
  },
);

test.serial('store: a node that leaves is forgotten at once, what the others have stays', async (t) => {
  const [a, b, c] = await cluster(t, 3);
  for (let i = 0; i < 30; i++) t.true(await (i % 2 === 0 ? a : c).set(`k${i}`, content(i, 512)));
  await c.close();
  await until(() => a.stats().members === 2 && b.stats().members === 2);
  for (let i = 0; i < 30; i++) {
    if (i % 2 === 0) await until(() => b.exists(`k${i}`));
    t.deepEqual(await b.get(`k${i}`), i % 2 === 0 ? content(i, 512) : null);
  }
});

test.serial('store: empty batches are empty results', async (t) => {
  const [a] = await cluster(t, 1);
  const pool = new TestHostPool(1, 64, 1);
  t.teardown(() => pool.region.free());
  await a.registerMemPoolHost(pool);
  t.deepEqual(await a.batchSetV1([], []), []);
  t.deepEqual(await a.batchGetV1([], []), []);
  t.deepEqual(await a.batchSet([], [], []), []);
  t.deepEqual(await a.batchGet([], [], []), []);
  t.is(await a.batchExists([]), 0);
  t.deepEqual(await a.batchSetV2([]), {});
  t.deepEqual(await a.batchExistsV2([]), { kvHitPages: 0, extraPoolHitPages: {} });
});

for (const [name, key] of [
  ['of no characters', ''],
  ['of one character', 'x'],
  ['of 10,000 characters', 'k'.repeat(10_000)],
  ['outside of ASCII', 'ключ-鍵-🗝️-\u0000-é'],
] as const) {
  test.serial(`store: a key ${name} works like any other`, async (t) => {
    const [a, b] = await cluster(t, 2);
    const page = content(key.length, 777);
    t.false(await b.exists(key));
    t.true(await a.set(key, page));
    t.deepEqual(await b.get(key), page);
    t.false(await b.exists(`${key}x`));
  });
}

test.serial('store: wrong arguments throw before anything is touched', async (t) => {
  const [a] = await cluster(t, 1);
  const region = HostRegion.allocate(4096);
  const pool = new TestHostPool(2, 64, 1, 2);
  t.teardown(() => freeAll([region, pool.region]));
  const refused = async (call: () => Promise<unknown>, message: RegExp) => {
    await t.throwsAsync(call, { instanceOf: ArgumentError, message });
  };
  await refused(() => a.batchSetV1(['k'], [0, 1]), /no host memory pool is registered/);
  await a.registerMemPoolHost(pool);
  await refused(() => a.batchSetV1(['k'], [0]), /1 keys with 2 tokens a page need 2 host indices, got 1/);
  await refused(() => a.batchSetV1(['k'], '01' as never), /host indices must be an array of numbers, got string/);
  await refused(() => a.batchSet(['a', 'b'], [region.addr], [1]), /2 keys, 1 pointers and 1 sizes/);
  await refused(() => a.batchGet(['a'], [region.addr], [1, 2]), /1 keys, 1 pointers and 2 sizes/);
  await refused(() => a.set('k', 12345n, 10), /10 bytes from address 12345/);
  await refused(() => a.set('k', -1n, 10), /address -1/);
  await refused(() => a.set('k', 1n << 70n, 10), /not within a live HostRegion/);
  await refused(() => a.set('k', region.addr, 4097), /not within a live HostRegion/);
  await refused(() => a.set('k', region.addr, 0), /got 0/);
  await refused(() => a.set('k', region.addr, 1.5), /got 1.5/);
  await refused(() => a.set('k', region.addr, Number.NaN), /got NaN/);
  await refused(() => a.set('k', new Uint8Array(0)), /at least 1 byte/);
  await refused(() => a.get('k', region.addr, -5), /got -5/);
  await refused(() => a.set(7 as unknown as string, new Uint8Array(1)), /key 0 must be a string/);
  await refused(() => a.batchExists('abc' as unknown as string[]), /keys must be an array/);
  await refused(() => a.set('\ud800', new Uint8Array(1)), /surrogate|well-formed/);
  await refused(() => a.set('k'.repeat(70_000), new Uint8Array(1)), /65536|bytes/);
  await refused(() => a.registerMemHostPoolV2(pool, ''), /name/);
  await refused(() => a.batchSetV2(undefined as never), /transfers must be an array/);
  await refused(() => a.batchExistsV2(['k'], null as never), /transfers must be an array/);
  await refused(() => a.batchExistsV2(['k'], [{ keys: null, hostIndices: null } as never]), /transfer 0: name/);
  await refused(
    () => a.batchExistsV2(['k'], [{ name: 'x', keys: null, hostIndices: null, hitPolicy: 'some' as never }]),
    /hitPolicy must be all_pages or trailing_pages, got some/,
  );
  await refused(() => a.registerMemPoolHost({ ...pool, region: 5 } as never), /HostRegion/);
  t.is(a.stats().poolEntries, 0);
});

test.serial('store: bad settings are refused when the store is created', async (t) => {
  const port = await freePort();
  await t.throwsAsync(createStore(port, { disk_enabled: true }), { instanceOf: ConfigError, message: /disk_path/ });
  await t.throwsAsync(createStore(port, { disk_enabled: true, disk_path: '/tmp/x', disk_size: '1kb' }), {
    instanceOf: ConfigError,
    message: /disk_size/,
  });
  await t.throwsAsync(createStore(port, { global_segment_size: '1000tb' }), {
    instanceOf: ConfigError,
    message: /global_segment_size/,
  });
  await t.throwsAsync(createStore(port, { cluster_secret: 'x', cluster_secret_file: '/tmp/x' }), {
    instanceOf: ConfigError,
    message: /cluster_secret_file/,
  });
  const store = await createStore(port);
  t.teardown(() => store.close());
  const { controlPort } = store.runtime.members().get(store.runtime.nodeId) as { controlPort: number };
  await t.throwsAsync(createStore(port, { control_port: controlPort }), {
    instanceOf: ConfigError,
    message: new RegExp(String(controlPort)),
  });
  await t.throwsAsync(createStore(port, { tcp_port: controlPort }), {
    instanceOf: ConfigError,
    message: new RegExp(String(controlPort)),
  });
});

test.serial('store: close is idempotent, ends calls under way, and refuses later ones', async (t) => {
  const [a, b] = await cluster(t, 2);
  t.true(await a.set('k', content(1, 1 << 20)));
  const pending = Promise.all(Array.from({ length: 20 }, () => b.get('k', new Uint8Array(1 << 20))));
  await Promise.all([b.close(), b.close()]);
  const results = await pending;
  t.true(results.every((result) => typeof result === 'boolean'));
  await t.throwsAsync(b.set('k', new Uint8Array(1)), { instanceOf: ClosedError });
  await t.throwsAsync(b.batchExists(['k']), { instanceOf: ClosedError });
});

test.serial('store: destinations that overlap are refused, for one page would overwrite the other', async (t) => {
  const [a] = await cluster(t, 1);
  const region = HostRegion.allocate(3000);
  t.teardown(() => region.free());
  const at = (offset: number) => region.addr + BigInt(offset);
  const sizes = [1000, 1000];
  for (const ptrs of [
    [at(0), at(0)],
    [at(999), at(0)],
    [at(0), at(999)],
  ]) {
    await t.throwsAsync(a.batchGet(['x', 'y'], ptrs, sizes), { instanceOf: ArgumentError, message: /overlap/ });
  }
  t.deepEqual(await a.batchGet(['x', 'y'], [at(1000), at(0)], sizes), [false, false]);
  t.deepEqual(await a.batchSet(['x', 'y'], [at(0), at(0)], sizes), [true, true]);
});

test.serial('store: a get that close() interrupts is a miss; stats and metrics outlive the store', async (t) => {
  const [a, b] = await cluster(t, 2);
  t.true(await a.set('k', content(1, 1000)));
  const pending = b.get('k');
  await b.close();
  const result = await pending;
  t.true(result === null || result.length === 1000);
  t.is(b.stats().poolEntries, 0);
  t.regex(await b.metrics.renderPrometheus(), /meshcache_pool_entries/);
});

test.serial('store: pages evicted while they are being announced leave nothing behind in the directory', async (t) => {
  const [a, b] = await cluster(t, 2, { global_segment_size: '1mb', reuse_quarantine_ms: 0 });
  const region = HostRegion.allocate(1 << 20);
  t.teardown(() => region.free());
  const batch = (prefix: string, count: number, size: number) => {
    const keys = Array.from({ length: count }, (_, i) => `${prefix} ${i}`);
    const ptrs = keys.map((_, i) => region.addr + BigInt((i * size) % region.length));
    const setting = a.batchSet(keys, ptrs, new Array<number>(count).fill(size));
    return { keys, setting };
  };
  const first = batch('first', 16_000, 64);
  const others = Array.from({ length: 16 }, (_, i) => batch(`other ${i}`, 16, 65_536));
  await Promise.all([first, ...others].map(({ setting }) => setting));
  const into = new Uint8Array(64);
  await until(async () => {
    for (const key of first.keys.slice(0, 200)) if ((await b.exists(key)) && !(await b.get(key, into))) return false;
    return true;
  });
  t.pass();
});

test.serial(
  'store: a location that leads nowhere is taken back, and a wrong one is corrected, once a read has failed',
  async (t) => {
    const [a, b] = await cluster(t, 2);
    const namespace = { modelName: 'test', dtype: '', layout: '', tag: '', tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1 };
    const encoder = new KeyEncoder({ ...namespace, isMlaModel: false });
    const [lost, present] = encoder.encodeKeys(['lost', 'present']) as [string, string];
    t.true(await a.set('present', content(1, 1000)));
    const [right] = await b.runtime.directory.get([present]);
    t.truthy(right);
    const wrong = new DataLocation({ ...(right as DataLocation), checksum: 1, generation: 0 });
    await a.runtime.directory.put({ [lost]: wrong, [present]: wrong });

    t.true(await b.exists('lost'));
    t.is(await b.get('lost'), null);
    t.false(await b.get('present', new Uint8Array(1000)));
    await until(async () => !(await b.exists('lost')));
    await until(async () => (await b.get('present')) !== null);
    t.deepEqual(await b.get('present'), content(1, 1000));
  },
);

test.serial('store: metrics count what was read and written', async (t) => {
  const [a, b] = await cluster(t, 2);
  await a.set('k', content(1, 1000));
  await b.get('k', new Uint8Array(1000));
  await a.get('k', new Uint8Array(1000));
  await b.get('absent', new Uint8Array(1000));
  const text = await b.metrics.renderPrometheus();
  t.regex(text, /meshcache_reads_total\{result="hit",source="remote",node_id="[^"]+"\} 1\n/);
  t.regex(text, /meshcache_reads_total\{result="miss",source="remote",node_id="[^"]+"\} 1\n/);
  t.regex(text, /meshcache_read_bytes_total\{source="remote",node_id="[^"]+"\} 1000\n/);
  t.regex(text, /meshcache_members\{node_id="[^"]+"\} 2\n/);
  t.regex(text, /meshcache_transport_info\{[^}]*protocol="tcp"[^}]*\} 1\n/);
  t.regex(await a.metrics.renderPrometheus(), /meshcache_written_bytes_total\{node_id="[^"]+"\} 1000\n/);
});
