import type { AuditSink } from '../../base/environment/audit.js';
import type { Environment } from '../../base/environment/environment.js';
import { isDigestOf, PasswordCheck, type WrongPassword } from '../../net/auth-failures.js';
import { DEFAULT_USER, type Identity, type User, type Users } from '../../net/users.js';
import type { StoredPages } from '../../store/namespace/namespace-pages.js';
import { RespPages } from '../values/resp-pages.js';
import type { AnswerMemory } from '../values/value-sender.js';

export interface RespUsersParts {
  readonly users: Users;
  /** Password of the user `default`; undefined if that user needs none. */
  readonly password: string | undefined;
  /** Tag of the namespace for users who have no `redis_tag` of their own but may use this tag. */
  readonly nodeTag: string;
  /** Returns the pages of the namespace with a tag. */
  readonly pagesOf: (tag: string) => StoredPages;
  /** Memory for values that are read. */
  readonly memory: AnswerMemory;
  readonly env: Environment;
}

/** The users of the Redis door: identifies clients, and finds the pages that their commands access. */
export class RespUsers {
  readonly #parts: RespUsersParts;
  readonly #secrets: PasswordCheck<Identity>;
  readonly #pages = new Map<string, RespPages>();

  constructor(parts: RespUsersParts) {
    this.#parts = parts;
    const { users, password, env } = parts;
    const isPassword = password === undefined ? () => false : isDigestOf(password);
    const ownerOf = (tokenDigest: string) => users.identify(isPassword(tokenDigest) ? {} : { tokenDigest });
    this.#secrets = new PasswordCheck(ownerOf, 'resp', env);
  }

  /** Calls `listener` when the users or their rights have changed. Returns a function that ends this. */
  onChanged(listener: () => void): () => void {
    return this.#parts.users.onRenewed(() => {
      // Pages of removed users must not stay in memory.
      this.#pages.clear();
      listener();
    });
  }

  /** Returns the user of a client that has presented no secret; undefined if it must authenticate itself. */
  stranger(uid: number | undefined): Identity | undefined {
    const identity = this.#parts.users.identify({ uid });
    return identity?.name === DEFAULT_USER && this.#parts.password !== undefined ? undefined : identity;
  }

  /** Whether a client could authenticate itself at all: a password or a token is configured. */
  get knowsSecrets(): boolean {
    return this.#parts.password !== undefined || this.#parts.users.hasTokens;
  }

  /**
   * Returns the user of a client that presents a password or a token. If no password is configured, every client may be
   * the user `default`. Wrong attempts are counted by `from`.
   */
  login(name: string | undefined, secret: Uint8Array, from: string): Identity | WrongPassword {
    const anybody = name === DEFAULT_USER && this.#parts.password === undefined && this.#parts.users.identify({});
    if (anybody) return anybody;
    const found = this.#secrets.judge(secret, from);
    return typeof found === 'object' && name !== undefined && found.name !== name ? 'wrong' : found;
  }

  /** Returns the tag of the namespace that the user's commands access; undefined if there is none. */
  tagOf(user: User): string | undefined {
    return user.redisTag(this.#parts.nodeTag);
  }

  /** The audit log, for what clients do and for what they are refused. */
  get audit(): AuditSink | undefined {
    return this.#parts.env.audit;
  }

  /** Returns the pages that the user's commands access; undefined if there are none. */
  pagesOf(user: User): RespPages | undefined {
    const { pagesOf, memory } = this.#parts;
    const tag = this.tagOf(user);
    if (tag === undefined) return undefined;
    const pages = this.#pages.get(tag) ?? new RespPages(pagesOf(tag), memory, this.#parts.env.clock);
    this.#pages.set(tag, pages);
    return pages;
  }

  /** Throws `InvariantError` unless the counts of wrong passwords are consistent. */
  verify(): void {
    this.#secrets.verify();
  }
}
