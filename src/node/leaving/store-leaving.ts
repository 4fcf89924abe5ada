import type { Environment } from '../../base/environment/environment.js';
import { DRAIN_LINGER_MAX_MS, DRAIN_LINGER_MIN_MS, READ_REPORTS_LATE_MAX_MS } from '../../base/limits.js';
import type { DiskStore } from '../../disk/disk-store.js';
import type { PageStore } from '../../store/page-store.js';
import type { RemoteCopies } from '../../store/remote-copies.js';
import type { WantedPages } from '../../store/wanted-pages.js';
import type { NodeRuntime } from '../runtime/node-runtime.js';
import { DRAIN_METHOD, Drain, drainTimeoutMs } from './drain.js';

/** How a store's node is drained, and takes over pages of others that are. */
export interface StoreLeaving {
  readonly drain: Drain;
  readonly copies: RemoteCopies;
  /** Both end early. Resolves when nothing touches the pool any more; the runtime is stopped meanwhile. */
  close(): Promise<void>;
  /** Throws `InvariantError` unless the copies of other nodes' pages and the pages that others want are counted. */
  verify(): void;
}

/** Answers operators and nodes that are drained from now on. */
export function leavingOf(parts: {
  readonly runtime: NodeRuntime;
  readonly pages: PageStore;
  readonly copies: RemoteCopies;
  readonly wanted: WantedPages;
  readonly disk: DiskStore | null;
  readonly env: Environment;
}): StoreLeaving {
  const { runtime, pages, copies, wanted, disk, env } = parts;
  const heartbeatMs = runtime.config.heartbeatInterval * 1000;
  const drain = new Drain({
    nodeId: runtime.nodeId,
    wantedKeys: () => wanted.keys(),
    lengthsOf: (keys) => pages.statements.locationsOf(keys).map((location) => location?.length ?? null),
    otherNodes: () => [...runtime.members().keys()].filter((nodeId) => nodeId !== runtime.nodeId),
    reportsLateMs: READ_REPORTS_LATE_MAX_MS,
    handOver: (nodeId, keys, timeoutMs) => runtime.handovers.ask(nodeId, keys, timeoutMs),
    stopPublishing: () => pages.stopPublishing(),
    diskQueueBytes: () => disk?.info().queueBytes ?? 0,
    leave: () => runtime.leave(),
    lingerMs: Math.min(DRAIN_LINGER_MAX_MS, Math.max(DRAIN_LINGER_MIN_MS, heartbeatMs)),
    env,
  });
  runtime.handle(DRAIN_METHOD, (params) =>
    drain.start(drainTimeoutMs((params as { timeout_ms?: unknown }).timeout_ms)),
  );
  runtime.copyWith(async (keys) => {
    const refused = new Uint8Array(keys.length);
    if (drain.isDraining) return refused;
    const copied = await copies.copy(keys, 'handover');
    // What this node hands over has been chosen without them.
    if (drain.isDraining) return refused;
    // They were wanted where they were: this node hands them on when it is drained in its turn.
    wanted.read(keys.filter((_, i) => copied[i] === 1).reverse());
    return copied;
  });
  return {
    drain,
    copies,
    async close() {
      await Promise.all([drain.close(), copies.close()]);
    },
    verify() {
      copies.verify();
      wanted.verify();
    },
  };
}
