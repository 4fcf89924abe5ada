import test, { type ExecutionContext } from 'ava';
import { ArgumentError } from '../../src/base/errors.js';
import type { StoreNamespace } from '../../src/store/namespace/store-namespace.js';
import { attach, memoryOf } from '../_support/client/attached-nodes.js';
import { startNode } from '../_support/clients/client-fixture.js';
import { TestHostPool } from '../_support/node/store-fixture.js';
import { content } from '../_support/support.js';

/*
 * One suite over everything that has the methods of StoreNamespace: the store itself, another namespace of it, and a program
 * that is attached to it.
 */

interface Subject {
  readonly name: string;
  /** On a node of its own. */
  open(t: ExecutionContext): Promise<StoreNamespace>;
}

const SUBJECTS: readonly Subject[] = [
  { name: 'store', open: (t) => startNode(t) },
  {
    name: 'namespace of a store',
    open: async (t) => (await startNode(t)).namespace({ modelName: 'other', tag: 'weights-1', tpSize: 2, tpRank: 1 }),
  },
  { name: 'client', open: async (t) => attach(t, (await startNode(t)).clientSocket) },
  {
    name: 'client of a namespace',
    open: async (t) =>
      attach(t, (await startNode(t)).clientSocket, { namespace: { modelName: 'other', isMlaModel: true } }),
  },
  { name: 'client, bytes', open: async (t) => attach(t, (await startNode(t)).clientSocket, { mode: 'bytes' }) },
];

/** A host buffer of 8 pages of 4 tokens; page i has its own content. */
function filledPool(t: ExecutionContext, seed: number, components = 2): TestHostPool {
  const pool = new TestHostPool(8, 1000, components, 4);
  t.teardown(() => pool.region.free());
  for (let page = 0; page < 8; page++) {
    for (let c = 0; c < components; c++) pool.component(page, c).set(content(seed + 10 * page + c, 1000));
  }
  return pool;
}

function isFilled(pool: TestHostPool, seed: number, page: number): boolean {
  return Array.from({ length: pool.components }, (_, c) => c).every((c) =>
    Buffer.from(content(seed + 10 * page + c, 1000)).equals(pool.component(page, c)),
  );
}

const names = (count: number, of = 'page'): string[] => Array.from({ length: count }, (_, i) => `${of}-${i}`);

