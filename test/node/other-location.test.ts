import test from 'ava';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { DataLocation } from '../../src/types.js';
import { createCluster } from '../_support/node/store-fixture.js';
import { patientClock } from '../_support/patient-clock.js';
import { content } from '../_support/support.js';

const PAGE_BYTES = 16 * 1024;
const PAGES = 64;

test('reads: a page that one node does not hand out is read from another one that has it, within the same call', async (t) => {
  // Nobody is dropped meanwhile: the directory goes on naming the node that cannot be read.
  const stores = await createCluster(4, { heartbeat_interval: 2, member_ttl: 60 });
  t.teardown(() => Promise.all(stores.map((store) => store.close())));
  const [dead, alive, reader, other] = stores as [MeshCacheStore, MeshCacheStore, MeshCacheStore, MeshCacheStore];
  const keys = Array.from({ length: PAGES }, (_, i) => `shared ${i}`);
  for (const store of [dead, alive]) {
    for (const [i, key] of keys.entries()) t.true(await store.set(key, content(i, PAGE_BYTES)));
  }
  const alone = 'only there';
  t.true(await dead.set(alone, content(1000, PAGE_BYTES)));
  await dead.runtime.transport.close();

  for (const store of [reader, other]) {
    const pages = await Promise.all(keys.map((key) => store.get(key)));
    t.is(pages.filter((page) => page === null).length, 0, 'pages missed');
    for (const [i, page] of pages.entries()) t.deepEqual(page, content(i, PAGE_BYTES));
    const startMs = patientClock.nowMs();
    t.is(await store.get(alone), null);
    t.true(patientClock.nowMs() - startMs < 1_000, 'what only a dead node has costs no deadline again');
  }
});

test('reads: a location of 0 bytes is none, and spoils nothing beside it', async (t) => {
  const stores = await createCluster(2);
  t.teardown(() => Promise.all(stores.map((store) => store.close())));
  const [stating, reader] = stores as [MeshCacheStore, MeshCacheStore];
  t.true(await stating.set('whole', content(1, PAGE_BYTES)));
  const [whole, key] = stating.keyEncoder.encode(['whole', 'empty']).objectKeys as [string, string];
  const [location] = await stating.runtime.directory.get([whole]);
  t.deepEqual(
    await stating.runtime.directory.put({ [key]: new DataLocation({ ...(location as DataLocation), length: 0 }) }),
    [true],
  );
  t.is(await reader.get('empty'), null);
  t.deepEqual(await reader.getMany(['empty', 'whole']), [null, content(1, PAGE_BYTES)]);
});
