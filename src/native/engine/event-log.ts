import type { Environment } from '../../base/environment/environment.js';
import type { LogLevel } from '../../base/environment/log.js';
import { SparseLog } from '../../base/environment/sparse-log.js';
import type { RdmaEventKind } from '../addon/contract.js';
import type { EngineEvent } from './engine-event.js';
import { errnoName } from './failure.js';

const LEVELS: Readonly<Partial<Record<RdmaEventKind, LogLevel>>> = {
  rejected: 'warn',
  rejected_peer: 'warn',
  device_error: 'error',
};

/** Logs events of an engine, sparsely for each kind, peer and device. */
export class EventLog {
  readonly #log: SparseLog;

  constructor(env: Environment) {
    this.#log = new SparseLog(env);
  }

  record(event: EngineEvent): void {
    const fields = {
      peer: event.peer || undefined,
      device: event.device || undefined,
      call: event.call || undefined,
      errno: event.errno === 0 ? undefined : errnoName(event.errno),
      wc_status: event.wcStatus < 0 ? undefined : event.wcStatus,
      reason: event.reason,
    };
    const message = `RDMA: ${event.kind.replaceAll('_', ' ')}`;
    this.#log.log(LEVELS[event.kind] ?? 'info', message, fields, `${event.peer} ${event.device}`);
  }
}
