/** What a user may be allowed. `write` is to set and to delete pages. */
export const RIGHTS = ['read', 'write', 'clear', 'pin', 'status', 'drain'] as const;
/** One of {@link RIGHTS}. */
export type Right = (typeof RIGHTS)[number];

/** The name of the user that every client is which shows no token, and whose process belongs to no other user. */
export const DEFAULT_USER = 'default';

/** The entry of `tags` that stands for all namespaces, the one without a tag included. */
const EVERY_TAG = '*';

/** What a {@link User} is made of. */
export interface UserFields {
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
