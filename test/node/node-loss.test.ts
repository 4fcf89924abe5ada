import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { PAGE_BYTES, startHolder, startStore } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const KEYS = Array.from({ length: 40 }, (_, i) => `dying ${i}`);

async function startStores(
  world: TestWorld,
  count: number,
  config: Record<string, unknown> = {},
): Promise<MeshCacheStore[]> {
  const stores: MeshCacheStore[] = [];
  for (let i = 0; i < count; i++) stores.push(await startStore(world, { config }));
  return stores;
}

simulated('node loss: a killed node is a miss at once, and forgotten after its time-to-live', async (t, world) => {
  const stores = await startStores(world, 2);
  const { process } = await startHolder(world, { keys: KEYS });
  await world.until(() => stores.every((store) => store.stats().members === 3));
  t.deepEqual(await stores[0]?.get('dying 7'), content(7, PAGE_BYTES));

  process.kill();
  for (const [i, key] of KEYS.entries()) {
    const read = await stores[i % 2]?.get(key, new Uint8Array(PAGE_BYTES));
    t.false(read);
  }
  await world.until(() => stores.every((store) => store.stats().members === 2));
  for (const store of stores) {
    for (const key of KEYS) t.false(await store.exists(key));
    t.true(await store.set('still working', content(1, 100)));
  }
});

simulated('node loss: the log tells a node that is lost from one that has left', async (t, world) => {
  const [a, b] = (await startStores(world, 2)) as [MeshCacheStore, MeshCacheStore];
  const { process, nodeId: killed } = await startHolder(world, { keys: KEYS });
  await world.until(() => a.stats().members === 3);
  process.kill();
  await world.until(() => a.stats().members === 2);
  await b.close();
  await world.until(() => a.stats().members === 1);
  const { events } = await a.runtime.report();
  const departures = events.filter(({ message }) => /^nodes? (left|lost)/.test(message));
  t.deepEqual(
    departures.map(({ message, fields }) => [message, fields.node]),
    [
      ['node lost: no heartbeat for 1 s', killed],
      ['node left', b.runtime.nodeId],
    ],
  );
});

simulated(
  'node loss: a node that was lost is told from one that has left, also by a node that joined later',
  async (t, world) => {
    const [a, b] = (await startStores(world, 2)) as [MeshCacheStore, MeshCacheStore];
    const { process, nodeId: killed } = await startHolder(world, { keys: KEYS });
    await world.until(() => a.stats().members === 3);
    process.kill();
    await world.until(() => a.stats().members === 2);
    await b.close();
    await world.until(() => a.stats().members === 1);
    const [later] = (await startStores(world, 1)) as [MeshCacheStore];
    await world.until(() => later.stats().members === 2);
    const { departed = [], member_events = [] } = await later.runtime.cluster();
    t.deepEqual(
      departed.map(({ node_id, how }) => [node_id, how]),
      [
        [b.runtime.nodeId, 'left'],
        [killed, 'lost'],
      ],
    );
    const gone = member_events.filter(({ change }) => change === 'lost' || change === 'left');
    t.deepEqual(
      gone.map(({ node_id }) => node_id),
      [killed, b.runtime.nodeId],
    );
    const text = await a.metrics.renderPrometheus();
    t.regex(text, /^meshcache_member_changes_total\{change="lost",[^}]*\} 1$/m);
    t.regex(text, /^meshcache_member_changes_total\{change="left",[^}]*\} 1$/m);
    t.regex(text, /^meshcache_lost_members\{[^}]*\} 1$/m);
  },
);

simulated('node loss: what was set by others while their directory owner died is found again', async (t, world) => {
  const config = { directory_replicas: 1 };
  const stores = await startStores(world, 2, config);
  const [a, b] = stores as [MeshCacheStore, MeshCacheStore];
  const { process } = await startHolder(world, { config, keys: KEYS });
  await world.until(() => stores.every((store) => store.stats().members === 3));
  const keys = Array.from({ length: 100 }, (_, i) => `kept ${i}`);
  for (const [i, key] of keys.entries()) await a.set(key, content(i, 256));
  process.kill();
  await world.until(async () => (await b.batchExists(keys)) === keys.length);
  t.deepEqual(await b.get('kept 42'), content(42, 256));
});

simulated(
  'node loss: a node restarted under the same id starts empty, and old locations do not lead to its new memory',
  async (t, world) => {
    const [a] = (await startStores(world, 1)) as [MeshCacheStore];
    const first = await startStore(world, { host: '10.0.0.2', config: { node_id: 'phoenix' } });
    await world.until(() => a.stats().members === 2);
    t.true(await first.set('k', content(1, 1000)));
    t.deepEqual(await a.get('k'), content(1, 1000));
    await first.close();
    const second = await startStore(world, { host: '10.0.0.2', config: { node_id: 'phoenix' } });
    await world.until(() => a.stats().members === 2);
    t.true(await second.set('other', content(2, 1000)));
    t.is(await a.get('k'), null);
    t.is(await second.get('k'), null);
    await world.until(() => a.runtime.members().get('phoenix')?.incarnation === second.runtime.incarnation);
    t.deepEqual(await a.get('other'), content(2, 1000));
  },
);

simulated(
  'node loss: what was cleared while a third node was there stays gone when that one leaves',
  async (t, world) => {
    // Cause: the deletes went to the owners of the time only, and a former owner became owner again.
    const stores: MeshCacheStore[] = [];
    for (let i = 0; i < 2; i++) stores.push(await startStore(world, { config: { directory_replicas: 1 } }));
    const [a, b] = stores as [MeshCacheStore, MeshCacheStore];
    await world.until(() => stores.every((store) => store.stats().members === 2));
    const keys = Array.from({ length: 300 }, (_, i) => `cleared ${i}`);
    for (const key of keys) t.true(await a.set(key, content(1, 64)));
    const c = await startStore(world, { config: { directory_replicas: 1 } });
    stores.push(c);
    await world.until(() => stores.every((store) => store.stats().members === 3));
    await a.clear();
    await c.close();
    await world.until(() => a.stats().members === 2 && b.stats().members === 2);
    for (const key of keys) t.false(await b.exists(key), key);
  },
);
