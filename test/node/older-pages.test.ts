import test from 'ava';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { PageStatements } from '../../src/store/page-statements.js';
import type { DataLocation } from '../../src/types.js';
import { content, until } from '../support.js';
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
