import type { Environment } from '../../base/environment/environment.js';
import { DISCOVERY_LOG_INTERVAL_MS } from '../../base/limits.js';
import { describeDifferences, type Refusal, ruleOf } from '../messages/cluster-settings.js';

/** Logs that masters refuse this node: each at most once in DISCOVERY_LOG_INTERVAL_MS. */
export class RefusalLog {
  readonly #nodeId: string;
  readonly #env: Pick<Environment, 'clock' | 'log'>;
  /** Time of the last record about each master. */
  readonly #saidMs = new Map<string, number>();

  constructor(nodeId: string, env: Pick<Environment, 'clock' | 'log'>) {
    this.#nodeId = nodeId;
    this.#env = env;
  }

  /** `master`: its `host:port`. */
  log(master: string, { nodeId, differences }: Refusal): void {
    const nowMs = this.#env.clock.nowMs();
    if (nowMs - (this.#saidMs.get(master) ?? Number.NEGATIVE_INFINITY) < DISCOVERY_LOG_INTERVAL_MS) return;
    this.#saidMs.set(master, nowMs);
    this.#env.log.log('error', `a discovery master refuses this node: ${ruleOf(differences)}`, {
      node_id: this.#nodeId,
      master,
      master_node_id: nodeId,
      reason: describeDifferences(differences, false),
    });
  }
}