for (const { name, open } of SUBJECTS) {
  test.serial(`namespace contract, ${name}: pages of a host pool are set, found and read back`, async (t) => {
    const ns = await open(t);
    const pool = filledPool(t, 1);
    await ns.registerMemPoolHost(pool);
    const keys = names(8);
    t.deepEqual(await ns.batchSetV1(keys.slice(0, 6), pool.indices(0, 6)), Array(6).fill(true));
    t.is(await ns.batchExists(keys), 6);
    t.is(await ns.batchExists([keys[7] as string, keys[0] as string]), 0, 'a prefix ends at its first gap');
    pool.region.bytes().fill(0);
    const results = await ns.batchGetV1(keys, BigInt64Array.from(pool.indices(0, 8).map(BigInt)));
    t.deepEqual(results, [...Array(6).fill(true), false, false]);
    for (let page = 0; page < 6; page++) t.true(isFilled(pool, 1, page), `page ${page}`);
  });

  test.serial(`namespace contract, ${name}: pages of several pools move together, each in its own`, async (t) => {
    const ns = await open(t);
    const [kv, side] = [filledPool(t, 1), filledPool(t, 1001, 1)];
    await ns.registerMemPoolHost(kv);
    await ns.registerMemHostPoolV2(side, 'side');
    const keys = names(4);
    const transfers = [
      { name: 'kv', keys, hostIndices: kv.indices(0, 4) },
      { name: 'side', keys: keys.slice(0, 2), hostIndices: side.indices(0, 2) },
      { name: 'none', keys: null, hostIndices: null },
    ];
    t.deepEqual(await ns.batchSetV2(transfers), { kv: Array(4).fill(true), side: [true, true], none: [] });
    t.deepEqual(await ns.batchExistsV2(keys), { kvHitPages: 4, extraPoolHitPages: {} });
    const wanted = [{ name: 'side', keys, hostIndices: null }];
    t.deepEqual(await ns.batchExistsV2(keys, wanted), { kvHitPages: 2, extraPoolHitPages: { side: 2 } });
    for (const pool of [kv, side]) pool.region.bytes().fill(0);
    const got = await ns.batchGetV2([
      { name: 'kv', keys, hostIndices: kv.indices(4, 4) },
      { name: 'side', keys, hostIndices: side.indices(0, 4) },
    ]);
    t.deepEqual(got, { kv: Array(4).fill(true), side: [true, true, false, false] });
    t.deepEqual(Buffer.from(kv.component(4, 0)), Buffer.from(content(1, 1000)));
    t.true(isFilled(side, 1001, 1));
    await ns.clear();
    t.deepEqual(await ns.batchExistsV2(keys, wanted), { kvHitPages: 0, extraPoolHitPages: { side: 0 } });
  });

  test.serial(`namespace contract, ${name}: set and get in each of their forms`, async (t) => {
    const ns = await open(t);
    const memory = memoryOf(t, 4096);
    memory.bytes(0, 100).set(content(1, 100));
    t.true(await ns.set('pointer', memory.addr, 100));
    t.true(await ns.set('array', content(2, 200)));
    t.true(await ns.set('buffer', Buffer.from(content(3, 300))));
    t.deepEqual(await ns.get('pointer'), content(1, 100));
    t.deepEqual(await ns.get('array'), content(2, 200));
    const into = new Uint8Array(300);
    t.true(await ns.get('buffer', into));
    t.deepEqual(into, content(3, 300));
    t.true(await ns.get('array', memory.addr + 1000n, 200));
    t.deepEqual(Buffer.from(memory.bytes(1000, 200)), Buffer.from(content(2, 200)));
    t.false(await ns.get('array', new Uint8Array(199)), 'another size is a miss');
    t.is(await ns.get('nothing'), null);
    t.false(await ns.get('nothing', new Uint8Array(1)));
    // A key that a program names itself: the newest content counts.
    t.true(await ns.set('array', content(4, 50)));
    t.deepEqual(await ns.get('array'), content(4, 50));
  });

  test.serial(`namespace contract, ${name}: what is returned is the caller's own`, async (t) => {
    const ns = await open(t);
    t.true(await ns.set('key', content(1, 100)));
    const page = (await ns.get('key')) as Uint8Array;
    t.is(page.constructor, Uint8Array);
    t.is(page.buffer.byteLength, 100);
    page.fill(0);
    t.deepEqual(await ns.get('key'), content(1, 100));
  });

  test.serial(`namespace contract, ${name}: batchSet, batchGet, exists and delete`, async (t) => {
    const ns = await open(t);
    const memory = memoryOf(t, 16_384);
    const sizes = [1, 7, 4096, 1000];
    const offsets = [0, 1, 100, 8000];
    sizes.forEach((size, i) => void memory.bytes(offsets[i], size).set(content(i, size)));
    const ptrs = offsets.map((offset) => memory.addr + BigInt(offset));
    const keys = names(4);
    t.deepEqual(await ns.batchSet(keys, ptrs, sizes), Array(4).fill(true));
    memory.bytes().fill(0);
    t.deepEqual(await ns.batchGet([...keys, 'nothing'], [...ptrs, memory.addr + 16_000n], [...sizes, 5]), [
      ...Array(4).fill(true),
      false,
    ]);
    sizes.forEach((size, i) => {
      t.deepEqual(Buffer.from(memory.bytes(offsets[i], size)), Buffer.from(content(i, size)), `page ${i}`);
    });
    t.deepEqual(await Promise.all([...keys, 'nothing'].map((key) => ns.exists(key))), [...Array(4).fill(true), false]);
    t.deepEqual(await ns.delete(['page-1', 'nothing']), [true, true]);
    t.false(await ns.exists('page-1'));
    t.is(await ns.get('page-1'), null);
    t.true(await ns.exists('page-2'));
    await ns.clear();
    t.is(await ns.batchExists(keys), 0);
  });

  test.serial(`namespace contract, ${name}: keys of any script, without characters, and long ones`, async (t) => {
    const ns = await open(t);
    const keys = [
      '',
      ' ',
      '\0',
      'naïve',
      'страница',
      'ページ',
      '🗄️🔑',
      'e\u0301',
      '\u00e9',
      'x'.repeat(65_535),
      'ж'.repeat(32_767),
    ];
    for (const [i, key] of keys.entries()) t.true(await ns.set(key, content(i, 64)), `key ${i}`);
    for (const [i, key] of keys.entries()) t.deepEqual(await ns.get(key), content(i, 64), `key ${i}`);
    t.is(await ns.batchExists(keys), keys.length);
    t.deepEqual(
      await ns.delete(keys),
      keys.map(() => true),
    );
    t.is(await ns.batchExists([keys[0] as string]), 0);
  });

  test.serial(`namespace contract, ${name}: calls of nothing do nothing`, async (t) => {
    const ns = await open(t);
    const pool = filledPool(t, 1);
    await ns.registerMemPoolHost(pool);
    t.deepEqual(await ns.batchSetV1([], []), []);
    t.deepEqual(await ns.batchGetV1([], []), []);
    t.is(await ns.batchExists([]), 0);
    t.deepEqual(await ns.batchSetV2([]), {});
    t.deepEqual(await ns.batchGetV2([]), {});
    t.deepEqual(await ns.batchExistsV2([]), { kvHitPages: 0, extraPoolHitPages: {} });
    t.deepEqual(await ns.batchSet([], [], []), []);
    t.deepEqual(await ns.batchGet([], [], []), []);
    t.deepEqual(await ns.delete([]), []);
    await ns.clear();
  });

  test.serial(`namespace contract, ${name}: wrong arguments are refused with the method's name`, async (t) => {
    const ns = (await open(t)) as unknown as Record<string, (...given: unknown[]) => Promise<unknown>>;
    const memory = memoryOf(t, 4096);
    const pool = filledPool(t, 1);
    const call = (method: string, ...given: unknown[]) =>
      (ns[method] as (...all: unknown[]) => unknown).apply(ns, given);
    const wrong: readonly (readonly [method: string, ...given: unknown[]])[] = [
      ['registerMemPoolHost', {}],
      ['registerMemPoolHost', null],
      ['registerMemHostPoolV2', pool, ''],
      ['batchSetV1', ['a'], [0]],
      ['batchGetV1', ['a'], [0]],
      ['batchExists', 'key'],
      ['batchExists', [1]],
      ['batchSetV2', {}],
      ['batchSetV2', [{ name: 'side', keys: ['a'], hostIndices: [0] }]],
      ['batchGetV2', [{ name: '', keys: null, hostIndices: null }]],
      ['batchExistsV2', ['a'], [{ name: 'side', keys: null, hostIndices: null, hitPolicy: 'some' }]],
      ['set', 7, new Uint8Array(1)],
      ['set', 'a', new Uint8Array(0)],
      ['set', 'a', memory.addr],
      ['set', 'a', 0n, 4],
      ['get', 'a', memory.addr, 4097],
      ['get', 'a', 'memory'],
      ['batchSet', ['a'], [memory.addr], []],
      ['batchSet', ['a'], [Number(memory.addr)], [1]],
      ['batchGet', ['a', 'b'], [memory.addr, memory.addr], [2, 2]],
      ['batchGet', ['a'], [memory.addr], [1.5]],
      ['exists', 7],
      ['delete', 'key'],
    ];
    for (const [method, ...given] of wrong) {
      const error = await t.throwsAsync(async () => call(method, ...given), { instanceOf: ArgumentError });
      t.true(error?.message.startsWith(`${method}: `), `${method}: ${error?.message}`);
    }
    await ns.registerMemPoolHost?.call(ns, pool);
    const tooFew = await t.throwsAsync(async () => call('batchGetV1', ['a'], [0]), { instanceOf: ArgumentError });
    t.regex(tooFew?.message ?? '', /^batchGetV1: 1 keys with 4 tokens a page need 4 host indices, got 1/);
    for (const key of ['\ud800', 'x'.repeat(65_537)]) {
      for (const method of ['exists', 'get']) {
        await t.throwsAsync(async () => call(method, key), { instanceOf: ArgumentError }, `${method} ${key.length}`);
      }
      await t.throwsAsync(async () => call('set', key, new Uint8Array(1)), { instanceOf: ArgumentError });
      await t.throwsAsync(async () => call('delete', [key]), { instanceOf: ArgumentError });
    }
    t.false(await call('exists', 'a'), 'nothing was touched');
  });

  test.serial(`namespace contract, ${name}: many calls at once are all done`, async (t) => {
    const ns = await open(t);
    const count = 3000;
    const set = await Promise.all(names(count).map((key, i) => ns.set(key, content(i, 40))));
    t.is(set.filter((isSet) => isSet).length, count);
    const pages = await Promise.all(names(count).map((key) => ns.get(key)));
    pages.forEach((page, i) => {
      if (page === null || !Buffer.from(page).equals(content(i, 40))) t.fail(`page ${i}`);
    });
    t.is(await ns.batchExists(names(count)), count);
  });
}
