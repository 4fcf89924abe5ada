import type { Environment } from '../base/environment/environment.js';
import { DRAIN_LINGER_MAX_MS, DRAIN_LINGER_MIN_MS, READ_REPORTS_LATE_MAX_MS } from '../base/limits.js';
import type { DiskStore } from '../disk/disk-store.js';
import type { RpcContext } from '../rpc/server.js';
import type { HeldPages } from '../store/holding/held-pages.js';
import type { Placements } from '../store/holding/placements.js';
import type { WantedPages } from '../store/holding/wanted-pages.js';
import type { PageStore } from '../store/page-store.js';
import { Drain, type DrainProgress, drainTimeoutMs } from './leaving/drain.js';
import type { NodeRuntime } from './runtime/node-runtime.js';

/** A store's part in draining its node. */
export interface StoreLeaving {
  readonly drain: Drain;
  /** Handles an operator's call to drain this node. Throws `ArgumentError`. */
  readonly start: (params: unknown, caller: Pick<RpcContext, 'user' | 'address'>) => DrainProgress;
  /**
   * Ends draining and copying early. Resolves when neither uses the pool any more; for that, the runtime must be
   * stopped meanwhile.
   */
  close(): Promise<void>;
  /** Throws `InvariantError` unless the accounting of copied pages and of wanted pages holds. */
  verify(): void;
}

/** Creates a store's part in draining its node. */
export function leavingOf(parts: {
  readonly runtime: NodeRuntime;
  readonly pages: Pick<PageStore, 'stopPublishing' | 'statements'>;
  readonly held: HeldPages;
  readonly wanted: WantedPages;
  readonly disk: DiskStore | null;
  readonly placements: Placements | null;
  readonly env: Environment;
}): StoreLeaving {
  const { runtime, pages, held, wanted, disk, placements, env } = parts;
  const { nodeId, holders, config } = runtime;
  const heartbeatMs = config.heartbeatInterval * 1000;
  const drain = new Drain({
    nodeId,
    wantedKeys: () => wanted.keys(),
    statements: pages.statements,
    otherNodes: () => [...runtime.members().keys()].filter((id) => id !== nodeId),
    storageNodes: () => runtime.storageNodes().map((each) => each.nodeId),
    unplacedPages: () => placements?.stats().unplacedPages ?? 0,
    reportsLateMs: READ_REPORTS_LATE_MAX_MS,
    holders,
    stopPublishing() {
      pages.stopPublishing();
      held.stop();
    },
    diskQueueBytes: () => disk?.info().queueBytes ?? 0,
    leave: () => runtime.leave(),
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
      placements?.close();
      await Promise.all([drain.close(), held.close()]);
    },
    verify() {
      held.verify();
      wanted.verify();
      placements?.verify();
    },
  };
}
