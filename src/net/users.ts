import { createHash } from 'node:crypto';
import { Renewable } from '../base/environment/credentials.js';

/** All rights that a user may have. `write` includes deleting pages. */
export const RIGHTS = ['read', 'write', 'clear', 'pin', 'status', 'drain'] as const;
/** One of {@link RIGHTS}. */
export type Right = (typeof RIGHTS)[number];

/** Name of the user of every client that presents no token and whose process belongs to no other user. */
export const DEFAULT_USER = 'default';

/** The entry of `tags` that stands for all namespaces, including those without a tag. */
const EVERY_TAG = '*';

/** The fields that define a {@link User}. */
interface UserFields {
  readonly name: string;
  /** Uids of this host whose processes are this user. */
  readonly uids?: readonly number[];
  /** SHA-256 digests of the user's tokens, as 64 hexadecimal digits. */
  readonly tokenDigests?: readonly string[];
  /** Tags of the user's namespaces. A `*` at the end matches any ending. */
  readonly tags: readonly string[];
  /** Tag of the namespace that the user's Redis commands access. */
  readonly redisTag?: string | undefined;
  readonly rights: readonly Right[];
}

/** A user of a node: how it is recognized, and its rights. */
export class User {
  readonly name: string;
  readonly uids: readonly number[];
  readonly tokenDigests: readonly string[];
  readonly rights: ReadonlySet<Right>;
  readonly tags: readonly string[];
  /** The tag for Redis commands that was configured for this user. */
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

  /** Whether the user may use namespaces with this tag. The empty tag stands for namespaces without one. */
  mayUse(tag: string): boolean {
    return this.tags.some((pattern) =>
      pattern.endsWith(EVERY_TAG) ? tag.startsWith(pattern.slice(0, -1)) : tag === pattern,
    );
  }

  /** Whether the user may use all namespaces. */
  get mayUseAll(): boolean {
    return this.tags.includes(EVERY_TAG);
  }

  /**
   * Returns the tag of the namespace that the user's Redis commands access; undefined if there is none. `nodeTag` is
   * the tag of the node.
   */
  redisTag(nodeTag: string): string | undefined {
    if (this.ownRedisTag !== undefined) return this.ownRedisTag;
    return this.mayUse(nodeTag) ? nodeTag : this.tags.find((pattern) => !pattern.endsWith(EVERY_TAG));
  }
}

/** The only user of a node without `users_file`: everyone, with all rights to all namespaces. */
export const EVERYBODY: User = new User({ name: DEFAULT_USER, tags: [EVERY_TAG], rights: RIGHTS });

/**
 * Evidence of a client's identity. If a token is given, it alone counts, right or wrong. Else it is the uid of the
 * client's process according to the kernel, or nothing, as for every client at a port.
 */
interface Proof {
  /** {@link digestOf} the token. */
  readonly tokenDigest?: string | undefined;
  readonly uid?: number | undefined;
}

/**
 * The current users of a node. The table can be renewed while the node runs; holders of an {@link Identity} are
 * notified, and get the current rights with each request.
 */
export class Users extends Renewable<readonly User[]> {
  readonly #byDigest = new Map<string, User>();
  readonly #byUid = new Map<number, User>();
  #default: User | undefined;

  /** Without a table there is one user, with all rights. */
  constructor(table: readonly User[] = [EVERYBODY]) {
    super(table, '[users]');
    this.#index(table);
  }

  override renew(table: readonly User[]): void {
    this.#index(table);
    super.renew(table);
  }

  /** Returns the user with this proof; undefined if there is none. A wrong token never identifies a user. */
  userWith({ tokenDigest, uid }: Proof): User | undefined {
    if (tokenDigest !== undefined) return this.#byDigest.get(tokenDigest);
    return (uid === undefined ? undefined : this.#byUid.get(uid)) ?? this.#default;
  }

  /** Whether any user has a token. */
  get hasTokens(): boolean {
    return this.#byDigest.size > 0;
  }

  /** Identifies the user with this proof; undefined if there is none, so that the client must be refused. */
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
   * The user with its current rights. Undefined if the proof is no longer valid or belongs to another user; the
   * connection must then end.
   */
  get user(): User | undefined {
    const user = this.#users.userWith(this.#proof);
    return user?.name === this.name ? user : undefined;
  }
}

/** Returns the digest by which a table of users stores a token. Plain SHA-256 is enough for random text. */
export function digestOf(token: string | Uint8Array): string {
  return createHash('sha256').update(token).digest('hex');
}
