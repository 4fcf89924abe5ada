import { stringsOf } from '../../../src/core/binding/key-batch.js';
import type { OwnerRing } from '../../../src/directory/owners/owners.js';
import type { MeshCacheStore } from '../../../src/node/meshcache-store.js';

/** Pages read from other nodes, and keys asked of directory owners: all of them, and those that left the zone. */
export interface ZoneShares {
  readonly reads: { all: number; leaving: number };
  readonly lookups: { all: number; leaving: number };
}

/** The zone of a node, which its name says; so nodes that are not told their zones are counted, too. */
function zoneOf(nodeId: string): string {
  return nodeId.split('.')[0] as string;
}

/**
 * Counts from now on, without asking the store: pages by the endpoints that its transport reads from, lookups by the
 * owner that is asked first.
 */
export function countZoneShares(store: MeshCacheStore): ZoneShares {
  const shares = { reads: { all: 0, leaving: 0 }, lookups: { all: 0, leaving: 0 } };
  const { runtime } = store;
  const { transport, directory, nodeId } = runtime;
  const isAway = (other: string | undefined): number => Number(other !== undefined && zoneOf(other) !== zoneOf(nodeId));
  const ownerOf = (endpoint: string): string | undefined =>
    [...runtime.members().values()].find(({ tcpHost, tcpPort }) => `${tcpHost}:${tcpPort}` === endpoint)?.nodeId;
  const batchRead = transport.batchRead.bind(transport);
  transport.batchRead = (ops, ...rest) => {
    shares.reads.all += ops.length;
    for (const { remoteEndpoint } of ops) shares.reads.leaving += isAway(ownerOf(remoteEndpoint));
    return batchRead(ops, ...rest);
  };
  const countLookups = (keys: readonly string[]): void => {
    const ring = directory.rings()[0] as OwnerRing;
    const { directoryReplicas: replicas } = runtime.config;
    const owners = ring.getNodesBatch(keys, replicas);
    const own = ring.nodes.indexOf(nodeId);
    directory.firstOwners(keys).forEach((owner, i) => {
      const isOwn = owners.subarray(i * replicas, (i + 1) * replicas).includes(own);
      shares.lookups.all++;
      if (!isOwn) shares.lookups.leaving += isAway(ring.nodes[owner]);
    });
  };
  const [find, get] = [directory.find.bind(directory), directory.get.bind(directory)];
  directory.find = (keys, ...rest) => {
    countLookups(stringsOf(keys));
    return find(keys, ...rest);
  };
  directory.get = (keys) => {
    countLookups(keys);
    return get(keys);
  };
  return shares;
}

export function shareOf({ all, leaving }: ZoneShares['reads']): number {
  return all === 0 ? 0 : leaving / all;
}
