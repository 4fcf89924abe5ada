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
