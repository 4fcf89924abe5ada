import { LOG_KINDS_MAX_COUNT, LOG_LINE_INTERVAL_MS } from '../limits.js';
import type { Clock } from './clock.js';
import type { LogFields, Logger, LogLevel } from './log.js';

interface Kind<T> {
  /** Events since the last turn. */
  count: number;
  /** The last one of them. */
  event: T;
  /** Time from which on the next turn may be. */
  nextMs: number;
}

/**
 * Counts events that somebody outside of this node can cause as often as they want, and lets a line be written for the
 * first of each kind, and then for all that have come since, once in LOG_LINE_INTERVAL_MS. LOG_KINDS_MAX_COUNT kinds
 * are told apart within that time; events of further ones count for broader kinds.
 */
export class SparseTurns<T> {
  readonly #clock: { nowMs(): number };
  readonly #kinds = new Map<string, Kind<T>>();
  #dueMs = Number.POSITIVE_INFINITY;

  constructor(clock: { nowMs(): number }) {
    this.#clock = clock;
  }

  /**
   * Counts events. `kinds` are those that they belong to, each broader than the one before; of the last one there are
   * few. Returns the number of events since the last turn of the kind if another line may be written now, which counts
   * as written; else 0.
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
   * The last events of the kinds that have waited long enough, with the number since the last turn of each, which they
   * have now. With `all`, those of the kinds that have not waited long enough, too.
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

  /** When {@link due} has something again: milliseconds of the clock; infinity if nothing waits. */
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
   * Whether another kind can be told apart. The one that was first of all makes room if its next turn might be. Broader
   * kinds have room of their own, so that many narrow ones of one source do not hide those of others.
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

  constructor({ clock, log }: { readonly clock: Clock; readonly log: Logger }) {
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
