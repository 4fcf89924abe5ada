import type { ByteBudget } from '../../base/concurrency/byte-budget.js';
import type { AuditSink } from '../../base/environment/audit.js';
import type { Environment } from '../../base/environment/environment.js';
import { isDigestOf, PasswordCheck, type WrongPassword } from '../../net/auth-failures.js';
import { DEFAULT_USER, type Identity, type User, type Users } from '../../net/users.js';
import type { StoredPages } from '../../store/namespace/namespace-pages.js';
import { RespPages } from '../values/resp-pages.js';

export interface RespUsersParts {
  readonly users: Users;
  /** What makes a client the user `default`; undefined: nothing is needed for that. */
  readonly password: string | undefined;
  /** Tag of the namespace of users whose tags allow it, and who have none of their own. */
  readonly nodeTag: string;
  /** The pages of the namespace with a tag. */
  readonly pagesOf: (tag: string) => StoredPages;
  /** Memory for values that are copied. */
  readonly budget: ByteBudget;
  readonly env: Environment;
}

/** The users of the Redis door: who a client is, and whose pages its commands reach. */
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

  /** Calls `listener` when the users or their rights have changed; the function that is returned ends that. */
  onChanged(listener: () => void): () => void {
    return this.#parts.users.onRenewed(() => {
      // Users that are gone leave nothing behind.
      this.#pages.clear();
      listener();
    });
  }

  /** The user of a client that has shown nothing; undefined: it must authenticate itself. */
  stranger(uid: number | undefined): Identity | undefined {
    const identity = this.#parts.users.identify({ uid });
    return identity?.name === DEFAULT_USER && this.#parts.password !== undefined ? undefined : identity;
  }

  /** Whether there is anything with which a client could authenticate itself. */
  get knowsSecrets(): boolean {
    return this.#parts.password !== undefined || this.#parts.users.hasTokens;
  }

  /**
   * The user of a client that shows a password or a token. Without a password, everybody may be the user `default`.
   * `from` tells clients from others.
   */
  login(name: string | undefined, secret: Uint8Array, from: string): Identity | WrongPassword {
    const anybody = name === DEFAULT_USER && this.#parts.password === undefined && this.#parts.users.identify({});
    if (anybody) return anybody;
    const found = this.#secrets.judge(secret, from);
    return typeof found === 'object' && name !== undefined && found.name !== name ? 'wrong' : found;
  }

  /** The tag of the namespace that the user's commands reach; undefined: none. */
  tagOf(user: User): string | undefined {
    return user.redisTag(this.#parts.nodeTag);
  }

  /** Records what a client does, or may not do. */
  get audit(): AuditSink | undefined {
    return this.#parts.env.audit;
  }

  /** The pages that the user's commands reach; undefined: none. */
  pagesOf(user: User): RespPages | undefined {
    const { pagesOf, budget } = this.#parts;
    const tag = this.tagOf(user);
    if (tag === undefined) return undefined;
    const pages = this.#pages.get(tag) ?? new RespPages(pagesOf(tag), budget, this.#parts.env.clock);
    this.#pages.set(tag, pages);
    return pages;
  }

  /** Throws `InvariantError` unless what is remembered of wrong passwords is consistent. */
  verify(): void {
    this.#secrets.verify();
  }
}
