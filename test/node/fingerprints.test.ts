import test from 'ava';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { attach } from '../_support/client/attached-nodes.js';
import { startNode } from '../_support/clients/client-fixture.js';
import { startStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content, until } from '../_support/support.js';

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

test('fingerprints: clients of one namespace with other ones keep apart, and go over to another one', async (t) => {
  const store = await startNode(t, { fingerprint: '5eed' });
  const connect = (fingerprint: string, modelName = 'other') =>
    attach(t, store.clientSocket ?? '', { name: `engine-${fingerprint}`, namespace: { modelName, fingerprint } });
  const [one, two, own] = [await connect('1'), await connect('2'), await connect('5eee', 'test')];
  t.true(await one.set('key', content(1, 100)));
  t.true(await store.set('key', content(3, 100)));
  t.is(await two.get('key'), null);
  t.is(await own.get('key'), null);
  two.setFingerprint('1');
  await until(async () => (await two.get('key')) !== null);
  t.deepEqual(await two.get('key'), content(1, 100));
  two.setFingerprint();
  await until(() => two.isConnected);
  t.is(await two.get('key'), null);
  t.is(await one.tellFingerprint('engine-2', '1'), 1);
  await until(async () => (await two.get('key')) !== null);
  t.is(await one.tellFingerprint('nobody', '1'), 0);
  t.throws(() => two.setFingerprint('with space'), { code: 'ERR_ARGUMENT' });
  const ofNode = await attach(t, store.clientSocket ?? '');
  t.throws(() => ofNode.setFingerprint('1'), {
    code: 'ERR_ARGUMENT',
    message: /give connect\(\) a namespace of its own/,
  });
  t.deepEqual(await ofNode.get('key'), content(3, 100));
});
