import { SparseTurns } from './sparse-log.js';

/** Where something was asked for. `node`: the node itself. */
export type AuditDoor = 'client' | 'redis' | 'http' | 'control' | 'data' | 'node';

/** What was asked for. */
export type AuditAction =
  | 'start'
  | 'stop'
  | 'connect'
  | 'attach'
  | 'detach'
  | 'map'
  | 'clear'
  | 'drain'
  | 'read'
  | 'write'
  | 'pin'
  | 'status'
  | 'renew'
  | 'audit';

/** What became of it. `failed`: the node could not do it; nobody was turned away. */
export type AuditOutcome = 'done' | 'refused' | 'failed';

/** The one who asked, as far as that is known. */
export interface AuditActor {
  /** Name of a user of this node. */
  readonly user?: string | undefined;
  /** Numbers of the user and of the process at the other end of a Unix socket, as the kernel tells them. */
  readonly uid?: number | undefined;
  readonly pid?: number | undefined;
  /** Address of the other end of a TCP connection, without its port. */
  readonly address?: string | undefined;
  /** The name that a client gives itself, which proves nothing. */
  readonly client?: string | undefined;
}

/**
 * One event of the audit log. Texts may come from anybody; they are shortened, and no text ends or forges a line. Never
 * the content of keys, nor a secret.
 */
export interface AuditEvent {
  readonly action: AuditAction;
  readonly door: AuditDoor;
  readonly outcome: AuditOutcome;
  readonly actor?: AuditActor | undefined;
  /** Tag of the namespace. */
  readonly namespace?: string | undefined;
  /**
   * A word of a fixed set for each door: events that are refused for the same reason are told apart by nothing else of
   * what a stranger chooses.
   */
  readonly reason?: string | undefined;
  /** What else is worth knowing. */
  readonly detail?: string | undefined;
}

/** Takes the events that the audit log has. */
export interface AuditSink {
  /** Takes an event, which has happened `count` times. Neither throws nor waits. */
  record(event: AuditEvent, count?: number): void;
}

/** Does what an event describes, and records whether it was done. Rejects as `work` does. */
export async function audited<T>(
  sink: AuditSink | undefined,
  event: Omit<AuditEvent, 'outcome'>,
  work: () => Promise<T> | T,
): Promise<T> {
  let outcome: AuditOutcome = 'failed';
  try {
    const result = await work();
    outcome = 'done';
    return result;
  } finally {
    sink?.record({ ...event, outcome });
  }
}

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
