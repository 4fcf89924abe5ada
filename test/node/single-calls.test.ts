import test, { type ExecutionContext } from 'ava';
import { ArgumentError } from '../../src/base/errors.js';
import { HostRegion } from '../../src/memory/host-region.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { createCluster, TestHostPool } from '../_support/node/store-fixture.js';
import { content } from '../_support/support.js';

const COUNT = 16;
const PAGE = 4096;
const KEYS = Array.from({ length: COUNT }, (_, i) => `page ${i}`);
const INDICES = KEYS.map((_, i) => i);

interface Cluster {
  readonly holder: MeshCacheStore;
  readonly reader: MeshCacheStore;
  /** The reader's host pool; twice as many pages as the holder has set. */
  readonly pool: TestHostPool;
  readonly isPage: (index: number, at?: number) => boolean;
}

/** A holder that has set the pages `KEYS`, each with a content of its own, and a reader, over TCP. */
async function cluster(t: ExecutionContext, config: Readonly<Record<string, unknown>> = {}): Promise<Cluster> {
  const [holder, reader] = (await createCluster(2, config)) as [MeshCacheStore, MeshCacheStore];
  t.teardown(() => Promise.all([holder.close(), reader.close()]));
  const [source, pool] = [new TestHostPool(COUNT, PAGE, 1), new TestHostPool(2 * COUNT, PAGE, 1)];
  await holder.registerMemPoolHost(source);
  await reader.registerMemPoolHost(pool);
  for (const i of INDICES) source.component(i, 0).set(content(i, PAGE));
  t.true((await holder.batchSetV1(KEYS, INDICES)).every(Boolean));
  const isPage = (index: number, at = index) => Buffer.compare(pool.component(at, 0), content(index, PAGE)) === 0;
  return { holder, reader, pool, isPage };
}

const pointerTo = (pool: TestHostPool, page: number): bigint => pool.region.addr + BigInt(page * PAGE);

test('single calls: lists that the caller changes during a call do not change it', async (t) => {
  const { holder, reader, pool, isPage } = await cluster(t);
  for (const indices of [[...INDICES], Int32Array.from(INDICES)]) {
    pool.region.bytes().fill(0);
    const keys = [...KEYS];
    const read = reader.batchGetV1(keys, indices);
    keys.fill('other');
    indices.fill(COUNT);
    t.deepEqual(
      await read,
      KEYS.map(() => true),
    );
    t.true(INDICES.every((i) => isPage(i)));
    t.true(pool.component(COUNT, 0).every((byte) => byte === 0));
  }
  const lists = (first: number): [string[], bigint[], number[]] => [
    ['a', 'b'],
    [pointerTo(pool, first), pointerTo(pool, first + 1)],
    [PAGE, PAGE],
  ];
  for (const [method, first] of [
    ['batchSet', 0],
    ['batchGet', COUNT],
  ] as const) {
    const named = lists(first);
    const done = reader[method](...named);
    for (const list of named) list.length = 0;
    t.deepEqual(await done, [true, true], method);
  }
  t.true(isPage(0, COUNT) && isPage(1, COUNT + 1));
  const gone = ['a', 'b'];
  const deletion = reader.delete(gone);
  gone.fill(KEYS[0] as string);
  t.deepEqual(await deletion, [true, true]);
  t.deepEqual(await Promise.all(['a', 'b', KEYS[0] as string].map((key) => holder.exists(key))), [false, false, true]);
});

test('single calls: a host pool may give the same arrays each time, and call the store itself', async (t) => {
  const { reader, pool, isPage } = await cluster(t);
  const given = { ptrs: new BigUint64Array(COUNT), sizes: [] as number[] };
  let again: Promise<boolean[]> | undefined;
  let isFirst = true;
  await reader.registerMemPoolHost({
    region: pool.region,
    pageSize: 1,
    getPageBufferMeta: (indices) => {
      const { ptrs, sizes } = pool.getPageBufferMeta(indices);
      if (isFirst) {
        isFirst = false;
        again = reader.batchGetV1([KEYS[1] as string], [COUNT]);
      }
      given.ptrs.set(ptrs);
      given.sizes.splice(0, COUNT, ...sizes);
      return { ptrs: given.ptrs.subarray(0, ptrs.length), sizes: given.sizes };
    },
  });
  const read = await Promise.all(KEYS.map((key, i) => reader.batchGetV1([key], [i])));
  t.true(read.flat().every(Boolean));
  t.true(INDICES.every((i) => isPage(i)));
  t.deepEqual(await again, [true]);
  t.true(isPage(1, COUNT));
});

test('single calls: whoever gives wrong arguments, or takes its memory away, disturbs no other call of the turn', async (t) => {
  const { reader, pool, isPage } = await cluster(t, { location_reuse_ms: 10_000 });
  // The second time locations are known, and nothing is looked up.
  for (const _ of [1, 2]) {
    pool.region.bytes().fill(0);
    const freed = HostRegion.allocate(PAGE);
    const transferred = new Uint8Array(PAGE);
    const others = [
      reader.batchGet([KEYS[3] as string], [freed.addr], [PAGE]),
      reader.batchGet([KEYS[3] as string], [1n], [PAGE]),
      reader.batchGetV1(['\ud800'], [COUNT]),
      reader.get(KEYS[3] as string, transferred),
    ];
    const reads = KEYS.map((key, i) => reader.batchGetV1([key], [i]));
    freed.free();
    structuredClone(transferred.buffer, { transfer: [transferred.buffer] });
    const [ofFreed, outside, malformed, ofTransferred] = await Promise.allSettled(others);
    t.deepEqual(ofFreed, { status: 'fulfilled', value: [false] });
    t.deepEqual(ofTransferred, { status: 'fulfilled', value: false });
    for (const outcome of [outside, malformed]) {
      t.true(outcome?.status === 'rejected' && outcome.reason instanceof ArgumentError);
    }
    t.true((await Promise.all(reads)).flat().every(Boolean));
    t.true(INDICES.every((i) => isPage(i)));
  }
});

test('single calls: a page that its holder has evicted, and that is then deleted, is not read where it lay', async (t) => {
  const { holder, reader, pool } = await cluster(t, {
    global_segment_size: 4 * COUNT * PAGE,
    reuse_quarantine_ms: 60_000,
    location_reuse_ms: 10_000,
  });
  const read = async () => (await Promise.all(KEYS.map((key, i) => reader.batchGetV1([key], [i])))).flat();
  t.true((await read()).every(Boolean));
  for (let i = 0; (await Promise.all(KEYS.map((key) => holder.exists(key)))).some(Boolean); i++) {
    await holder.set(`further ${i}`, content(i, PAGE));
  }
  pool.region.bytes().fill(0);
  // The holder is told of keys that it does not have any more, and their bytes still lie in its pool.
  t.true((await reader.delete(KEYS)).every(Boolean));
  t.false((await read()).some(Boolean));
});

test('single calls: of many sets of a key in one turn the last one is read everywhere', async (t) => {
  const { holder, reader } = await cluster(t);
  for (const key of ['first', 'second']) {
    const set = await Promise.all(Array.from({ length: 64 }, (_, i) => reader.set(key, content(i, 300))));
    t.true(set.at(-1));
    for (const store of [holder, reader]) t.deepEqual(await store.get(key), content(63, 300));
  }
});
