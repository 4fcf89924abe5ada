import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import { ArgumentError } from '../../src/base/errors.js';
import { MeshCacheClient } from '../../src/client/meshcache-client.js';
import type { StorageConfig } from '../../src/config.js';
import type { KeyNamespace } from '../../src/core/index.js';
import { keyEncoderFor } from '../../src/node/key-namespace.js';
import { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { sampleIn } from '../_support/metrics/samples.js';
import { content, freePort, until } from '../_support/support.js';

const EXTRA = {
  protocol: 'tcp',
  global_segment_size: '1mb',
  metrics_enabled: false,
  heartbeat_interval: 0.2,
  member_ttl: 3,
};
const ONE = { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };

async function start(t: ExecutionContext, port: number, storage: Partial<StorageConfig> = {}) {
  const { extraConfig, ...rest } = storage;
  const config = { ...ONE, ...rest, extraConfig: { discovery_addr: `127.0.0.1:${port}`, ...EXTRA, ...extraConfig } };
  const store = await MeshCacheStore.create(config, { log: silentLogger });
  t.teardown(() => store.close());
  return { store, config };
}

for (const isMlaModel of ['false', '0', 0, ' False ', false]) {
  test.serial(`storage: isMlaModel ${JSON.stringify(isMlaModel)} keeps the pages of ranks apart`, async (t) => {
    // Cause: text that is not empty was taken for true, and rank 1 read the pages of rank 0.
    const port = await freePort();
    const [zero, one] = [
      await start(t, port, { tpRank: '0', tpSize: '2', isMlaModel }),
      await start(t, port, { tpRank: '1', tpSize: 2, isMlaModel }),
    ];
    await until(() => zero.store.stats().members === 2 && one.store.stats().members === 2);
    t.true(await zero.store.set('k', content(1, 100)));
    t.is(await one.store.get('k'), null);
  });
}

for (const isMlaModel of ['true', '1', 1, true]) {
  test.serial(`storage: isMlaModel ${JSON.stringify(isMlaModel)} shares the pages of ranks`, async (t) => {
    const port = await freePort();
    const zero = await start(t, port, { tpRank: 0, tpSize: 2, isMlaModel });
    const one = await start(t, port, { tpRank: 1, tpSize: '2', isMlaModel: true });
    await until(() => zero.store.stats().members === 2 && one.store.stats().members === 2);
    t.true(await zero.store.set('k', content(1, 100)));
    t.deepEqual(await one.store.get('k'), content(1, 100));
  });
}

test.serial(
  'storage: a namespace is that of a store with these settings, in a program and at the socket',
  async (t) => {
    // Cause: texts that were left out were absent in one place and empty in the other, which made different keys.
    const folder = mkdtempSync(join(tmpdir(), 'meshcache-namespace-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    for (const namespace of [
      {},
      { modelName: 'llama' },
      { modelName: 'llama', tag: 'weights-1' },
      { tag: 'weights-2' },
    ]) {
      const { tag = '', ...storage } = namespace as Partial<KeyNamespace>;
      const port = await freePort();
      const client_socket = join(folder, 'node.sock');
      const { store } = await start(t, port, { ...storage, extraConfig: { namespace: tag, client_socket } });
      const { store: other } = await start(t, port, { modelName: 'other' });
      await until(() => store.stats().members === 2 && other.stats().members === 2);
      t.true(await store.set('key', content(1, 100)));
      const client = await MeshCacheClient.connect({ socket: store.clientSocket, namespace });
      t.teardown(() => client.close());
      for (const [name, one] of Object.entries({
        own: store.namespace(namespace),
        other: other.namespace(namespace),
        client,
      })) {
        t.deepEqual(await one.get('key'), content(1, 100), `${JSON.stringify(namespace)}: ${name}`);
      }
      t.is(await other.get('key'), null);
      await client.close();
      await store.close();
      await other.close();
    }
  },
);

test.serial('storage: ranks and booleans that are none are refused', async (t) => {
  const port = await freePort();
  const wrong: Record<string, unknown>[] = [
    ...['maybe', '', 2, {}, [], 'null'].map((isMlaModel) => ({ isMlaModel })),
    ...['', 'x', true, null, undefined, Number.NaN, -1, 1.5, '1', 1n].map((tpRank) => ({ tpRank })),
    ...['', 0, '0', 2 ** 32, null].map((tpSize) => ({ tpSize })),
    { ppRank: '2', ppSize: '2' },
    { modelName: 7 },
  ];
  for (const fields of wrong) {
    await t.throwsAsync(start(t, port, fields), { instanceOf: ArgumentError }, JSON.stringify(Object.keys(fields)));
  }
  const extraConfig = { discovery_addr: '127.0.0.1:1' };
  t.throws(() => keyEncoderFor({ ...ONE, tpRank: 1, extraConfig }), { instanceOf: ArgumentError });
  t.throws(() => keyEncoderFor(null as never), { instanceOf: ArgumentError });
});

test.serial('storage: ranks that are text name the folder of the disk tier as numbers do', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-ranks-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const extraConfig = { disk_enabled: true, disk_path: folder, disk_size: '8mb' };
  await start(t, await freePort(), { tpRank: '01', tpSize: ' 2 ', ppRank: '0', ppSize: '1', extraConfig });
  t.deepEqual(readdirSync(folder), ['tp1-pp0']);
});

test.serial(
  'storage: the keys of a store are found in the directory by its encoder, or by one of its configuration',
  async (t) => {
    const extraConfig = { namespace: 'team', dtype: 'fp8' };
    const { store, config } = await start(t, await freePort(), {
      tpRank: '1',
      tpSize: '4',
      modelName: 'llama',
      extraConfig,
    });
    t.true(await store.set('page', content(1, 100)));
    for (const encoder of [store.keyEncoder, keyEncoderFor(config)]) {
      const [location] = await store.runtime.directory.get(encoder.encodeKeys(['page']));
      t.is(location?.nodeId, store.runtime.nodeId);
      t.is(location?.length, 100);
    }
  },
);

test('storage: a store that is made by new is refused, with what to call', (t) => {
  // Cause: it was made, of nothing, and every call of it failed with a TypeError.
  const Store = MeshCacheStore as unknown as new (...given: unknown[]) => MeshCacheStore;
  for (const given of [[], [{}], [{ ...ONE, extraConfig: {} }], [Symbol('created'), {}]]) {
    t.throws(() => new Store(...given), { instanceOf: ArgumentError, message: /await MeshCacheStore\.create\(/ });
  }
});

test.serial('storage: a get without a target counts once, hit or miss', async (t) => {
  // Cause: a page of which not even the length was found was not counted.
  const { store } = await start(t, await freePort());
  t.true(await store.set('here', content(1, 100)));
  const counted = async (result: string) =>
    sampleIn(await store.metrics.renderPrometheus(), 'meshcache_reads_total', { result }) ?? 0;
  t.is(await store.get('away'), null);
  t.is(store.stats().misses, 1);
  t.is(await counted('miss'), 1);
  t.not(await store.get('here'), null);
  t.is(store.stats().hits.local, 1);
  t.is(store.stats().misses, 1);
  t.is(await counted('hit'), 1);
  t.is(await counted('miss'), 1);
});
