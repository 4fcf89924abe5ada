// Regression: an attached client looked into the caller's list of keys once more after it had waited: a page was read,
// or set, under another key.
import test, { type ExecutionContext } from 'ava';
import type { MeshCacheClient } from '../../src/client/meshcache-client.js';
import { HostRegion } from '../../src/memory/host-region.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { attach } from '../_support/client/attached-nodes.js';
import { startNodes } from '../_support/clients/client-fixture.js';
import { TestHostPool } from '../_support/node/store-fixture.js';
import { content, PATIENCE_MS, until } from '../_support/support.js';

const BYTES = 600;
/** Keys of more requests than one. */
const MANY = 70_000;

/** Two nodes, and each way to pages of the first one's host. */
async function doors(t: ExecutionContext) {
  const [node, other] = (await startNodes(t, 2)) as [MeshCacheStore, MeshCacheStore];
  const namespace = { modelName: 'test' };
  const client = await attach(t, node.clientSocket, { namespace });
  return { node, other, client };
}

for (const door of ['client', 'node', 'other'] as const) {
  const on = door === 'client' ? 'a client' : door === 'node' ? 'the node of the pages' : 'another node';

  test.serial(
    `changed arguments: keys, places and sizes of pages may change once they are given, on ${on}`,
    async (t) => {
      const all = await doors(t);
      const store: MeshCacheClient | MeshCacheStore = all[door];
      const region = HostRegion.allocate(4 * BYTES);
      t.teardown(() => region.free());
      await all.node.set('b', content(2, BYTES));
      region.bytes(0, BYTES).set(content(1, BYTES));
      const given = () => ({ keys: ['a'], ptrs: [region.addr], sizes: [BYTES] });
      const change = ({ keys, ptrs, sizes }: ReturnType<typeof given>): void => {
        keys[0] = 'b';
        ptrs[0] = 0n;
        sizes.length = 0;
      };
      const forSet = given();
      const set = store.batchSet(forSet.keys, forSet.ptrs, forSet.sizes);
      change(forSet);
      t.deepEqual(await set, [true]);
      t.deepEqual(await all.node.get('a'), content(1, BYTES));
      t.deepEqual(await all.node.get('b'), content(2, BYTES), 'nothing was set under the later key');
      region.bytes(0, BYTES).fill(0);
      const forGet = given();
      const read = store.batchGet(forGet.keys, forGet.ptrs, forGet.sizes);
      change(forGet);
      t.deepEqual(await read, [true]);
      t.deepEqual(new Uint8Array(region.bytes(0, BYTES)), content(1, BYTES), 'the bytes of the key that was asked for');
    },
  );

  test.serial(`changed arguments: lists of many keys may change once they are given, on ${on}`, async (t) => {
    const all = await doors(t);
    const store: MeshCacheClient | MeshCacheStore = all[door];
    await all.node.set('last', content(1, BYTES));
    await all.node.set('other', content(2, BYTES));
    const given = () => [...Array.from({ length: MANY - 1 }, (_, i) => `none ${i}`), 'last'];
    const changed = <T>(call: (keys: string[]) => T): T => {
      const keys = given();
      const result = call(keys);
      keys[MANY - 1] = 'other';
      return result;
    };
    let copy: Uint8Array | null | undefined;
    // On a busy machine so many lookups may take too long: a miss then.
    await until(async () => {
      copy = (await changed((keys) => store.getMany(keys, { timeoutMs: PATIENCE_MS })))[MANY - 1];
      return copy !== null;
    });
    t.deepEqual(copy, content(1, BYTES));
    await until(async () => (await changed((keys) => store.delete(keys, { timeoutMs: PATIENCE_MS }))).every(Boolean));
    t.is(await all.node.get('last'), null);
    t.deepEqual(await all.node.get('other'), content(2, BYTES));
  });

  test.serial(`changed arguments: lists of keys that are looked up may change, on ${on}`, async (t) => {
    const all = await doors(t);
    const store: MeshCacheClient | MeshCacheStore = all[door];
    const keys = Array.from({ length: 8 }, (_, i) => `k ${i}`);
    const pool = new TestHostPool(8, BYTES, 1);
    t.teardown(() => pool.region.free());
    await all.node.registerMemPoolHost(pool);
    await all.node.registerMemHostPoolV2(pool, 'extra');
    t.true((await all.node.batchSetV1(keys, pool.indices(0, 8))).every(Boolean));
    await all.node.batchSetV2([{ name: 'extra', keys: keys.slice(2, 4), hostIndices: pool.indices(2, 2) }]);
    for (const length of [2, 12]) {
      const given = [...keys];
      const found = store.batchExists(given);
      given.length = length;
      t.is(await found, 8);
    }
    const ask = (isChanged: boolean) => {
      const [asked, last] = [[...keys], ['?', '?']];
      const transfers = [{ name: 'extra', keys: last, hostIndices: null, hitPolicy: 'trailing_pages' as const }];
      const found = store.batchExistsV2(asked, transfers);
      if (isChanged) {
        asked.length = 2;
        last.push('?', '?');
        transfers.length = 0;
      }
      return found;
    };
    t.deepEqual(await ask(true), await ask(false));
    t.is((await ask(false)).kvHitPages, 4);
  });
}

test.serial('changed arguments: lists of keys for the directory may change once they are given', async (t) => {
  const { node } = await doors(t);
  const [there] = node.keyEncoder.encodeKeys(['there']);
  await node.set('there', content(1, BYTES));
  const given = () => Array.from({ length: MANY }, (_, i) => `none ${i}`);
  const changed = <T>(call: (keys: string[]) => T): T => {
    const keys = given();
    const result = call(keys);
    keys[MANY - 1] = there as string;
    return result;
  };
  const { directory } = node.runtime;
  t.is((await changed((keys) => directory.get(keys)))[MANY - 1], null);
  t.false((await changed((keys) => directory.exists(keys)))[MANY - 1]);
});
