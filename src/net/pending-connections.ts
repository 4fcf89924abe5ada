import { assert, assertAtMost } from '../base/assert.js';

/**
 * Accepted connections whose peers have not shown yet that they belong here. There is room for so many; a further one takes the
 * place of the oldest, so that a flood of strangers leaves every member the time in which as many of them arrive.
 */
export class PendingConnections<Connection> {
  readonly #maxCount: number;
  readonly #drop: (connection: Connection) => void;
  /** Oldest first. */
  readonly #pending = new Set<Connection>();

  /** `drop` ends a connection that gives way; it is not pending any more then. */
  constructor(maxCount: number, drop: (connection: Connection) => void) {
    this.#maxCount = maxCount;
    this.#drop = drop;
  }

  get count(): number {
    return this.#pending.size;
  }

  add(connection: Connection): void {
    if (this.#pending.size >= this.#maxCount) this.dropOldest();
    this.#pending.add(connection);
  }

  /** It has shown that it belongs here, or has ended. */
  delete(connection: Connection): void {
    this.#pending.delete(connection);
  }

  /** Without effect when there is none. */
  dropOldest(): void {
    for (const oldest of this.#pending) {
      this.#pending.delete(oldest);
      this.#drop(oldest);
      return;
    }
  }

  dropAll(): void {
    while (this.#pending.size > 0) this.dropOldest();
  }

  /** Throws `InvariantError` unless they are within their limit and all of them among `connections`. */
  verify(connections: { has(connection: Connection): boolean }): void {
    assertAtMost('pending connections', this.#pending.size, this.#maxCount);
    for (const one of this.#pending) assert(connections.has(one), 'pending connections: one that is none any more');
  }
}
