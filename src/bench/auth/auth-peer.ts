import { MeshCacheStore } from '../../node/meshcache-store.js';
import { stderrLogger } from '../../system/system-log.js';
import type { ExecuteCommand } from '../measuring/peer-process.js';
import { benchKeys, benchStorage, publishPages } from '../measuring/store-pages.js';
import { Flood, type FloodOptions, type FloodStats } from './flood.js';

/** A cluster of two nodes: one in the peer, one that reads from it. */
export interface AuthCluster {
  readonly discoveryAddr: string;
  /** Configuration keys of the cluster's secret and certificates. */
  readonly security: Readonly<Record<string, unknown>>;
}

export type AuthPeerCommand =
  | { readonly kind: 'start'; readonly clusters: readonly AuthCluster[]; readonly poolBytes: number }
  /** Drops the pages published before, and answers when every new page is set. */
  | { readonly kind: 'publish'; readonly pageBytes: number; readonly pages: number }
  | { readonly kind: 'flood'; readonly options: FloodOptions }
  | { readonly kind: 'calm' }
  | { readonly kind: 'count' }
  | { readonly kind: 'cpu' };

export interface AuthPeerAnswer {
  readonly error?: string;
  /** Identifiers of the nodes, in the order of the clusters. */
  readonly nodeIds?: readonly string[];
  readonly flood?: FloodStats;
  /** Processor time of the process since its start. */
  readonly cpuMs?: number;
}

/**
 * The other process of the authentication benchmark: one has nodes with pages in their pools, another one floods these.
 */
export function authPeer(): ExecuteCommand<AuthPeerCommand, AuthPeerAnswer> {
  const stores: MeshCacheStore[] = [];
  let flood: Flood | undefined;
  return async (command) => {
    if (command.kind === 'start') {
      for (const { discoveryAddr, security } of command.clusters) {
        const storage = benchStorage(discoveryAddr, command.poolBytes, security);
        // A flood makes nodes log warnings.
        stores.push(await MeshCacheStore.create(storage, { log: stderrLogger('error') }));
      }
      return { nodeIds: stores.map((store) => store.runtime.nodeId) };
    }
    if (command.kind === 'publish') {
      const { pageBytes, pages } = command;
      for (const store of stores) {
        await store.clear();
        await publishPages(store, benchKeys(pageBytes, pages), pageBytes);
      }
      return {};
    }
    if (command.kind === 'flood') {
      flood = await Flood.start(command.options);
      return {};
    }
    if (command.kind === 'cpu') {
      const { user, system } = process.cpuUsage();
      return { cpuMs: (user + system) / 1000 };
    }
    const stats = flood?.stats();
    if (command.kind === 'calm') {
      flood?.stop();
      flood = undefined;
    }
    return stats === undefined ? {} : { flood: stats };
  };
}
