import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { encodeSetBytes, RequestType } from '../../src/clients/wire/messages.js';
import { HostRegion } from '../../src/memory/host-region.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { folder } from '../_support/clients/client-fixture.js';
import { TestClient } from '../_support/clients/test-client.js';
import { createStore } from '../_support/node/store-fixture.js';
import { content, freePort } from '../_support/support.js';

const PAGE_BYTES = 2 ** 18;
/** Room for 64 pages, of which a quarantine takes some. */
const POOL = { global_segment_size: '16mb' };
const LEAST_PREFIX = 56;
const keysOf = (name: string): string[] => Array.from({ length: 120 }, (_, i) => `${name}-${i}`);

async function startStore(t: ExecutionContext, extra: Record<string, unknown> = {}): Promise<MeshCacheStore> {
  const store = await createStore(await freePort(), { ...POOL, ...extra });
  t.teardown(() => store.close());
  return store;
}

/** What was set is there, and it is the head of the prompt. */
async function checkHead(t: ExecutionContext, store: MeshCacheStore, keys: string[], isSet: readonly boolean[]) {
  const prefix = await store.batchExists(keys);
  t.true(prefix >= LEAST_PREFIX, `a prefix of ${prefix}`);
  t.is(isSet.filter(Boolean).length, prefix);
  t.deepEqual(
    isSet.map((_, i) => i < prefix),
    isSet,
  );
}

for (const policy of ['lru', 's3fifo', 'yield']) {
  test(`long request: of a prompt longer than the pool its head stays, and what is said to be set is there (${policy})`, async (t) => {
    const store = await startStore(t, { eviction_policy: policy });
    using region = HostRegion.allocate(PAGE_BYTES);
    for (const name of ['first', 'second']) {
      const keys = keysOf(name);
      const isSet = await store.batchSet(
        keys,
        keys.map(() => region.addr),
        keys.map(() => PAGE_BYTES),
      );
      // S3-FIFO and yield may keep most of the first prompt.
      if (name === 'first' || policy === 'lru') await checkHead(t, store, keys, isSet);
    }
  });
}

test('long request: calls of one request keep its head, by the client socket', async (t) => {
  const store = await startStore(t, { client_socket: join(folder(t), 'node.sock') });
  const client = await TestClient.attach(t, store.clientSocket);
  const page = Buffer.from(content(1, PAGE_BYTES));
  const keys = keysOf('prompt');
  const isSet: boolean[] = [];
  for (let start = 0; start < keys.length; start += 30) {
    const some = keys.slice(start, start + 30);
    const body = encodeSetBytes({
      pool: '',
      isNamed: false,
      continues: start > 0,
      keys: some,
      pages: some.map(() => page),
    });
    for (const flag of await client.ok(RequestType.setBytes, body)) isSet.push(flag === 1);
  }
  await checkHead(t, store, keys, isSet);
});
