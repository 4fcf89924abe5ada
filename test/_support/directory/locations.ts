import type { ExecutionContext } from 'ava';
import type { Environment } from '../../../src/base/environment/environment.js';
import { ConsistentHashRing } from '../../../src/core/index.js';
import { LocationColumns } from '../../../src/directory/messages/location-columns.js';
import { DirectoryServer } from '../../../src/directory/server.js';
import { DirectoryShard, type Liveness } from '../../../src/directory/shard/shard.js';
import { RpcServer } from '../../../src/rpc/server.js';
import { DataLocation, type DataLocationInit } from '../../../src/types.js';
import { testEnvironment } from '../rpc/server.js';
import { verifiedEnd } from '../verified.js';

export function locationOf(init: Partial<DataLocationInit> = {}): DataLocation {
  return new DataLocation({
    nodeId: 'n1',
    rdmaEndpoint: '127.0.0.1:7000',
    remoteAddr: 0xffff_0000_0000_1000n,
    rkey: 0xfedcba98,
    length: 1 << 20,
    checksum: 0xdeadbeef,
    incarnation: 1,
    generation: 1,
    ...init,
  });
}

export function columnsOf(...locations: DataLocation[]): LocationColumns {
  return LocationColumns.of(locations, { nodeId: '', incarnation: 0, generation: 1 });
}

/** Puts one location into a shard. */
export function putOne(shard: DirectoryShard, key: string, init: Partial<DataLocationInit> = {}): boolean {
  return shard.put([key], columnsOf(locationOf(init)))[0] === 1;
}

/** The node and generation that a shard hands out for a key. */
export function getOne(shard: DirectoryShard, key: string, avoiding?: string): DataLocation | null {
  return shard.get([key], avoiding).locationAt(0);
}

export interface TestNode {
  readonly nodeId: string;
  readonly shard: DirectoryShard;
  readonly rpc: RpcServer;
  readonly endpoint: { host: string; port: number };
}

/** Starts directory nodes on loopback, and a ring of all of them. */
export async function startNodes(
  t: ExecutionContext,
  nodeIds: readonly string[],
  options: { isLive?: Liveness; env?: Environment } = {},
) {
  const env = options.env ?? testEnvironment();
  const nodes = new Map<string, TestNode>();
  for (const nodeId of nodeIds) {
    const shard = new DirectoryShard(options.isLive === undefined ? {} : { isLive: options.isLive });
    const rpc = new RpcServer({ host: '127.0.0.1', env });
    new DirectoryServer({ shard }).attach(rpc);
    const port = await rpc.start();
    t.teardown(() => verifiedEnd([rpc, shard], () => rpc.stop()));
    nodes.set(nodeId, { nodeId, shard, rpc, endpoint: { host: '127.0.0.1', port } });
  }
  const ring = new ConsistentHashRing(160);
  ring.setNodes(nodeIds);
  return { nodes, ring, resolve: (nodeId: string) => nodes.get(nodeId)?.endpoint };
}
