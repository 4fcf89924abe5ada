import { LOG_KINDS_MAX_COUNT, LOG_LINE_INTERVAL_MS } from '../limits.js';
import type { Clock } from './clock.js';
import type { LogFields, Logger, LogLevel } from './log.js';

interface Kind<T> {
  /** Events since the last turn. */
  count: number;
  /** The last of these events. */
  event: T;
  /** Earliest time of the next turn. */
  nextMs: number;
}

/**
 * Counts events that outsiders can cause as often as they want, and allows one log line for the first event of each
 * kind, and then one line for all later ones every LOG_LINE_INTERVAL_MS. It distinguishes LOG_KINDS_MAX_COUNT kinds
 * within that time; events of further kinds count for broader ones.
 */
export class SparseTurns<T> {
  readonly #clock: { nowMs(): number };
  readonly #kinds = new Map<string, Kind<T>>();
  #dueMs = Number.POSITIVE_INFINITY;

  constructor(clock: { nowMs(): number }) {
    this.#clock = clock;
  }

  /**
   * Counts events. `kinds` are the kinds that they belong to, each broader than the one before; the last one must have
   * few values. Returns the number of events since the last line of the kind if another line may be written now (which
   * then counts as written), else 0.
   */
  take(kinds: readonly string[], event: T, count = 1): number {
    const nowMs = this.#clock.nowMs();
    const kind = this.#kindOf(kinds, event, nowMs);
    kind.count += count;
    kind.event = event;
    if (nowMs >= kind.nextMs) return this.#turnOf(kind, nowMs);
    this.#dueMs = Math.min(this.#dueMs, kind.nextMs);
    return 0;
  }

  /**
   * The last event of each kind that has waited long enough, with the number of events since its last turn; returning
   * them counts as their turn. With `all`, all kinds with waiting events.
   */
  due({ all = false }: { readonly all?: boolean } = {}): { readonly event: T; readonly count: number }[] {
    const nowMs = this.#clock.nowMs();
    if (!all && nowMs < this.#dueMs) return [];
    const waiting = [...this.#kinds.values()].filter(({ count }) => count > 0);
    const due = waiting.filter(({ nextMs }) => all || nextMs <= nowMs);
    const turns = due.map((kind) => ({ event: kind.event, count: this.#turnOf(kind, nowMs) }));
    const left = waiting.filter(({ count }) => count > 0);
    this.#dueMs = left.reduce((earliest, { nextMs }) => Math.min(earliest, nextMs), Number.POSITIVE_INFINITY);
    return turns;
  }

  /** When {@link due} will return something, in milliseconds of the clock; infinity if nothing waits. */
  get dueMs(): number {
    return this.#dueMs;
  }

  #turnOf(kind: Kind<T>, nowMs: number): number {
    const { count } = kind;
    kind.count = 0;
    kind.nextMs = nowMs + LOG_LINE_INTERVAL_MS;
    return count;
  }

  #kindOf(names: readonly string[], event: T, nowMs: number): Kind<T> {
    const last = names.length - 1;
    const level = names.findIndex((name, i) => i === last || this.#kinds.has(name) || this.#hasRoom(i, nowMs));
    const name = names[level] as string;
    let kind = this.#kinds.get(name);
    if (kind === undefined) {
      kind = { count: 0, event, nextMs: Number.NEGATIVE_INFINITY };
      this.#kinds.set(name, kind);
    }
    return kind;
  }

  /**
   * Whether one more kind can be distinguished. The oldest kind makes room if its next turn may come. Broader kinds
   * have room of their own, so that many narrow kinds of one source do not hide those of others.
   */
  #hasRoom(level: number, nowMs: number): boolean {
    if (this.#kinds.size < LOG_KINDS_MAX_COUNT * (level + 1)) return true;
    for (const [name, { nextMs }] of this.#kinds) {
      if (nextMs <= nowMs) return this.#kinds.delete(name);
      break;
    }
    return false;
  }
}

/** Stands for all kinds that are not distinguished. */
const OTHERS = '';

/**
 * The log of events that outsiders can cause as often as they want: one line per kind every LOG_LINE_INTERVAL_MS, with
 * the number of omitted events. It distinguishes LOG_KINDS_MAX_COUNT kinds within that time; all others count as one.
 */
export class SparseLog {
  readonly #log: Logger;
  readonly #turns: SparseTurns<undefined>;

  constructor({ clock, log }: { readonly clock: Clock; readonly log: Logger }) {
    this.#log = log;
    this.#turns = new SparseTurns(clock);
  }

  /** Writes a line, or counts it for the next line of its kind. `kind` distinguishes lines with the same message. */
  log(level: LogLevel, message: string, fields: LogFields = {}, kind = OTHERS): void {
    const count = this.turn(`${message}\n${kind}`);
    if (count > 0) this.#log.log(level, message, { ...fields, more_like_it: count - 1 || undefined });
  }

  /**
   * Counts events. Returns the number since the last line of the kind if another line may be written now (which then
   * counts as written), else 0.
   */
  turn(kind: string, count = 1): number {
    return this.#turns.take([kind, OTHERS], undefined, count);
  }
}
