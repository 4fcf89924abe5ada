import type { Environment } from '../../base/environment/environment.js';
import { DISCOVERY_LOG_INTERVAL_MS } from '../../base/limits.js';

/** A date that is so far off is wrong, and not only compared late by a busy machine. */
const OFF_MS = 60_000;

/**
 * Logs that the date of this machine is not that of the cluster, at most once in DISCOVERY_LOG_INTERVAL_MS, and when it
 * is again.
 */
export class DateLog {
  readonly #nodeId: string;
  readonly #env: Pick<Environment, 'clock' | 'log'>;
  #saidMs: number | undefined;

  constructor(nodeId: string, env: Pick<Environment, 'clock' | 'log'>) {
    this.#nodeId = nodeId;
    this.#env = env;
  }

  /** `offsetMs`: milliseconds that the date is ahead; negative: behind. */
  compared(offsetMs: number): void {
    const { clock, log } = this.#env;
    const fields = { node_id: this.#nodeId, ahead_s: Math.round(offsetMs / 1000) };
    if (Math.abs(offsetMs) <= OFF_MS) {
      if (this.#saidMs !== undefined)
        log.log('warn', 'the clock of this machine agrees with the cluster again', fields);
      this.#saidMs = undefined;
      return;
    }
    if (this.#saidMs !== undefined && clock.nowMs() - this.#saidMs < DISCOVERY_LOG_INTERVAL_MS) return;
    this.#saidMs = clock.nowMs();
    log.log('warn', 'the clock of this machine differs from those of the cluster: set it by NTP', fields);
  }
}
