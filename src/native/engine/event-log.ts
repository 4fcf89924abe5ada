import type { Environment } from '../../base/environment/environment.js';
import type { LogLevel } from '../../base/environment/log.js';
import { RDMA_LOG_INTERVAL_MS } from '../../base/limits.js';
import type { RdmaEventKind } from '../addon/contract.js';
import type { EngineEvent } from './engine-event.js';
import { errnoName } from './failure.js';

/** Pairs of kind and peer that are remembered; a new one replaces the oldest. */
const REMEMBERED_MAX_COUNT = 1024;

const LEVELS: Readonly<Partial<Record<RdmaEventKind, LogLevel>>> = {
  rejected: 'warn',
  rejected_peer: 'warn',
  device_error: 'error',
};

/** Logs events of an engine: at most one record in ten seconds for each kind and peer, which states the number of the others. */
export class EventLog {
  readonly #env: Environment;
  readonly #last = new Map<string, { atMs: number; suppressed: number }>();

  constructor(env: Environment) {
    this.#env = env;
  }

  record(event: EngineEvent): void {
    const key = `${event.kind} ${event.peer} ${event.device}`;
    const nowMs = this.#env.clock.nowMs();
    const last = this.#last.get(key);
    if (last !== undefined && nowMs - last.atMs < RDMA_LOG_INTERVAL_MS) {
      last.suppressed++;
      return;
    }
    this.#last.delete(key);
    if (this.#last.size >= REMEMBERED_MAX_COUNT) this.#last.delete(this.#last.keys().next().value as string);
    this.#last.set(key, { atMs: nowMs, suppressed: 0 });
    this.#env.log.log(LEVELS[event.kind] ?? 'info', `RDMA: ${event.kind.replaceAll('_', ' ')}`, {
      peer: event.peer || undefined,
      device: event.device || undefined,
      call: event.call || undefined,
      errno: event.errno === 0 ? undefined : errnoName(event.errno),
      wc_status: event.wcStatus < 0 ? undefined : event.wcStatus,
      reason: event.reason,
      more_like_it: last?.suppressed || undefined,
    });
  }
}
