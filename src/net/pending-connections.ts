import { assert, assertAtMost } from '../base/assert.js';

/**
 * Accepted connections of unauthenticated peers. A connection beyond the limit replaces the oldest one, so that in a flood every member
 * still has the time until `maxCount` further connections arrive.
 */
export class PendingConnections<Connection> {
  readonly #maxCount: number;
  readonly #drop: (connection: Connection) => void;
  /** Pending connections, oldest first. */
  readonly #pending = new Set<Connection>();

  /** `drop` is called to end a replaced connection, which is no longer pending by then. */
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

  /** Removes a connection whose peer has authenticated itself, or that has ended. */
  delete(connection: Connection): void {
    this.#pending.delete(connection);
  }

  /** Ends the oldest pending connection, if there is one. */
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

  /** Throws `InvariantError` unless the pending connections are within their limit and all among `connections`. */
  verify(connections: { has(connection: Connection): boolean }): void {
    assertAtMost('pending connections', this.#pending.size, this.#maxCount);
    for (const one of this.#pending) assert(connections.has(one), 'pending connections: one that is none any more');
  }
}
