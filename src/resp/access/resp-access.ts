import { type AuditAction, type AuditActor, type AuditEvent, audited } from '../../base/environment/audit.js';
import type { WrongPassword } from '../../net/auth-failures.js';
import type { Identity, Right } from '../../net/users.js';
import type { RespPages } from '../values/resp-pages.js';
import type { RespUsers } from './resp-users.js';

/** Origin of a connection, for password checks and the audit log. */
export interface RespOrigin {
  /** Key by which the wrong passwords of its clients are counted. */
  readonly from: string;
  /** The address, or the process at a Unix socket, as far as the kernel reports it. */
  readonly actor: Pick<AuditActor, 'address' | 'uid' | 'pid'>;
}

/** The user of one connection, and its rights. The table of users is consulted each time. */
export class RespAccess {
  readonly #users: RespUsers;
  readonly #origin: RespOrigin;
  readonly #onTrusted: () => void;
  #identity: Identity | undefined;

  /** `onTrusted` is called whenever the client has authenticated itself, and at once if it need not. */
  constructor(users: RespUsers, origin: RespOrigin, onTrusted: () => void = () => {}) {
    this.#users = users;
    this.#origin = origin;
    this.#onTrusted = onTrusted;
    this.#identity = users.stranger(origin.actor.uid);
    if (this.#identity !== undefined) this.#trusted();
  }

  /** Name of the user; empty while the client has not authenticated itself. */
  get name(): string {
    return this.#identity?.name ?? '';
  }

  /** The client as the audit log records it. */
  get actor(): AuditActor {
    return { user: this.#identity?.name, ...this.#origin.actor };
  }

  /** Whether the client has authenticated itself, or need not. */
  get isTrusted(): boolean {
    return this.#identity !== undefined;
  }

  /** Whether the client's user no longer exists. */
  get isGone(): boolean {
    return this.#identity !== undefined && this.#identity.user === undefined;
  }

  /** Whether a client could authenticate itself at all: a password or a token is configured. */
  get knowsSecrets(): boolean {
    return this.#users.knowsSecrets;
  }

  /**
   * Makes the client the user that a password or token belongs to. `name` is the user's name, if the client states one.
   */
  login(name: string | undefined, secret: Uint8Array): 'right' | WrongPassword {
    const found = this.#users.login(name, secret, this.#origin.from);
    if (typeof found === 'string') {
      this.#record('attach', 'refused', found === 'wrong' ? 'wrong password' : 'too many wrong passwords');
      return found;
    }
    this.#identity = found;
    this.#trusted();
    return 'right';
  }

  /** Resets the client to the user that it was when it connected. */
  reset(): void {
    this.#identity = this.#users.stranger(this.#origin.actor.uid);
  }

  /** Returns the Redis error if the client may not execute this command; undefined if it may. */
  refusalOf({ name, right }: { readonly name: string; readonly right: Right | undefined }): string | undefined {
    if (right === undefined || this.#identity?.user?.has(right) === true) return undefined;
    this.#record(right, 'refused', 'no right');
    return `NOPERM User ${this.name} has no permissions to run the '${name}' command`;
  }

  /** The pages that the client's commands access; undefined if there are none. */
  get pages(): RespPages | undefined {
    const user = this.#identity?.user;
    return user && this.#users.pagesOf(user);
  }

  /** Does work and records it in the audit log. Rejects as `work` does. */
  audited<T>(action: AuditAction, work: () => Promise<T>): Promise<T> {
    return audited(this.#users.audit, this.#event(action), work);
  }

  /** Called when the connection has ended. */
  ended(): void {
    if (this.#identity !== undefined) this.#record('detach', 'done');
  }

  #trusted(): void {
    this.#record('attach', 'done');
    this.#onTrusted();
  }

  #record(action: AuditAction, outcome: AuditEvent['outcome'], reason?: string): void {
    this.#users.audit?.record({ ...this.#event(action), outcome, reason });
  }

  #event(action: AuditAction): Omit<AuditEvent, 'outcome'> {
    const user = this.#identity?.user;
    return { action, door: 'redis', actor: this.actor, namespace: user && this.#users.tagOf(user) };
  }
}
