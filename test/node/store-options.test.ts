import test from 'ava';
import { ArgumentError, ConfigError } from '../../src/base/errors.js';
import { toSnakeCase } from '../../src/base/names.js';
import { CONFIG_KEYS, MeshCacheConfig, type StorageConfig } from '../../src/config.js';
import { keyEncoderFor } from '../../src/node/key-namespace.js';
import { MeshCacheStore } from '../../src/node/meshcache-store.js';
import type { MeshCacheStoreOptions, SizeSetting } from '../../src/node/store-options.js';
import { quiet } from '../_support/node/store-fixture.js';
import { freePort } from '../_support/support.js';

const ADDR = '127.0.0.1:31990';

/** Options that the compiler accepts and refuses; this is never called. */
function checkTypes(): void {
  const { create } = MeshCacheStore;
  void create({ discoveryAddr: ADDR });
  void create({
    discoveryAddr: ADDR,
    protocol: 'tcp',
    globalSegmentSize: '1.5gb',
    diskSize: 1e9,
    clusterSecret: ['a', 'b'],
  });
  void create({
    discoveryAddr: ADDR,
    modelName: undefined,
    tpRank: 1,
    tpSize: 8,
    isMlaModel: true,
    deviceNames: ['mlx5_0'],
  });
  void create({
    tpRank: '0',
    tpSize: 1,
    ppRank: 0,
    ppSize: 1,
    isMlaModel: false,
    extraConfig: { discovery_addr: ADDR },
  });
  // @ts-expect-error: the address is required
  void create({ protocol: 'tcp' });
  // @ts-expect-error: names are in camelCase
  void create({ discovery_addr: ADDR });
  // @ts-expect-error: no such option
  void create({ discoveryAddr: ADDR, globalSegmentsSize: '1gb' });
  // @ts-expect-error: no such protocol
  void create({ discoveryAddr: ADDR, protocol: 'udp' });
  // @ts-expect-error: no such unit
  void create({ discoveryAddr: ADDR, globalSegmentSize: '4 zb' });
  // @ts-expect-error: a number
  void create({ discoveryAddr: ADDR, vnodes: '160' });
  // @ts-expect-error: a boolean
  void create({ discoveryAddr: ADDR, diskEnabled: 'true' });
  // @ts-expect-error: settings stand in extraConfig, or extraConfig is left out
  void create({ discoveryAddr: ADDR, extraConfig: {} });
}

test('store options: the compiler knows names and values', (t) => {
  t.is(typeof checkTypes, 'function');
});

test('store options: the compiler takes every size as text that a node takes so', (t) => {
  const sizes: Required<Pick<MeshCacheStoreOptions, SizeSetting>> = {
    globalSegmentSize: '64mb',
    diskSize: '64mb',
    diskIndexSize: '64mb',
    clusterMap: '64mb',
    clientRegionsMax: '64mb',
    objectStoreWriteRate: '64mb',
  };
  const isSize = (key: string): boolean => {
    try {
      MeshCacheConfig.fromExtraConfig({ discovery_addr: ADDR, [key]: 'no size' });
      return false;
    } catch (error) {
      return /as bytes or with b, kb/.test((error as Error).message);
    }
  };
  t.deepEqual(CONFIG_KEYS.filter(isSize).sort(), Object.keys(sizes).map(toSnakeCase).sort());
});

test('store options: a store needs nothing but the address of discovery', async (t) => {
  const discoveryAddr = `127.0.0.1:${await freePort()}`;
  const options: MeshCacheStoreOptions = {
    discoveryAddr,
    protocol: 'tcp',
    globalSegmentSize: '16mb',
    metricsEnabled: false,
    modelName: 'test',
  };
  await using store = await MeshCacheStore.create(options, quiet);
  t.true(await store.set('k', new Uint8Array([1, 2, 3])));
  t.is(store.stats().poolCapacityBytes, 16 << 20);
  const storage: StorageConfig = {
    tpRank: 0,
    tpSize: 1,
    ppRank: 0,
    ppSize: 1,
    isMlaModel: false,
    modelName: 'test',
    extraConfig: { discovery_addr: discoveryAddr },
  };
  // Both forms mean the same keys.
  t.deepEqual(keyEncoderFor(options).encodeKeys(['k']), keyEncoderFor(storage).encodeKeys(['k']));
  t.deepEqual(store.keyEncoder.encodeKeys(['k']), keyEncoderFor(storage).encodeKeys(['k']));
});

