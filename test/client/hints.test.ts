import test, { type ExecutionContext } from 'ava';
import { ArgumentError } from '../../src/base/errors.js';
import { Capability, RequestType } from '../../src/clients/wire/messages.js';
import type { RequestOptions } from '../../src/core/index.js';
import type { HintFigures } from '../../src/store/call/request-calls.js';
import type { StoreNamespace } from '../../src/store/namespace/store-namespace.js';
import { attach, memoryOf } from '../_support/client/attached-nodes.js';
import { bareNode } from '../_support/client/bare-node.js';
import { startNode } from '../_support/clients/client-fixture.js';
import { TestHostPool } from '../_support/node/store-fixture.js';
import { content } from '../_support/support.js';

interface Subject {
  readonly namespace: StoreNamespace;
  readonly hinted: () => HintFigures;
}

const SUBJECTS: Readonly<Record<string, (t: ExecutionContext) => Promise<Subject>>> = {
  async store(t) {
    const store = await startNode(t);
    return { namespace: store, hinted: () => store.stats().hinted };
  },
  async 'namespace of a store'(t) {
    const store = await startNode(t);
    return { namespace: store.namespace({ modelName: 'other' }), hinted: () => store.stats().hinted };
  },
  async client(t) {
    const store = await startNode(t);
    return { namespace: await attach(t, store.clientSocket), hinted: () => store.stats().hinted };
  },
  async 'client, bytes'(t) {
    const store = await startNode(t);
    const namespace = await attach(t, store.clientSocket, { mode: 'bytes' });
    return { namespace, hinted: () => store.stats().hinted };
  },
};

for (const [name, open] of Object.entries(SUBJECTS)) {
  test.serial(`hints, ${name}: every read and write takes one, and the node counts them`, async (t) => {
    const { namespace: ns, hinted } = await open(t);
    const memory = memoryOf(t, 4096, { shared: true });
    const pool = new TestHostPool(8, 1000, 2, 4);
    t.teardown(() => pool.region.free());
    await ns.registerMemPoolHost(pool);
    await ns.registerMemHostPoolV2(pool, 'mamba');
    const transfers = [{ name: 'mamba', keys: ['a', 'b', 'c'], hostIndices: pool.indices(0, 3) }];

    t.true(await ns.set('one', content(1, 100), { hint: 'open' }));
    t.true(await ns.set('two', memory.addr, 200, { hint: 'open' }));
    t.truthy(await ns.get('one', { hint: 'open' }));
    t.true(await ns.get('one', new Uint8Array(100), { hint: 1 }));
    t.true(await ns.get('two', memory.addr, 200, { hint: 'open' }));
    t.deepEqual(hinted().open, { calls: 5, pages: 5 });

    const [ptrs, sizes] = [
      [memory.addr, memory.addr + 1024n],
      [1024, 1024],
    ];
    t.deepEqual(await ns.batchSet(['x', 'y'], ptrs, sizes, { hint: 'closed' }), [true, true]);
    t.deepEqual(await ns.batchGet(['x', 'y'], ptrs, sizes, { hint: 2 }), [true, true]);
    t.deepEqual(hinted().closed, { calls: 2, pages: 4 });

    t.deepEqual(await ns.batchSetV1(['k', 'l'], pool.indices(0, 2), { hint: 3 }), [true, true]);
    t.deepEqual(await ns.batchGetV1(['k', 'l'], pool.indices(0, 2), { hint: 3 }), [true, true]);
    t.deepEqual(await ns.batchSetV2(transfers, { hint: 3 }), { mamba: [true, true, true] });
    t.deepEqual(await ns.batchGetV2(transfers, { hint: 3 }), { mamba: [true, true, true] });
    t.deepEqual(hinted().other, { calls: 4, pages: 10 });

    // Nothing told, and 0, are the same.
    t.truthy(await ns.get('one', { hint: 0, caller: 7 }));
    t.truthy(await ns.get('one'));
    t.true(await ns.get('one', new Uint8Array(100)));
    t.deepEqual(hinted(), {
      open: { calls: 5, pages: 5 },
      closed: { calls: 2, pages: 4 },
      other: { calls: 4, pages: 10 },
    });
  });

  test.serial(`hints, ${name}: a wrong one is refused, before anything is touched`, async (t) => {
    const { namespace: ns } = await open(t);
    const memory = memoryOf(t, 4096, { shared: true });
    const pool = new TestHostPool(8, 1000, 2, 4);
    t.teardown(() => pool.region.free());
    await ns.registerMemPoolHost(pool);
    const wrong = { hint: 'over' } as unknown as RequestOptions;
    const refused = { instanceOf: ArgumentError, message: /hint must be "open", "closed", 0, 1, 2 or 3, got "over"$/ };
    await t.throwsAsync(ns.set('k', content(1, 10), wrong), refused);
    await t.throwsAsync(ns.set('k', memory.addr, 10, wrong), refused);
    await t.throwsAsync(ns.get('k', wrong), refused);
    await t.throwsAsync(ns.get('k', new Uint8Array(10), wrong), refused);
    await t.throwsAsync(ns.get('k', memory.addr, 10, wrong), refused);
    await t.throwsAsync(ns.batchSet(['k'], [memory.addr], [10], wrong), refused);
    await t.throwsAsync(ns.batchGet(['k'], [memory.addr], [10], wrong), refused);
    await t.throwsAsync(ns.batchSetV1(['k'], pool.indices(0, 1), wrong), refused);
    await t.throwsAsync(ns.batchGetV1(['k'], pool.indices(0, 1), wrong), refused);
    await t.throwsAsync(ns.batchSetV2([], wrong), refused);
    await t.throwsAsync(ns.batchGetV2([], wrong), refused);
    t.is(await ns.batchExists(['k']), 0);
    // Memory that is none is still refused as such.
    await t.throwsAsync(ns.get('k', [1, 2] as unknown as Uint8Array), {
      instanceOf: ArgumentError,
      message: /typed array/,
    });
  });
}

test('hints: a node is told of them only when it says that it knows them, and which requests are one call', async (t) => {
  const keys = ['a', 'b', 'c', 'd', 'e'];
  const memory = memoryOf(t, 1024);
  const ptrs = keys.map((_, i) => memory.addr + BigInt(10 * i));
  const sizes = keys.map(() => 10);
  for (const knows of [true, false]) {
    const { path, told } = await bareNode(t, knows ? Capability.hints : 0);
    const client = await attach(t, path, { mode: 'bytes' });
    t.deepEqual(
      await client.batchSet(keys, ptrs, sizes, { hint: 'closed' }),
      keys.map(() => true),
    );
    await client.batchGet(keys.slice(0, 3), ptrs.slice(0, 3), sizes.slice(0, 3));
    await client.get('a', { hint: 3 });
    const expected = [
      [RequestType.setBytes, 2, false],
      [RequestType.setBytes, 2, true],
      [RequestType.setBytes, 2, true],
      [RequestType.getBytes, 0, false],
      [RequestType.getBytes, 0, true],
      [RequestType.getBytes, 3, false],
    ];
    t.deepEqual(
      told.map(({ type, hint, continues }) => [type, hint, continues]),
      knows ? expected : expected.map(([type]) => [type, 0, false]),
    );
  }
});
