import test from 'ava';
import { clusterStatus } from '../../src/cli/status/status.js';
import { formatStatus } from '../../src/cli/status/status-text.js';
import { KeyEncoder } from '../../src/core/index.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { wholeNamespace } from '../../src/store/namespace/node-namespace.js';
import { attach } from '../_support/client/attached-nodes.js';
import { startNodes } from '../_support/clients/client-fixture.js';
import { until } from '../_support/support.js';

test('attached namespaces: status compares those of the clients of all nodes', async (t) => {
  const [a, b] = (await startNodes(t, 2)) as [MeshCacheStore, MeshCacheStore];
  const layout = 'vllm/1 heads=8x128 page=16';
  const named = { modelName: 'meta/llama', dtype: 'bfloat16', layout };
  const byPath = { ...named, modelName: '/models/llama' };
  await attach(t, a.clientSocket, { namespace: named, name: 'engine-0' });
  await attach(t, a.clientSocket, { namespace: named, name: 'engine-1' });
  await attach(t, b.clientSocket, { namespace: named, name: 'engine-2' });
  const last = await attach(t, b.clientSocket, { namespace: byPath, name: 'engine-3' });
  await attach(t, b.clientSocket, { name: 'program' });
  const ask = () => clusterStatus(a.runtime.config.discoveryEndpoints());
  const status = await ask();
  const [idA, idB] = [a.runtime.nodeId, b.runtime.nodeId];
  const shown = Object.fromEntries(status.namespaces.map(({ model_name, clients }) => [model_name, clients]));
  const at = (client: string, node_id: string) => ({ client, node_id });
  const shared = [at('engine-0', idA), at('engine-1', idA), at('engine-2', idB)];
  t.deepEqual(
    [...(shown['meta/llama'] ?? [])].sort((x, y) => x.client.localeCompare(y.client)),
    shared,
  );
  t.deepEqual(shown['/models/llama'], [at('engine-3', idB)]);
  t.deepEqual(shown[a.keyEncoder.namespace.modelName ?? ''], [at('program', idB)], 'the namespace of the node');
  t.is(status.namespaces.length, 3);
  const [key = ''] = new KeyEncoder({ ...wholeNamespace(named) }).encodeKeys(['']);
  const digests = Object.fromEntries(status.namespaces.map(({ model_name, digest }) => [model_name, digest]));
  t.is(`${digests['meta/llama']}/`, key, 'keys of the namespace begin with its digest');
  t.is(status.namespace_warnings.length, 1);
  t.regex(status.namespace_warnings[0] as string, /differ only in model: '.*llama' and '.*llama'$/);
  t.regex(formatStatus(status, { columns: 300 }), /share no pages: their namespaces differ only in model/);
  await last.close();
  await until(async () => (await ask()).namespaces.length === 2);
  t.deepEqual((await ask()).namespace_warnings, []);
});
