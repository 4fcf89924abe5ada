import type { ExecutionContext } from 'ava';
import { SHARD_FILLING_TIMEOUT_MS } from '../../src/base/limits.js';
import { PartitionedRing } from '../../src/core/ring/partitions.js';
import { keyFields, readFlags } from '../../src/directory/messages/wire.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { RpcClient } from '../../src/rpc/client.js';
import type { NodeInfo } from '../../src/types.js';
import { PORT, startStore } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const PAGES_COUNT = 600;
const PAGE_BYTES = 256;
const KEYS = Array.from({ length: PAGES_COUNT }, (_, i) => `page ${i}`);
const SETTINGS = { directory_replicas: 1, global_segment_size: '2mb' };

/** Nodes that have set all pages, each its share; `join` adds one and resolves with what `create()` resolves with. */
async function filledCluster(
  t: ExecutionContext,
  world: TestWorld,
  count: number,
  extra: Record<string, unknown> = {},
) {
  const stores: MeshCacheStore[] = [];
  const join = async (more: Record<string, unknown> = {}): Promise<MeshCacheStore> => {
    const store = await startStore(world, { config: { ...SETTINGS, ...extra, ...more } });
    stores.push(store);
    return store;
  };
  for (let i = 0; i < count; i++) await join();
  await world.until(() => stores.every((store) => store.stats().members === count));
  const set = KEYS.map((key, i) => (stores[i % count] as MeshCacheStore).set(key, content(i, PAGE_BYTES)));
  t.false((await Promise.all(set)).includes(false));
  return { stores, join };
}

/** Pages that the node says exist, and those of them that it reads with the right bytes, all asked for at once. */
async function foundBy(store: MeshCacheStore): Promise<{ existing: number; read: number }> {
  const existence = Promise.all(KEYS.map((key) => store.exists(key)));
  const pages = await Promise.all(KEYS.map((key) => store.get(key)));
  const isRight = (page: Uint8Array | null, i: number): boolean =>
    page !== null && Buffer.compare(page, content(i, PAGE_BYTES)) === 0;
  return { existing: (await existence).filter(Boolean).length, read: pages.filter(isRight).length };
}

const ALL = { existing: PAGES_COUNT, read: PAGES_COUNT };

for (const verify_reads of [true, false]) {
  simulated(
    `joining: the fourth of four nodes finds all pages at once, verify_reads ${verify_reads}`,
    async (t, world) => {
      // Cause: it owned keys whose entries it had not been told yet, and knew no former owners to ask.
      const { join } = await filledCluster(t, world, 3, { verify_reads, reuse_quarantine_ms: 60_000 });
      t.deepEqual(await foundBy(await join()), ALL);
    },
  );
}

for (const directory_replicas of [1, 2, 3]) {
  for (const by of ['set', 'delete'] as const) {
    simulated(
      `joining: a new node does not read its own page after another's ${by}, ${directory_replicas} replicas`,
      async (t, world) => {
        // Cause: the others learnt of the node only after its start, and could not tell it what they had set or deleted.
        const { stores, join } = await filledCluster(t, world, 3, { directory_replicas });
        const joined = await join();
        for (let i = 0; i < 40; i++) {
          const other = stores[i % 3] as MeshCacheStore;
          const key = `new ${i}`;
          t.true(await joined.set(key, content(1, PAGE_BYTES)));
          t.true(by === 'set' ? await other.set(key, content(2, PAGE_BYTES)) : (await other.delete([key]))[0]);
          const page = await joined.get(key);
          t.deepEqual(page && Buffer.from(page), by === 'set' ? Buffer.from(content(2, PAGE_BYTES)) : null);
        }
      },
    );
  }
}

simulated(
  'joining: nodes that join at the same time find all pages at once, and so do the others',
  async (t, world) => {
    const { stores, join } = await filledCluster(t, world, 3);
    for (let round = 0; round < 3; round++) {
      const found = await Promise.all(Array.from({ length: 3 }, async () => foundBy(await join())));
      t.deepEqual(found, [ALL, ALL, ALL], `round ${round}`);
      for (const store of stores) t.deepEqual(await foundBy(store), ALL, `round ${round}`);
    }
  },
);

