import type { Identity, Right } from '../../net/users.js';
import { RequestType, Status } from '../wire/messages.js';
import { RequestError } from '../wire/request-error.js';

/**
 * The right that each request needs. Undefined: the request concerns only the client itself, so every attached client
 * may make it.
 */
export const REQUEST_RIGHTS: Readonly<Record<keyof typeof RequestType, Right | undefined>> = {
  hello: undefined,
  file: undefined,
  unregion: undefined,
  exists: 'read',
  get: 'read',
  set: 'write',
  getBytes: 'read',
  setBytes: 'write',
  fence: undefined,
  cancel: undefined,
  delete: 'write',
  clear: 'clear',
  stats: 'status',
  ping: undefined,
  stat: 'read',
  pin: 'pin',
  unpin: 'pin',
  events: 'read',
  fingerprint: 'write',
  lookups: 'read',
  getStaged: 'read',
  tell: 'read',
  prefetch: 'read',
  endPins: 'pin',
};
const RIGHTS: ReadonlyMap<number, Right | undefined> = new Map(
  Object.entries(REQUEST_RIGHTS).map(([name, right]) => [RequestType[name as keyof typeof RequestType], right]),
);

/**
 * The rights of an attached client in its namespace. The table of users is consulted each time, so that a revoked right
 * is gone at once.
 */
export class ClientAccess {
  readonly #identity: Identity;
  readonly #tag: string;
  readonly #onDenied: (right: Right, text: string) => void;

  /**
   * `tag` is the tag of the namespace, empty if it has none. Throws {@link RequestError} if the user may not use it.
   * `onDenied` is called for each request that the client may not make.
   */
  constructor(identity: Identity, tag: string, onDenied: (right: Right, text: string) => void = () => {}) {
    this.#identity = identity;
    this.#tag = tag;
    this.#onDenied = onDenied;
    const refusal = this.#refusal();
    if (refusal !== undefined) throw denied(refusal);
  }

  /** Name of the client's user. */
  get name(): string {
    return this.#identity.name;
  }

  /** Whether the client's user may still use the node. */
  get isValid(): boolean {
    return this.#identity.user !== undefined;
  }

  /** Throws {@link RequestError} if the client may not make a request of this type. */
  check(type: number): void {
    const refusal = this.#refusalOf(type);
    if (refusal === undefined) return;
    this.#onDenied(RIGHTS.get(type) as Right, refusal);
    throw denied(refusal);
  }

  /** Whether the client may make a request of this type. */
  allows(type: number): boolean {
    return this.#refusalOf(type) === undefined;
  }

  /** Whether the client's user may use namespaces with the tag of `other`. */
  reaches(other: ClientAccess): boolean {
    return this.#identity.user?.mayUse(other.#tag) ?? false;
  }

  #refusalOf(type: number): string | undefined {
    const right = RIGHTS.get(type);
    return right === undefined ? undefined : this.#refusal(right);
  }

  /** Returns why the client lacks this right in its namespace; undefined if it has the right. */
  #refusal(right?: Right): string | undefined {
    const { user } = this.#identity;
    if (user === undefined) return `user ${this.name} may not use this node any more`;
    if (!user.mayUse(this.#tag)) {
      const whose = this.#tag === '' ? 'without a tag' : `with the tag ${JSON.stringify(this.#tag)}`;
      return `user ${user.name} may not use namespaces ${whose}`;
    }
    return right === undefined || user.has(right) ? undefined : `user ${user.name} has no right "${right}"`;
  }
}

function denied(text: string): RequestError {
  return new RequestError(Status.denied, `${text}; nothing was done`);
}
