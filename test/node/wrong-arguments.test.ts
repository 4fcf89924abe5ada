import test from 'ava';
import { ArgumentError } from '../../src/base/errors.js';
import * as core from '../../src/core/index.js';
import * as meshcache from '../../src/index.js';
import { createStore } from '../_support/node/store-fixture.js';
import { freePort } from '../_support/support.js';

const any = { ...core, ...meshcache } as unknown as Record<string, new (...args: unknown[]) => unknown>;

for (const [name, message] of Object.entries({
  PoolAllocator: /^PoolAllocator: needs options, such as \{ capacityBytes: 2 \*\* 30 \}, got undefined$/,
  PublishedPool: /^pool: needs an address/,
  PlacementSimulation: /^PlacementSimulation: needs options with nodes, poolBytes and pageBytes, got undefined$/,
  KeyEncoder: /^the namespace must be an object, got undefined$/,
  Metrics: /^the id of a node must be text, got undefined$/,
  MetricsServer: /^host must be a host name or an address, got undefined$/,
  NodeRuntime: /^a node runtime needs a MeshCacheConfig/,
  RpcServer: /^the options must be an object, got undefined$/,
  DiscoveryServer: /^host must be a host name, got undefined$/,
})) {
  test(`wrong arguments: new ${name}() is refused with what it needs`, (t) => {
    const Made = any[name] as new () => unknown;
    t.throws(() => new Made(), { instanceOf: ArgumentError, message });
  });
}

test('wrong arguments: functions that need options say so', async (t) => {
  const message = /got undefined$/;
  t.throws(() => meshcache.createTransport(undefined as never), { instanceOf: ArgumentError, message });
  t.throws(() => meshcache.DiskStore.open('/nowhere', 1, undefined as never), { instanceOf: ArgumentError, message });
  await t.throwsAsync(meshcache.MeshCacheClient.connect(null as never), {
    instanceOf: ArgumentError,
    message: /^connect: options must be an object/,
  });
});

test('wrong arguments: a ring has 160 points a node by default, and text is no list of nodes', (t) => {
  const ring = new meshcache.ConsistentHashRing();
  t.is(ring.vnodes, 160);
  t.throws(() => ring.setNodes('node' as never), {
    instanceOf: ArgumentError,
    message: `the nodes must be a list of node ids, such as ['node-0'], got "node"`,
  });
  ring.setNodes(['a', 'b']);
  const same = new meshcache.ConsistentHashRing(160);
  same.setNodes(['a', 'b']);
  t.is(ring.getNode('k'), same.getNode('k'));
});

test('wrong arguments: a page has at least one byte, and the error says which page has none', async (t) => {
  const pool = new meshcache.PoolAllocator({ capacityBytes: 1000 });
  t.throws(() => pool.publish('a', 0), {
    instanceOf: ArgumentError,
    message: 'page 0: its length must be an integer from 1 on, got 0',
  });
  t.throws(() => pool.publishBatch(['a', 'b'], [1, 0]), {
    instanceOf: ArgumentError,
    message: 'page 1: its length must be an integer from 1 on, got 0',
  });
  t.throws(() => pool.publish('a', '4kb' as never), {
    instanceOf: ArgumentError,
    message: 'page 0: its length must be an integer from 1 on, got 4kb',
  });
  t.is(pool.size, 0);
  using region = meshcache.HostRegion.allocate(100);
  const published = new meshcache.PublishedPool(region.addr, 100, 1);
  t.throws(() => published.publish('a', region.addr, 0), { instanceOf: ArgumentError });
  published.free();
});

test('wrong arguments: a region that was freed has no pages', async (t) => {
  const regions = [1, 2].map(() => meshcache.HostRegion.allocate(100));
  const pool = meshcache.hostPages({ region: regions, pageBytes: 10 });
  regions[1]?.free();
  t.throws(() => meshcache.hostPages({ region: regions, pageBytes: 10 }), {
    instanceOf: ArgumentError,
    message: 'hostPages: region 1 was freed; allocate it again first',
  });
  await using store = await createStore(await freePort());
  await t.throwsAsync(store.registerMemPoolHost(pool), {
    instanceOf: ArgumentError,
    message: 'registerMemPoolHost: region 1 of the pool was freed; allocate it again first',
  });
  regions[0]?.free();
});

test('wrong arguments: a host that is not this machine’s is blamed on local_hostname, a taken port on its key', async (t) => {
  const port = await freePort();
  await t.throwsAsync(createStore(port, { local_hostname: '203.0.113.77' }), {
    instanceOf: meshcache.ConfigError,
    message:
      /^configuration key "local_hostname": cannot listen on 203\.0\.113\.77:0 \(.*\); give a host name or address/,
  });
  const store = await createStore(port);
  t.teardown(() => store.close());
  const { controlPort } = store.runtime.members().get(store.runtime.nodeId) as { controlPort: number };
  for (const key of ['control_port', 'tcp_port']) {
    await t.throwsAsync(createStore(port, { [key]: controlPort }), {
      instanceOf: meshcache.ConfigError,
      message: new RegExp(`^configuration key "${key}": cannot listen on .*; choose .*, or 0 for any`),
    });
  }
});
