import test from 'ava';
import { RequestType, Status } from '../../src/clients/wire/messages.js';
import type { KeyNamespace } from '../../src/core/index.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { startNode } from '../_support/clients/client-fixture.js';
import { helloBody, TestClient } from '../_support/clients/test-client.js';
import { startStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content, until } from '../_support/support.js';

const PARTS = { modelName: 'other', tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };

simulated('fingerprints: nodes of one namespace that disagree refuse each other, others do not', async (t, world) => {
  const first = await startStore(world, { config: { fingerprint: '5eed', node_id: 'first' } });
  const error = await t.throwsAsync(startStore(world, { config: { fingerprint: '5eee' } }), { code: 'ERR_CONFIG' });
  t.regex(error?.message ?? '', /"fingerprint": got 5eee, but node "first".* has 5eed/);
  const stores = [first];
  for (const config of [
    { fingerprint: '5eed' },
    { fingerprint: '5eee', namespace: 'v2' },
    { fingerprint: '5eee', dtype: 'x' },
    {},
  ]) {
    stores.push(await startStore(world, { config }));
  }
  await world.until(() => stores.every((store) => store.stats().members === stores.length));
  const [, same, , , none] = stores as MeshCacheStore[];
  t.true(await first.set('key', content(1, 100)));
  t.deepEqual(await same?.get('key'), content(1, 100));
  t.is(await none?.get('key'), null, 'keys with and without a fingerprint never meet');
  for (const store of stores) store.verify();
});

test('fingerprints: clients of one namespace that disagree refuse each other, as long as both are there', async (t) => {
  const store = await startNode(t, { fingerprint: '5eed' });
  const attach = (name: string, namespace: KeyNamespace) =>
    TestClient.attach(t, store.clientSocket, { name, namespace });
  const one = await attach('one', { ...PARTS, fingerprint: '1' });
  const refused = async (namespace: KeyNamespace): Promise<string> => {
    const client = await TestClient.connect(t, store.clientSocket);
    const { header, body } = await client.request(RequestType.hello, helloBody({ name: 'refused', namespace }));
    await client.closed;
    t.is(header.status, Status.refused);
    return body.toString();
  };
  t.regex(await refused({ ...PARTS, fingerprint: '2' }), /fingerprint: got "2", but an attached client has "1"/);
  t.regex(await refused({ ...PARTS, fingerprint: 'with space' }), /fingerprint "with space"; allowed are/);
  t.regex(await refused({ ...PARTS, modelName: 'test', fingerprint: '1' }), /got "1", but node ".*" has "5eed"/);
  t.regex(await store.metrics.renderPrometheus(), /meshcache_clients_refused_total\{[^}]*\} 2\n/);
  const same = await attach('same', { ...PARTS, fingerprint: '1' });
  await attach('none', PARTS);
  await attach('elsewhere', { ...PARTS, tag: 'v2', fingerprint: '2' });
  for (const client of [one, same]) client.socket.destroy();
  await until(() => store.clients().length === 2);
  await attach('later', { ...PARTS, fingerprint: '2' });
});
