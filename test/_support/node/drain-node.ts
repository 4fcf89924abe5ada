import { parseEndpoint } from '../../../src/base/environment/network.js';
import type { DrainProgress } from '../../../src/node/leaving/drain.js';
import type { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import { RpcClient } from '../../../src/rpc/client.js';
import type { TestWorld } from '../simulated.js';

/** Asks a node to drain, as an operator does. */
export async function drain(
  { operator }: TestWorld,
  store: MeshCacheStore,
  params: object = {},
): Promise<DrainProgress> {
  const rpc = new RpcClient({ env: operator.environment });
  const { control_endpoint } = (await store.runtime.report()) as { control_endpoint: string };
  try {
    return (await rpc.call(parseEndpoint(control_endpoint)!, 'node.drain', params)) as DrainProgress;
  } finally {
    await rpc.close();
  }
}
