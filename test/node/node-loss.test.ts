import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import test, { type ExecutionContext } from 'ava';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { content, freePort, until } from '../support.js';
import type { DyingNodeSetup } from './dying-node.js';
import { createStore } from './store-fixture.js';

const KEYS = Array.from({ length: 40 }, (_, i) => `dying ${i}`);
const PAGE_BYTES = 4096;

async function startDyingNode(
  t: ExecutionContext,
  discoveryPort: number,
  config: Record<string, unknown> = {},
): Promise<ChildProcess> {
  const child = fork(new URL('./node-dying-node.js', import.meta.url));
  t.teardown(() => child.kill('SIGKILL'));
  const setup: DyingNodeSetup = { discoveryPort, config, keys: KEYS, pageBytes: PAGE_BYTES };
  child.send(setup);
  await once(child, 'message');
  return child;
}

async function startStores(
  t: ExecutionContext,
  port: number,
  count: number,
  config: Record<string, unknown> = {},
): Promise<MeshCacheStore[]> {
  const stores: MeshCacheStore[] = [];
  t.teardown(() => Promise.all(stores.map((store) => store.close())));
  for (let i = 0; i < count; i++) stores.push(await createStore(port, config));
  return stores;
}

test('node loss: a killed node is a miss at once, and forgotten after its time-to-live', async (t) => {
  const port = await freePort();
  const stores = await startStores(t, port, 2);
  const child = await startDyingNode(t, port);
  await until(() => stores.every((store) => store.stats().members === 3));
  t.deepEqual(await stores[0]?.get('dying 7'), content(7, PAGE_BYTES));

  child.kill('SIGKILL');
  await once(child, 'exit');
  for (const [i, key] of KEYS.entries()) {
    const read = await stores[i % 2]?.get(key, new Uint8Array(PAGE_BYTES));
    t.false(read);
  }
  await until(() => stores.every((store) => store.stats().members === 2));
  for (const store of stores) {
    for (const key of KEYS) t.false(await store.exists(key));
    t.true(await store.set('still working', content(1, 100)));
  }
});

test('node loss: what was set by others while their directory owner died is found again', async (t) => {
  const port = await freePort();
  const config = { directory_replicas: 1 };
  const stores = await startStores(t, port, 2, config);
  const [a, b] = stores as [MeshCacheStore, MeshCacheStore];
  const child = await startDyingNode(t, port, config);
  await until(() => stores.every((store) => store.stats().members === 3));
  const keys = Array.from({ length: 100 }, (_, i) => `kept ${i}`);
  for (const [i, key] of keys.entries()) await a.set(key, content(i, 256));
  child.kill('SIGKILL');
  await once(child, 'exit');
  await until(async () => (await b.batchExists(keys)) === keys.length);
  t.deepEqual(await b.get('kept 42'), content(42, 256));
});

test('node loss: a node restarted under the same id starts empty, and old locations do not lead to its new memory', async (t) => {
  const port = await freePort();
  const [a] = (await startStores(t, port, 1)) as [MeshCacheStore];
  const first = await createStore(port, { node_id: 'phoenix' });
  await until(() => a.stats().members === 2);
  t.true(await first.set('k', content(1, 1000)));
  t.deepEqual(await a.get('k'), content(1, 1000));
  await first.close();
  const second = await createStore(port, { node_id: 'phoenix' });
  t.teardown(() => second.close());
  await until(() => a.stats().members === 2);
  t.true(await second.set('other', content(2, 1000)));
  t.is(await a.get('k'), null);
  t.is(await second.get('k'), null);
  t.deepEqual(await a.get('other'), content(2, 1000));
});

test('node loss: what was cleared while a third node was there stays gone when that one leaves', async (t) => {
  // Cause: the deletes went to the owners of the time only, and a former owner became owner again.
  const port = await freePort();
  const stores: MeshCacheStore[] = [];
  t.teardown(() => Promise.all(stores.map((store) => store.close())));
  for (let i = 0; i < 2; i++) stores.push(await createStore(port, { directory_replicas: 1 }));
  const [a, b] = stores as [MeshCacheStore, MeshCacheStore];
  await until(() => stores.every((store) => store.stats().members === 2));
  const keys = Array.from({ length: 300 }, (_, i) => `cleared ${i}`);
  for (const key of keys) t.true(await a.set(key, content(1, 64)));
  const c = await createStore(port, { directory_replicas: 1 });
  stores.push(c);
  await until(() => stores.every((store) => store.stats().members === 3));
  await a.clear();
  await c.close();
  await until(() => a.stats().members === 2 && b.stats().members === 2);
  for (const key of keys) t.false(await b.exists(key), key);
});
