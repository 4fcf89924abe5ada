import { MeshCacheStore } from '../../node/meshcache-store.js';
import type { ExecuteCommand } from '../measuring/peer-process.js';
import { awaitMembers, benchStorage } from '../measuring/store-pages.js';

/** Commands to the process of a node, which has a client socket. */
export type NodeCommand =
  | {
      readonly kind: 'start';
      readonly discoveryAddr: string;
      readonly poolBytes: number;
      /** Configuration keys of this node alone. */
      readonly config: Readonly<Record<string, unknown>>;
    }
  /** Waits until the node knows this many nodes, itself included. */
  | { readonly kind: 'await-members'; readonly count: number };

export interface NodeAnswer {
  readonly error?: string;
}

/** The process of a node. */
export function nodePeer(): ExecuteCommand<NodeCommand, NodeAnswer> {
  let store: MeshCacheStore | undefined;
  return async (command) => {
    if (command.kind === 'start') {
      store = await MeshCacheStore.create(benchStorage(command.discoveryAddr, command.poolBytes, command.config));
    } else {
      if (store === undefined) throw new Error('await-members before start');
      await awaitMembers(store, command.count);
    }
    return {};
  };
}
