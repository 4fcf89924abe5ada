import type { Environment } from '../base/environment/environment.js';
import { DRAIN_LINGER_MAX_MS, DRAIN_LINGER_MIN_MS, READ_REPORTS_LATE_MAX_MS } from '../base/limits.js';
import type { DiskStore } from '../disk/disk-store.js';
import type { RpcContext } from '../rpc/server.js';
import type { RemoteCopies } from '../store/copies/remote-copies.js';
import type { WantedPages } from '../store/copies/wanted-pages.js';
import type { PageStore } from '../store/page-store.js';
import { Drain, type DrainProgress, drainTimeoutMs } from './leaving/drain.js';
import type { CopyRequestHandler } from './leaving/handovers.js';
import type { NodeRuntime } from './runtime/node-runtime.js';
import type { StorePlacing } from './store-placing.js';

/** A store's part in draining its own node, and in taking over pages when other nodes are drained. */
export interface StoreLeaving {
  readonly drain: Drain;
  /** Answers an operator who drains this node. Throws `ArgumentError`. */
  readonly start: (params: unknown, caller: Pick<RpcContext, 'user' | 'address'>) => DrainProgress;
  /** Answers a node that is drained and asks this one to copy its pages. */
  readonly takeOver: CopyRequestHandler;
  /**
   * Ends draining and copying early. Resolves when neither uses the pool any more, which needs the runtime to be
   * stopped meanwhile.
   */
  close(): Promise<void>;
  /** Throws `InvariantError` unless the copies of other nodes' pages and the pages that others want are counted. */
  verify(): void;
}

/** Makes a store's part in draining its node, and in taking over pages from nodes that are drained. */
export function leavingOf(parts: {
  readonly runtime: NodeRuntime;
  readonly pages: Pick<PageStore, 'stopPublishing' | 'statements'>;
  readonly copies: RemoteCopies;
  readonly wanted: WantedPages;
  readonly disk: DiskStore | null;
  readonly placing: StorePlacing;
  readonly env: Environment;
}): StoreLeaving {
  const { runtime, pages, copies, wanted, disk, placing, env } = parts;
  const { nodeId, handovers, config } = runtime;
  const heartbeatMs = config.heartbeatInterval * 1000;
  const drain = new Drain({
    nodeId,
    wantedKeys: () => wanted.keys(),
    lengthsOf: (keys) => pages.statements.locationsOf(keys).map((location) => location?.length ?? null),
    otherNodes: () => [...runtime.members().keys()].filter((id) => id !== nodeId),
    storageNodes: () => runtime.storageNodes().map((each) => each.nodeId),
    unplacedPages: () => placing.placements?.stats().unplacedPages ?? 0,
    reportsLateMs: READ_REPORTS_LATE_MAX_MS,
    handOver: (id, keys, timeoutMs) => handovers.ask(id, keys, timeoutMs),
    stopPublishing() {
      pages.stopPublishing();
      placing.taken?.stop();
    },
    diskQueueBytes: () => disk?.info().queueBytes ?? 0,
    leave: () => runtime.leave(),
    lingerMs: Math.min(DRAIN_LINGER_MAX_MS, Math.max(DRAIN_LINGER_MIN_MS, heartbeatMs)),
    env,
  });
  const takeOver = async (keys: readonly string[]): Promise<Uint8Array> => {
    const refused = new Uint8Array(keys.length);
    if (drain.isDraining) return refused;
    const copied = await (placing.taken?.takeOver(keys) ?? copies.copy(keys, 'handover'));
    // This node has begun to drain meanwhile, and has chosen the pages to hand over without these.
    if (drain.isDraining) return refused;
    // The pages were wanted on the drained node: this one hands them on when it is drained in its turn.
    wanted.read(keys.filter((_, i) => copied[i] === 1).reverse());
    return copied;
  };
  return {
    drain,
    start(params, { user, address }) {
      const timeoutMs = drainTimeoutMs((params as { timeout_ms?: unknown }).timeout_ms);
      if (!drain.isDraining) {
        env.audit?.record({ action: 'drain', door: 'control', outcome: 'done', actor: { user, address } });
      }
      return drain.start(timeoutMs);
    },
    takeOver,
    async close() {
      await Promise.all([drain.close(), copies.close(), placing.close()]);
    },
    verify() {
      copies.verify();
      wanted.verify();
      placing.verify();
    },
  };
}
