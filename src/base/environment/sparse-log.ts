import { SparseTurns } from '../audit/sparse-turns.js';
import type { Clock } from './clock.js';
import type { LogFields, Logger, LogLevel } from './log.js';

/** Stands for all kinds that are not told apart. */
const OTHERS = '';

/**
 * The log of events that somebody outside of this node can cause as often as they want: one line in
 * LOG_LINE_INTERVAL_MS for each kind, with the number of the events that were left out. LOG_KINDS_MAX_COUNT kinds are
 * told apart within that time; further ones are one kind together.
 */
export class SparseLog {
  readonly #log: Logger;
  readonly #turns: SparseTurns<undefined>;

  constructor({ clock, log }: { readonly clock: Pick<Clock, 'nowMs'>; readonly log: Logger }) {
    this.#log = log;
    this.#turns = new SparseTurns(clock);
  }

  /** Writes a line, or counts it for the next one of its kind. `kind`: what is told apart beside messages. */
  log(level: LogLevel, message: string, fields: LogFields = {}, kind = OTHERS): void {
    const count = this.turn(`${message}\n${kind}`);
    if (count > 0) this.#log.log(level, message, { ...fields, more_like_it: count - 1 || undefined });
  }

  /**
   * Counts events. Returns the number since the last line of the kind if another line may be written now, which counts
   * as written; else 0.
   */
  turn(kind: string, count = 1): number {
    return this.#turns.take([kind, OTHERS], undefined, count);
  }
}