simulated('joining: a node that runs a master itself hears of the others before it has started', async (t, world) => {
  // Cause: its own master, which knew nobody yet, answered first.
  const addr = `10.0.0.1:${PORT},10.0.0.2:${PORT}`;
  const start = (host: string) => startStore(world, { host, addr, config: SETTINGS });
  const stores = [await start('10.0.0.1'), await start('10.0.0.1')];
  await world.until(() => stores.every((store) => store.stats().members === 2));
  const set = KEYS.map((key, i) => (stores[i % 2] as MeshCacheStore).set(key, content(i, PAGE_BYTES)));
  t.false((await Promise.all(set)).includes(false));
  const other = await start('10.0.0.2');
  t.is(other.stats().members, 3);
  t.deepEqual(await foundBy(other), ALL);
});

for (const by of ['set', 'delete'] as const) {
  for (const port of [0, 40_000]) {
    simulated(
      `joining: a node that is killed and started again does not read its copies after another's ${by}, port ${port}`,
      async (t, world) => {
        // Cause: what the killed start had not answered was repeated after a pause, and what came meanwhile waited along.
        const keys = KEYS.slice(0, 40);
        const settings = { directory_replicas: 2 };
        const { stores } = await filledCluster(t, world, 2, settings);
        const setter = stores[1] as MeshCacheStore;
        const config = { ...SETTINGS, ...settings, node_id: 'again', control_port: port };
        let node = await startStore(world, { host: '10.0.0.9', config });
        for (let round = 0, version = 0; round < 5; round++) {
          const setAll = async (): Promise<void> => {
            version++;
            for (const [i, key] of keys.entries()) {
              t.true(await setter.set(key, content(version * PAGES_COUNT + i, PAGE_BYTES)));
            }
          };
          await setAll();
          t.false((await node.pin(keys, { forMs: 60_000 })).includes(false));
          node.process.kill();
          for (let i = 0; i < 3; i++) {
            await setAll();
            await world.sleep(100 + 50 * round);
          }
          node = await startStore(world, { host: '10.0.0.9', config });
          t.false((await node.pin(keys, { forMs: 60_000 })).includes(false));
          if (by === 'set') await setAll();
          else t.false((await setter.delete(keys)).includes(false), `round ${round}`);
          for (const [i, key] of keys.entries()) {
            const page = await node.get(key);
            const expected = by === 'set' ? Buffer.from(content(version * PAGES_COUNT + i, PAGE_BYTES)) : null;
            t.deepEqual(page && Buffer.from(page), expected, `round ${round}, ${key}`);
          }
        }
      },
    );
  }
}

/** Of the pages' keys that the node owns, those that its own shard knows. */
async function knownTo({ operator }: TestWorld, store: MeshCacheStore): Promise<{ owned: number; known: number }> {
  const { nodeId, config } = store.runtime;
  const ring = new PartitionedRing(config.vnodes);
  ring.setNodes([...store.runtime.members().keys()]);
  const owned = store.keyEncoder.encodeKeys(KEYS).filter((key) => ring.getNode(key) === nodeId);
  const self = store.runtime.members().get(nodeId) as NodeInfo;
  const endpoint = { host: self.controlHost, port: self.controlPort };
  const rpc = new RpcClient({ env: operator.environment });
  const answer = await rpc.call(endpoint, 'directory.exists', keyFields(owned));
  await rpc.close();
  const flags = readFlags(answer as Record<string, unknown>, 'found', owned.length);
  return { owned: owned.length, known: flags.reduce((sum, flag) => sum + flag, 0) };
}

simulated('joining: with wait_for_directory a node resolves when its shard is complete', async (t, world) => {
  const { join } = await filledCluster(t, world, 3);
  const store = await join({ wait_for_directory: 'true' });
  const { owned, known } = await knownTo(world, store);
  t.true(owned > 0);
  t.is(known, owned);
  t.deepEqual(await foundBy(store), ALL);
});

simulated(
  'joining: with wait_for_directory nodes that join at the same time do not wait for ever',
  async (t, world) => {
    const { join } = await filledCluster(t, world, 3);
    for (let round = 0; round < 2; round++) {
      const found = await Promise.all(
        Array.from({ length: 3 }, async () => foundBy(await join({ wait_for_directory: true }))),
      );
      t.deepEqual(found, [ALL, ALL, ALL], `round ${round}`);
    }
  },
);

simulated('joining: with wait_for_directory the first node of a cluster starts at once', async (t, world) => {
  const startedMs = world.nowMs;
  const { stores } = await filledCluster(t, world, 1, { wait_for_directory: true });
  t.is(stores.length, 1);
  t.true(world.nowMs - startedMs < SHARD_FILLING_TIMEOUT_MS);
});
