import { LOG_KINDS_MAX_COUNT, LOG_LINE_INTERVAL_MS } from '../limits.js';
import type { Clock } from './clock.js';
import type { LogFields, Logger, LogLevel } from './log.js';

interface Kind {
  /** Events since the last line. */
  count: number;
  /** Time from which on the next line may be written. */
  nextMs: number;
}

/** Stands for all kinds that are not told apart. */
const OTHERS = '';

/**
 * The log of events that somebody outside of this node can cause as often as they want: one line in LOG_LINE_INTERVAL_MS for each kind, with the
 * number of the events that were left out. LOG_KINDS_MAX_COUNT kinds are told apart within that time; further ones are one kind together.
 */
export class SparseLog {
  readonly #clock: Pick<Clock, 'nowMs'>;
  readonly #log: Logger;
  readonly #kinds = new Map<string, Kind>();

  constructor({ clock, log }: { readonly clock: Pick<Clock, 'nowMs'>; readonly log: Logger }) {
    this.#clock = clock;
    this.#log = log;
  }

  /** Writes a line, or counts it for the next one of its kind. `kind`: what is told apart beside messages. */
  log(level: LogLevel, message: string, fields: LogFields = {}, kind = OTHERS): void {
    const count = this.turn(`${message}\n${kind}`);
    if (count > 0) this.#log.log(level, message, { ...fields, more_like_it: count - 1 || undefined });
  }

  /** Counts events. Returns the number since the last line of the kind if another line may be written now, which counts as written; else 0. */
  turn(kind: string, count = 1): number {
    const nowMs = this.#clock.nowMs();
    const known = this.#kindOf(kind, nowMs);
    known.count += count;
    if (nowMs < known.nextMs) return 0;
    const since = known.count;
    known.count = 0;
    known.nextMs = nowMs + LOG_LINE_INTERVAL_MS;
    return since;
  }

  #kindOf(kind: string, nowMs: number): Kind {
    const name = this.#kinds.has(kind) || this.#hasRoom(nowMs) ? kind : OTHERS;
    let known = this.#kinds.get(name);
    if (known === undefined) {
      known = { count: 0, nextMs: Number.NEGATIVE_INFINITY };
      this.#kinds.set(name, known);
    }
    return known;
  }

  /** Whether another kind can be told apart. The one that was first of all makes room if its next line might be written. */
  #hasRoom(nowMs: number): boolean {
    if (this.#kinds.size < LOG_KINDS_MAX_COUNT) return true;
    for (const [kind, { nextMs }] of this.#kinds) {
      if (nextMs <= nowMs) return this.#kinds.delete(kind);
      break;
    }
    return false;
  }
}
