import { createHash } from 'node:crypto';
import { Renewable } from '../../base/environment/cluster-secrets.js';
import { DEFAULT_USER, EVERYBODY, type User } from './user.js';

/**
 * What a client has to show who it is. A token alone counts, right or wrong, where there is one; else the user of the
 * host whose process it is, as the kernel says; else nothing, as for every client at a port.
 */
export interface Proof {
  /** {@link digestOf} the token. */
  readonly tokenDigest?: string | undefined;
  readonly uid?: number | undefined;
}

/**
 * The users of a node as they are now. The table is renewed while the node runs: whoever keeps an {@link Identity} is
 * told, and meets the present rights with each request.
 */
export class Users extends Renewable<readonly User[]> {
  readonly #byDigest = new Map<string, User>();
  readonly #byUid = new Map<number, User>();
  #default: User | undefined;

  /** Without a table there is one user, who may do everything. */
  constructor(table: readonly User[] = [EVERYBODY]) {
    super(table, '[users]');
    this.#index(table);
  }

  override renew(table: readonly User[]): void {
    this.#index(table);
    super.renew(table);
  }

  /** The user with this proof; undefined: there is none. A wrong token is never anybody. */
  userWith({ tokenDigest, uid }: Proof): User | undefined {
    if (tokenDigest !== undefined) return this.#byDigest.get(tokenDigest);
    return (uid === undefined ? undefined : this.#byUid.get(uid)) ?? this.#default;
  }

  /** Whether any user has a token. */
  get hasTokens(): boolean {
    return this.#byDigest.size > 0;
  }

  /** Identifies the user with this proof; undefined: there is none, and the client is to be refused. */
  identify(proof: Proof): Identity | undefined {
    const user = this.userWith(proof);
    return user && new Identity(this, proof, user.name);
  }

  #index(table: readonly User[]): void {
    this.#byDigest.clear();
    this.#byUid.clear();
    for (const user of table) {
      for (const digest of user.tokenDigests) this.#byDigest.set(digest, user);
      for (const uid of user.uids) this.#byUid.set(uid, user);
    }
    this.#default = table.find(({ name }) => name === DEFAULT_USER);
  }
}

/** The user at the other end of a connection, for as long as its proof holds. */
export class Identity {
  /** Name of the user. */
  readonly name: string;
  readonly #users: Users;
  readonly #proof: Proof;

  /** @internal Made by {@link Users.identify}. */
  constructor(users: Users, proof: Proof, name: string) {
    this.#users = users;
    this.#proof = proof;
    this.name = name;
  }

  /**
   * The user with the rights of now. Undefined: the proof has become void, or somebody else's; the connection is to
   * end.
   */
  get user(): User | undefined {
    const user = this.#users.userWith(this.#proof);
    return user?.name === this.name ? user : undefined;
  }
}

/** What a table of users has of a token: SHA-256, which is enough for random text. */
export function digestOf(token: string | Uint8Array): string {
  return createHash('sha256').update(token).digest('hex');
}