for (const [options, message] of [
  [
    { discovery_addr: ADDR },
    'create: option "discovery_addr" is written "discoveryAddr" here, or give { extraConfig: { discovery_addr: … } } as host frameworks do',
  ],
  [{ discoveryAddr: ADDR, tp_rank: 1 }, 'create: option "tp_rank" is written "tpRank" here'],
  [{ extra_config: {} }, 'create: option "extra_config" is written "extraConfig"'],
  [{}, 'create: option "discoveryAddr" is required, for example "10.0.0.1:31990"'],
  [{ discoveryAdr: ADDR }, 'create: unknown option "discoveryAdr"; did you mean "discoveryAddr"?'],
  [{ discoveryAddr: ADDR, modelname: 'm' }, 'create: unknown option "modelname"; did you mean "modelName"?'],
  [
    { discoveryAddr: ADDR, extraConfig: {} },
    'create: option "discoveryAddr" is given beside extraConfig; write it in there, or leave extraConfig out',
  ],
  [{ discoveryAddr: ADDR, protocol: 'udp' }, 'configuration key "protocol": got "udp", allowed is rdma or tcp'],
  [{ discoveryAddr: ADDR, vnodes: 0 }, 'configuration key "vnodes": got 0, allowed is a whole number of 1 to 4096'],
  [{ discoveryAddr: ADDR, diskEnabled: true }, 'configuration key "diskPath" is required when diskEnabled is true'],
  [
    { discoveryAddr: ADDR, diskPath: '/d' },
    'create: option "diskPath" has no effect without a disk tier; add diskEnabled: true, or leave it out',
  ],
  [
    { discoveryAddr: ADDR, diskWrite: 'evicted' },
    'create: option "diskWrite" has no effect without a disk tier; add diskEnabled: true, or leave it out',
  ],
] as const) {
  test(`store options: ${JSON.stringify(options)} is refused with what to write instead`, async (t) => {
    await t.throwsAsync(MeshCacheStore.create(options as never, quiet), { instanceOf: ConfigError, message });
  });
}

for (const [options, message] of [
  [{ globalSegmentSize: '16tb' }, /^configuration key "globalSegmentSize": got 16 TiB, allowed is at most/],
  [{ clusterSecretFile: '/none' }, /^configuration key "clusterSecretFile": \/none cannot be read/],
  [{ clusterSecret: 'some text of 16', clusterSecretFile: '/none' }, /"clusterSecret" and "clusterSecretFile"/],
  [{ tlsCertFile: '/none' }, /^TLS needs all of tlsCertFile, .* missing: "tlsKeyFile", "tlsCaFile"$/],
  [{ localHostname: '203.0.113.77' }, /^configuration key "localHostname": cannot listen on 203/],
  [{ metricsEnabled: true, metricsHost: '203.0.113.77' }, /^metricsHost: "203/],
  [
    { clientSocket: '/tmp/none.sock', clientSocketGroup: 'no-such-group' },
    /^configuration key "clientSocketGroup": there is/,
  ],
  [
    { diskEnabled: true, diskPath: '/dev/null/disk_size', diskSize: '900tb' },
    /^disk tier: \/dev\/null\/disk_size cannot/,
  ],
] as const) {
  test(`store options: ${JSON.stringify(options)} is refused by the name that was given`, async (t) => {
    const discoveryAddr = `127.0.0.1:${await freePort()}`;
    const base = { discoveryAddr, protocol: 'tcp', globalSegmentSize: '1mb', metricsEnabled: false } as const;
    const error = await t.throwsAsync(MeshCacheStore.create({ ...base, ...options }, quiet), { message });
    t.true(error?.stack?.includes(error.message));
    // A framework that writes its keys in snake_case is told those.
    const extraConfig = Object.fromEntries(
      Object.entries({ ...base, ...options }).map(([name, value]) => [toSnakeCase(name), value]),
    );
    const storage = { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false, extraConfig };
    const ofFramework = await t.throwsAsync(MeshCacheStore.create(storage, quiet));
    t.is(
      ofFramework?.message,
      error?.message.replace(/(?<=[a-z])[A-Z](?=[a-z])/g, (letter) => `_${letter.toLowerCase()}`),
    );
  });
}

test('store options: what is no object is refused', async (t) => {
  for (const given of [undefined, null, ADDR, [ADDR]]) {
    const message = /^create: needs options, such as \{ discoveryAddr: '10\.0\.0\.1:31990' \}, got /;
    await t.throwsAsync(MeshCacheStore.create(given as never, quiet), { instanceOf: ArgumentError, message });
  }
});
