import { MeshCacheStore } from '../../node/meshcache-store.js';
import type { ExecuteCommand } from '../measuring/peer-process.js';
import { benchStorage } from '../measuring/store-pages.js';

/** The one command of the peer: start a node. */
export interface RespPeerCommand {
  readonly discoveryAddr: string;
  readonly poolBytes: number;
}

export interface RespPeerAnswer {
  /** `host:port` for Redis clients. */
  readonly endpoint?: string;
  readonly error?: string;
}

/** A node with a door for Redis clients, in a process of its own. */
export function respPeer(): ExecuteCommand<RespPeerCommand, RespPeerAnswer> {
  return async ({ discoveryAddr, poolBytes }) => {
    const store = await MeshCacheStore.create(benchStorage(discoveryAddr, poolBytes, { resp_port: 0 }));
    return { endpoint: store.respEndpoint };
  };
}
