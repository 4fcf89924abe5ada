import test from 'ava';
import { Capability } from '../../src/clients/wire/messages.js';
import type { PagePriority } from '../../src/core/index.js';
import { attach, memoryOf } from '../_support/client/attached-nodes.js';
import { bareNode } from '../_support/client/bare-node.js';
import { startNode } from '../_support/clients/client-fixture.js';
import { TestHostPool } from '../_support/node/store-fixture.js';
import { content } from '../_support/support.js';

const PAGE_BYTES = 4096;
const POOL = { global_segment_size: 32 * PAGE_BYTES, reuse_quarantine_ms: 0 };

for (const mode of ['auto', 'bytes'] as const) {
  test.serial(`client priority, ${mode}: every call that sets tells it, and the node evicts by it`, async (t) => {
    const store = await startNode(t, POOL);
    const client = await attach(t, store.clientSocket, { mode });
    const pool = new TestHostPool(8, PAGE_BYTES, 1, 4);
    t.teardown(() => pool.region.free());
    await client.registerMemPoolHost(pool);
    await client.registerMemHostPoolV2(pool, 'mamba');
    const memory = memoryOf(t, PAGE_BYTES, { shared: true });
    const setAll = async (name: string, priority: PagePriority): Promise<void> => {
      t.true(await client.set(`${name}1`, content(1, PAGE_BYTES), { priority }));
      t.true(await client.set(`${name}2`, memory.addr, PAGE_BYTES, { priority, expiresInMs: 600_000 }));
      t.deepEqual(await client.batchSet([`${name}3`], [memory.addr], [PAGE_BYTES], { priority }), [true]);
      t.deepEqual(await client.batchSetV1([`${name}4`], pool.indices(0, 1), { priority }), [true]);
      const transfers = [{ name: 'mamba', keys: [`${name}5`], hostIndices: pool.indices(1, 1) }];
      t.deepEqual(await client.batchSetV2(transfers, { priority }), { mamba: [true] });
      t.true((await client.setDetailed(`${name}6`, content(6, PAGE_BYTES), { priority })).isSet);
    };
    const isThere = (name: string) =>
      Promise.all([1, 2, 3, 4, 6].map((i) => store.exists(`${name}${i}`))).then((all) => all.map(Number).join(''));
    await setAll('high', 'high');
    await setAll('low', 'low');
    for (let i = 0; i < 26; i++) t.true(await client.set(`scan${i}`, content(i, PAGE_BYTES)));
    t.is(await isThere('low'), '00000');
    for (let i = 0; i < 100; i++) t.true(await client.set(`more${i}`, content(i, PAGE_BYTES)));
    t.is(await isThere('high'), '11111');
    const [five] = (await client.batchGetV2([{ name: 'mamba', keys: ['high5'], hostIndices: pool.indices(2, 1) }]))
      .mamba as boolean[];
    t.true(five);
    // Set again, they are normal.
    await setAll('high', 'normal');
    for (let i = 0; i < 100; i++) t.true(await client.set(`last${i}`, content(i, PAGE_BYTES)));
    t.is(await isThere('high'), '00000');
  });
}

test.serial('client priority: other words are refused, and a node that does not know it is not told', async (t) => {
  const store = await startNode(t);
  const client = await attach(t, store.clientSocket);
  for (const priority of ['urgent', 2] as unknown as PagePriority[]) {
    await t.throwsAsync(client.set('k', content(1, 10), { priority }), {
      code: 'ERR_ARGUMENT',
      message: /^set: priority must be "low", "normal" or "high", got /,
    });
  }
  t.is(await client.get('k'), null);
  for (const [capabilities, known] of [
    [Capability.hints | Capability.expiry, undefined],
    [Capability.priority, 'high'],
  ] as const) {
    const { path, priorities } = await bareNode(t, capabilities);
    const other = await attach(t, path, { mode: 'bytes' });
    t.true(await other.set('k', content(1, 10), { priority: 'high' }));
    t.true(await other.set('k', content(1, 10)));
    t.deepEqual(priorities, [known, undefined]);
  }
});
