import type { AuditEvent, AuditSink } from './audit.js';
import { SparseTurns } from './sparse-turns.js';

/** The parts of a `Clock` that are needed here. */
interface Timers {
  nowMs(): number;
  after(delayMs: number, fn: () => void): () => void;
}

/**
 * Passes events on, the first of each kind at once, and then, once in LOG_LINE_INTERVAL_MS, the last of those that have
 * come since, with their number. No event is left out of a number.
 */
export class SparseAudit implements AuditSink {
  readonly #clock: Timers;
  readonly #pass: (event: AuditEvent, count: number) => void;
  readonly #turns: SparseTurns<AuditEvent>;
  #cancelDue: (() => void) | undefined;
  #isEnded = false;

  constructor(clock: Timers, pass: (event: AuditEvent, count: number) => void) {
    this.#clock = clock;
    this.#pass = pass;
    this.#turns = new SparseTurns(clock);
  }

  record(event: AuditEvent, count = 1): void {
    this.#passDue();
    const since = this.#turns.take(kindsOf(event), event, count);
    if (since > 0) this.#pass(event, since);
    this.#schedule();
  }

  /** Passes on what waits, and everything that comes from now on at once. */
  end(): void {
    this.#isEnded = true;
    this.#cancelDue?.();
    for (const { event, count } of this.#turns.due({ all: true })) this.#pass(event, count);
  }

  #passDue(): void {
    for (const { event, count } of this.#turns.due()) this.#pass(event, count);
  }

  /** Sees to it that events that wait for the end of their interval are passed on then. */
  #schedule(): void {
    const { dueMs } = this.#turns;
    if (this.#isEnded || this.#cancelDue !== undefined || dueMs === Number.POSITIVE_INFINITY) return;
    this.#cancelDue = this.#clock.after(Math.max(0, dueMs - this.#clock.nowMs()), () => {
      this.#cancelDue = undefined;
      this.#passDue();
      this.#schedule();
    });
  }
}

/**
 * The kinds that an event belongs to, each broader than the one before. What a stranger chooses tells no refusals
 * apart: their number of lines depends on nothing but where they are from.
 */
function kindsOf({ action, door, outcome, actor, namespace, reason }: AuditEvent): string[] {
  const what = `${door} ${action} ${outcome}`;
  const { user, uid, address, client } = actor ?? {};
  const source = JSON.stringify([what, reason, user, uid, address]);
  return outcome === 'refused' ? [source, what] : [JSON.stringify([source, client, namespace]), source, what];
}
