import type { WrongPassword } from '../../net/password-check.js';
import type { Right } from '../../net/users/user.js';
import type { Identity } from '../../net/users/users.js';
import type { RespPages } from '../values/resp-pages.js';
import type { RespUsers } from './resp-users.js';

/** Where a connection is from. */
export interface RespOrigin {
  /** What tells its clients from others when they guess passwords. */
  readonly from: string;
  /** The user of the process at a Unix socket, as far as the kernel has said it. */
  readonly uid: number | undefined;
}

/** Who the client of one connection is, and what it may do. The table of users is asked each time. */
export class RespAccess {
  readonly #users: RespUsers;
  readonly #origin: RespOrigin;
  #identity: Identity | undefined;

  constructor(users: RespUsers, origin: RespOrigin) {
    this.#users = users;
    this.#origin = origin;
    this.#identity = users.stranger(origin.uid);
  }

  /** Name of the user; empty while the client has not authenticated itself. */
  get name(): string {
    return this.#identity?.name ?? '';
  }

  /** Whether the client has authenticated itself, or need not. */
  get isTrusted(): boolean {
    return this.#identity !== undefined;
  }

  /** Whether the client is of a user who is there no more. */
  get isGone(): boolean {
    return this.#identity !== undefined && this.#identity.user === undefined;
  }

  /** Whether there is anything with which the client could authenticate itself. */
  get knowsSecrets(): boolean {
    return this.#users.knowsSecrets;
  }

  /** Makes the client the user to whom a password or token belongs; `name` is that of the user, if the client gives one. */
  login(name: string | undefined, secret: Uint8Array): 'right' | WrongPassword {
    const found = this.#users.login(name, secret, this.#origin.from);
    if (typeof found === 'string') return found;
    this.#identity = found;
    return 'right';
  }

  /** Makes the client what it was when it connected. */
  reset(): void {
    this.#identity = this.#users.stranger(this.#origin.uid);
  }

  /** Why the client may not have this command carried out, as an error of Redis; undefined: it may. */
  refusalOf({ name, right }: { readonly name: string; readonly right: Right | undefined }): string | undefined {
    const isAllowed = right === undefined || this.#identity?.user?.has(right) === true;
    return isAllowed ? undefined : `NOPERM User ${this.name} has no permissions to run the '${name}' command`;
  }

  /** The pages that the client's commands reach; undefined: there are none. */
  get pages(): RespPages | undefined {
    const user = this.#identity?.user;
    return user && this.#users.pagesOf(user);
  }
}
