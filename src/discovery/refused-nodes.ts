import { assert, assertAtMost } from '../base/assert.js';
import type { Environment } from '../base/environment/environment.js';
import { formatEndpoint } from '../base/environment/network.js';
import { SparseLog } from '../base/environment/sparse-log.js';
import { DISCOVERY_LOG_INTERVAL_MS, DISCOVERY_REFUSED_KEPT_MS, DISCOVERY_REFUSED_MAX_COUNT } from '../base/limits.js';
import type { NodeInfo } from '../types.js';
import { describeDifferences, isClockOff, ruleOf, type SettingDifference } from './messages/cluster-settings.js';

/** A node that a master refuses. */
export interface RefusedNode {
  readonly nodeId: string;
  /** `host:port` of its control plane, as the node states it. */
  readonly address: string;
  readonly differences: readonly SettingDifference[];
}

interface Entry extends RefusedNode {
  readonly loggedMs: number;
  readonly lastMs: number;
}

/** Nodes that one master refused recently. Logs each at most once in DISCOVERY_LOG_INTERVAL_MS. */
export class RefusedNodes {
  readonly #env: Environment;
  readonly #lines: SparseLog;
  /** Refused nodes by id, the most recent at the end. */
  readonly #entries = new Map<string, Entry>();

  constructor(env: Environment) {
    this.#env = env;
    this.#lines = new SparseLog(env);
  }

  refuse(info: NodeInfo, differences: readonly SettingDifference[]): void {
    const { nodeId } = info;
    const reason = isClockOff(differences) ? 'clock' : 'settings';
    this.#env.metrics.count('meshcache_discovery_refusals_total', 1, { reason });
    const nowMs = this.#env.clock.nowMs();
    const known = this.#entries.get(nodeId);
    const isSilent = known !== undefined && nowMs - known.loggedMs < DISCOVERY_LOG_INTERVAL_MS;
    const address = formatEndpoint({ host: info.controlHost, port: info.controlPort });
    if (!isSilent) {
      const fields = { node_id: nodeId, address, reason: describeDifferences(differences, true) };
      this.#lines.log('error', `node refused: ${ruleOf(differences)}`, fields, nodeId);
    }
    this.#entries.delete(nodeId);
    this.#entries.set(nodeId, {
      nodeId,
      address,
      differences,
      loggedMs: isSilent ? known.loggedMs : nowMs,
      lastMs: nowMs,
    });
    if (this.#entries.size > DISCOVERY_REFUSED_MAX_COUNT) {
      this.#entries.delete(this.#entries.keys().next().value as string);
    }
  }

  /** Forgets a node that is accepted now. */
  accept(nodeId: string): void {
    this.#entries.delete(nodeId);
  }

  /** Nodes refused within DISCOVERY_REFUSED_KEPT_MS. */
  list(): RefusedNode[] {
    const sinceMs = this.#env.clock.nowMs() - DISCOVERY_REFUSED_KEPT_MS;
    for (const [nodeId, { lastMs }] of this.#entries) if (lastMs < sinceMs) this.#entries.delete(nodeId);
    return [...this.#entries.values()].map(({ nodeId, address, differences }) => ({ nodeId, address, differences }));
  }

  /** Throws `InvariantError` unless the entries are within their limit and in the order of their refusals. */
  verify(): void {
    assertAtMost('refused nodes', this.#entries.size, DISCOVERY_REFUSED_MAX_COUNT);
    let before = Number.NEGATIVE_INFINITY;
    for (const [nodeId, entry] of this.#entries) {
      assert(entry.nodeId === nodeId, () => `refused nodes: ${entry.nodeId} is kept as ${nodeId}`);
      assertAtMost(`refused nodes: when one was refused before ${nodeId}`, before, entry.lastMs);
      before = entry.lastMs;
    }
  }
}
