import type { Clock } from '../../base/environment/clock.js';
import type { LogFields, Logger, LogLevel } from '../../base/environment/log.js';
import { NODE_EVENTS_MAX_COUNT } from '../../base/limits.js';
import type { NodeEvent } from '../../metrics/node-report.js';

/** Passes every log record on to `target`, and keeps the last ones above debug level for the node's report. */
export class RecentEvents implements Logger {
  readonly #target: Logger;
  readonly #clock: Clock;
  readonly #events: NodeEvent[] = [];
  #lastId = 0;

  constructor(target: Logger, clock: Clock) {
    this.#target = target;
    this.#clock = clock;
  }

  log(level: LogLevel, message: string, fields: LogFields = {}): void {
    this.#target.log(level, message, fields);
    if (level === 'debug') return;
    const known = Object.entries(fields).filter(([, value]) => value !== undefined);
    const event = { id: ++this.#lastId, time_ms: this.#clock.wallMs(), level, message };
    this.#events.push({ ...event, fields: Object.fromEntries(known) as NodeEvent['fields'] });
    if (this.#events.length > NODE_EVENTS_MAX_COUNT) this.#events.shift();
  }

  /** The kept records, the oldest first. */
  list(): readonly NodeEvent[] {
    return [...this.#events];
  }
}
