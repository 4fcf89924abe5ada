import { createHash } from 'node:crypto';
import { Renewable } from '../base/environment/credentials.js';

/** What a user may be allowed. `write` is to set and to delete pages. */
export const RIGHTS = ['read', 'write', 'clear', 'pin', 'status', 'drain'] as const;
/** One of {@link RIGHTS}. */
export type Right = (typeof RIGHTS)[number];

/** The name of the user that every client is which shows no token, and whose process belongs to no other user. */
export const DEFAULT_USER = 'default';

/** The entry of `tags` that stands for all namespaces, the one without a tag included. */
const EVERY_TAG = '*';

/** What a {@link User} is made of. */
interface UserFields {
  readonly name: string;
  /** The users of this host, by number, whose processes are this user. */
  readonly uids?: readonly number[];
  /** SHA-256 digests of the user's tokens, as 64 hexadecimal digits. */
  readonly tokenDigests?: readonly string[];
  /** Tags of the user's namespaces. A `*` at the end stands for any end. */
  readonly tags: readonly string[];
  /** Tag of the namespace that the user's Redis commands reach. */
  readonly redisTag?: string | undefined;
  readonly rights: readonly Right[];
}

/** Somebody who uses a node: what proves that it is them, and what they may do. */
export class User {
  readonly name: string;
  readonly uids: readonly number[];
  readonly tokenDigests: readonly string[];
  readonly rights: ReadonlySet<Right>;
  readonly tags: readonly string[];
  /** The tag for Redis commands that was given for this user. */
  readonly ownRedisTag: string | undefined;

  constructor({ name, uids = [], tokenDigests = [], tags, redisTag, rights }: UserFields) {
    this.name = name;
    this.uids = uids;
    this.tokenDigests = tokenDigests;
    this.rights = new Set(rights);
    this.tags = tags;
    this.ownRedisTag = redisTag;
  }

  has(right: Right): boolean {
    return this.rights.has(right);
  }

  /** Whether namespaces with this tag are the user's; the empty tag is that of a namespace without one. */
  mayUse(tag: string): boolean {
    return this.tags.some((pattern) =>
      pattern.endsWith(EVERY_TAG) ? tag.startsWith(pattern.slice(0, -1)) : tag === pattern,
    );
  }

  /** Whether all namespaces are the user's. */
  get mayUseAll(): boolean {
    return this.tags.includes(EVERY_TAG);
  }

  /**
   * The tag of the namespace that the user's Redis commands reach; `nodeTag` is that of the node. Undefined: they reach
   * none.
   */
  redisTag(nodeTag: string): string | undefined {
    if (this.ownRedisTag !== undefined) return this.ownRedisTag;
    return this.mayUse(nodeTag) ? nodeTag : this.tags.find((pattern) => !pattern.endsWith(EVERY_TAG));
  }
}

/** The only user of a node without `users_file`: everybody, with all rights to all namespaces. */
export const EVERYBODY: User = new User({ name: DEFAULT_USER, tags: [EVERY_TAG], rights: RIGHTS });

/**
 * What a client has to show who it is. A token alone counts, right or wrong, where there is one; else the user of the
 * host whose process it is, as the kernel says; else nothing, as for every client at a port.
 */
interface Proof {
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
