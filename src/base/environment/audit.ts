import { SparseTurns } from './sparse-log.js';

/** Where a request came in. `node`: the node itself. */
export type AuditDoor = 'client' | 'redis' | 'http' | 'control' | 'data' | 'node';

/** The action that was requested. */
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

/** Result of the action. `failed`: the node could not do it; nobody was turned away. */
export type AuditOutcome = 'done' | 'refused' | 'failed';

/** The requester, as far as it is known. */
export interface AuditActor {
  /** Name of a user of this node. */
  readonly user?: string | undefined;
  /** User and process id of the peer of a Unix socket, as reported by the kernel. */
  readonly uid?: number | undefined;
  readonly pid?: number | undefined;
  /** Address of the peer of a TCP connection, without its port. */
  readonly address?: string | undefined;
  /** Name that the client gave itself; it proves nothing. */
  readonly client?: string | undefined;
}

/**
 * One event of the audit log. Texts may come from anybody: they are shortened, and none can end or forge a line. An
 * event never contains the content of keys or a secret.
 */
export interface AuditEvent {
  readonly action: AuditAction;
  readonly door: AuditDoor;
  readonly outcome: AuditOutcome;
  readonly actor?: AuditActor | undefined;
  /** Tag of the namespace. */
  readonly namespace?: string | undefined;
  /**
   * A word from a fixed set for each door. Refusals with the same reason are not told apart by anything else that a
   * stranger chooses.
   */
  readonly reason?: string | undefined;
  /** Further useful details. */
  readonly detail?: string | undefined;
}

/** Receives audit events. */
export interface AuditSink {
  /** Records an event that has happened `count` times. Neither throws nor waits. */
  record(event: AuditEvent, count?: number): void;
}

/** Performs the action that an event describes, and records whether it succeeded. Rejects as `work` does. */
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

/** The parts of a `Clock` that this module needs. */
interface Timers {
  nowMs(): number;
  after(delayMs: number, fn: () => void): () => void;
}

/**
 * Passes on the first event of each kind at once, and then, once every LOG_LINE_INTERVAL_MS, the last of those that
 * have come since, with their number. Every event is counted.
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

  /** Passes on waiting events, and from now on every event at once. */
  end(): void {
    this.#isEnded = true;
    this.#cancelDue?.();
    for (const { event, count } of this.#turns.due({ all: true })) this.#pass(event, count);
  }

  #passDue(): void {
    for (const { event, count } of this.#turns.due()) this.#pass(event, count);
  }

  /** Schedules passing on the events that wait for the end of their interval. */
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
 * The kinds that an event belongs to, each broader than the one before. Refusals are not told apart by texts that a
 * stranger chooses, so the number of their lines depends only on where they come from.
 */
function kindsOf({ action, door, outcome, actor, namespace, reason }: AuditEvent): string[] {
  const what = `${door} ${action} ${outcome}`;
  const { user, uid, address, client } = actor ?? {};
  const source = JSON.stringify([what, reason, user, uid, address]);
  return outcome === 'refused' ? [source, what] : [JSON.stringify([source, client, namespace]), source, what];
}
