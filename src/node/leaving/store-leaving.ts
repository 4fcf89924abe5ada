import type { Environment } from '../../base/environment/environment.js';
import { DRAIN_LINGER_MAX_MS, DRAIN_LINGER_MIN_MS, READ_REPORTS_LATE_MAX_MS } from '../../base/limits.js';
import type { DiskStore } from '../../disk/disk-store.js';
import type { RpcContext } from '../../rpc/server.js';
import type { HeldPages } from '../../store/holding/held-pages.js';
import type { WantedPages } from '../../store/holding/wanted-pages.js';
import type { PageStore } from '../../store/page-store.js';
import type { OtherHolders } from '../../store/remote/other-holders.js';
import type { StorePlacing } from '../holding/store-placing.js';
import { Drain, type DrainProgress, drainTimeoutMs } from './drain.js';

/** A store's part in draining its own node. */
export interface StoreLeaving {
  readonly drain: Drain;
  /** Answers an operator who drains this node. Throws `ArgumentError`. */
  readonly start: (params: unknown, caller: Pick<RpcContext, 'user' | 'address'>) => DrainProgress;
  /**
   * Ends draining and copying early. Resolves when neither uses the pool any more, which needs the runtime to be
   * stopped meanwhile.
   */
  close(): Promise<void>;
  /** Throws `InvariantError` unless the copies of other nodes' pages and the pages that others want are counted. */
  verify(): void;
}

/** The node to which the store belongs. */
export interface LeavingNode {
  readonly nodeId: string;
  /** In seconds. */
  readonly heartbeatInterval: number;
  readonly holders: Pick<OtherHolders, 'ask'>;
  /** Ids of the live nodes, this one included. */
  memberIds(): Iterable<string>;
  /** The live storage nodes, without this one. */
  storageNodes(): readonly { readonly nodeId: string }[];
  /** Tells the other nodes that this one leaves. */
  leave(): Promise<void>;
}

/** Makes a store's part in draining its node. */
export function leavingOf(parts: {
  readonly node: LeavingNode;
  readonly pages: Pick<PageStore, 'stopPublishing' | 'statements'>;
  readonly held: HeldPages;
  readonly wanted: WantedPages;
  readonly disk: DiskStore | null;
  readonly placing: StorePlacing;
  readonly env: Environment;
}): StoreLeaving {
  const { node, pages, held, wanted, disk, placing, env } = parts;
  const { nodeId, holders } = node;
  const heartbeatMs = node.heartbeatInterval * 1000;
  const drain = new Drain({
    nodeId,
    wantedKeys: () => wanted.keys(),
    statements: pages.statements,
    otherNodes: () => [...node.memberIds()].filter((id) => id !== nodeId),
    storageNodes: () => node.storageNodes().map((each) => each.nodeId),
    unplacedPages: () => placing.placements?.stats().unplacedPages ?? 0,
    reportsLateMs: READ_REPORTS_LATE_MAX_MS,
    holders,
    stopPublishing() {
      pages.stopPublishing();
      held.stop();
    },
    diskQueueBytes: () => disk?.info().queueBytes ?? 0,
    leave: () => node.leave(),
    lingerMs: Math.min(DRAIN_LINGER_MAX_MS, Math.max(DRAIN_LINGER_MIN_MS, heartbeatMs)),
    env,
  });
  return {
    drain,
    start(params, { user, address }) {
      const timeoutMs = drainTimeoutMs((params as { timeout_ms?: unknown }).timeout_ms);
      if (!drain.isDraining) {
        env.audit?.record({ action: 'drain', door: 'control', outcome: 'done', actor: { user, address } });
      }
      return drain.start(timeoutMs);
    },
    async close() {
      await Promise.all([drain.close(), held.close(), placing.close()]);
    },
    verify() {
      held.verify();
      wanted.verify();
      placing.verify();
    },
  };
}
