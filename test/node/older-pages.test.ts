import test from 'ava';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { PageStatements } from '../../src/store/page-statements.js';
import type { DataLocation } from '../../src/types.js';
import { CutNetwork } from '../cut-network.js';
import { content, freePort, until } from '../support.js';
import { startStore } from './master-cluster.js';
import { createCluster } from './store-fixture.js';

const PAGE_BYTES = 4 * 1024;

// Cause: a node that was cut off when the page was overwritten states it again to owners that were cut off, too.
test('reads: a node that has set a page and lost it reads no older one, and its holder drops that', async (t) => {
  const stores = await createCluster(2);
  t.teardown(() => Promise.all(stores.map((store) => store.close())));
  const [writer, holder] = stores as [MeshCacheStore, MeshCacheStore];
  t.true(await holder.set('key', content(1, PAGE_BYTES)));
  const objectKeys = writer.keyEncoder.encodeKeys(['key'], 'kv');
  const [older] = await writer.runtime.directory.get(objectKeys);
  const { drop } = PageStatements.prototype;
  // The holder does not hear that the page is superseded.
  PageStatements.prototype.drop = async () => {};
  t.true(await writer.set('key', content(2, PAGE_BYTES)));
  PageStatements.prototype.drop = drop;
  await writer.clear();
  t.deepEqual(await holder.get('key'), content(1, PAGE_BYTES));
  writer.runtime.directory.find = async (_keys, onFound) => onFound([[0, older as DataLocation]]);
  t.false(await writer.get('key', new Uint8Array(PAGE_BYTES)));
  await until(async () => (await holder.get('key')) === null);
});

// Cause: the owners of some keys were all away; nobody that they asked knew of anything newer.
test('reads: nodes that were cut off learn what has been set meanwhile, also when it is gone since', async (t) => {
  const port = await freePort();
  const network = new CutNetwork();
  const hosts = ['127.0.0.71', '127.0.0.72', '127.0.0.73', '127.0.0.74'] as const;
  const addr = `${hosts[0]}:${port},${hosts[2]}:${port}`;
  const stores: MeshCacheStore[] = [];
  for (const host of hosts) stores.push(await startStore(t, { host, addr }, network.of(host)));
  const [writer, reader, holder] = stores as [MeshCacheStore, MeshCacheStore, MeshCacheStore];
  const areAll = (count: number) => until(() => stores.every((store) => store.stats().members === count));
  await areAll(4);
  const keys = Array.from({ length: 60 }, (_, i) => `key ${i}`);
  for (const [i, key] of keys.entries()) t.true(await holder.set(key, content(i, PAGE_BYTES)));
  network.isolate(hosts[2], hosts[3]);
  await areAll(2);
  for (const [i, key] of keys.entries()) t.true(await writer.set(key, content(1000 + i, PAGE_BYTES)));
  await writer.clear();
  network.heal();
  await areAll(4);
  for (const store of [holder, reader]) {
    await until(async () => (await Promise.all(keys.map((key) => store.get(key)))).every((page) => page === null));
  }
  t.is(holder.stats().members, 4);
});
