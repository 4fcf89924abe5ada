import test from 'ava';
import { Capability } from '../../src/clients/wire/messages.js';
import { attach, memoryOf } from '../_support/client/attached-nodes.js';
import { bareNode } from '../_support/client/bare-node.js';
import { startNode } from '../_support/clients/client-fixture.js';
import { TestHostPool } from '../_support/node/store-fixture.js';
import { content, until } from '../_support/support.js';

for (const mode of ['auto', 'bytes'] as const) {
  test.serial(
    `client expiry, ${mode}: pages expire by every call that sets, for the client and for its node`,
    async (t) => {
      const store = await startNode(t);
      const client = await attach(t, store.clientSocket, { mode });
      const pool = new TestHostPool(8, 1000, 1, 4);
      t.teardown(() => pool.region.free());
      await client.registerMemPoolHost(pool);
      await client.registerMemHostPoolV2(pool, 'mamba');
      const memory = memoryOf(t, 4096, { shared: true });
      const expiresInMs = 200;
      t.true(await client.set('one', content(1, 100), { expiresInMs }));
      t.true(await client.set('two', memory.addr, 200, { expiresInMs }));
      t.deepEqual(await client.batchSet(['three'], [memory.addr], [100], { expiresInMs }), [true]);
      t.deepEqual(await client.batchSetV1(['four'], pool.indices(0, 1), { expiresInMs }), [true]);
      const transfers = [{ name: 'mamba', keys: ['five'], hostIndices: pool.indices(1, 1) }];
      t.deepEqual(await client.batchSetV2(transfers, { expiresInMs }), { mamba: [true] });
      t.true((await client.setDetailed('six', content(6, 100), { expiresInMs })).isSet);
      t.true(await client.set('stays', content(7, 100), { expiresInMs: 600_000 }));
      const keys = ['one', 'two', 'three', 'four', 'six'];
      for (const reader of [client, store]) {
        for (const key of keys) await until(async () => (await reader.get(key)) === null);
        t.deepEqual(await reader.get('stays'), content(7, 100));
      }
      await until(() => store.stats().poolEntries === 1);
    },
  );
}

test.serial(
  'client expiry: one that cannot be is refused, and so is any by a node that does not know it',
  async (t) => {
    const store = await startNode(t);
    const client = await attach(t, store.clientSocket);
    for (const expiresInMs of [0, 0.5, 315_576_000_001]) {
      await t.throwsAsync(client.set('k', content(1, 10), { expiresInMs }), {
        code: 'ERR_ARGUMENT',
        message: /^set: expiresInMs must be a whole number/,
      });
    }
    t.is(await client.get('k'), null);
    const { path, told } = await bareNode(t, Capability.hints);
    const older = await attach(t, path, { mode: 'bytes' });
    await t.throwsAsync(older.set('k', content(1, 10), { expiresInMs: 5 }), {
      code: 'ERR_ARGUMENT',
      message: /expiresInMs needs a node whose pages can expire; node bare has version 0/,
    });
    t.deepEqual(told, []);
    t.true(await older.set('k', content(1, 10)));
  },
);
