import { assert, assertAtMost } from '../base/assert.js';

/**
 * Connections that must make way for others: those of unauthenticated peers, or idle ones. A connection beyond the
 * limit replaces the oldest one of the origin that has most of them. So whoever opens many closes their own, and others
 * have the time until `maxCount` further connections arrive.
 */
export class PendingConnections<Connection> {
  readonly #maxCount: number;
  readonly #drop: (connection: Connection) => void;
  readonly #originOf: (connection: Connection) => string;
  /** Pending connections and their origins, oldest first. */
  readonly #pending = new Map<Connection, string>();

  /**
   * `drop` is called to end a replaced connection, which is no longer pending by then. Default: all have one origin.
   */
  constructor(
    maxCount: number,
    drop: (connection: Connection) => void,
    originOf: (connection: Connection) => string = () => '',
  ) {
    this.#maxCount = maxCount;
    this.#drop = drop;
    this.#originOf = originOf;
  }

  get count(): number {
    return this.#pending.size;
  }

  has(connection: Connection): boolean {
    return this.#pending.has(connection);
  }

  add(connection: Connection): void {
    this.#pending.set(connection, this.#originOf(connection));
    if (this.#pending.size > this.#maxCount) this.dropOldest();
  }

  /** Removes a connection whose peer has authenticated itself, or that has ended. */
  delete(connection: Connection): void {
    this.#pending.delete(connection);
  }

  /** Ends the oldest connection of the origin that has most; false: there is none. */
  dropOldest(): boolean {
    const origin = this.#mostFrequent();
    for (const [oldest, from] of this.#pending) {
      if (from !== origin) continue;
      this.#pending.delete(oldest);
      this.#drop(oldest);
      return true;
    }
    return false;
  }

  dropAll(): void {
    while (this.dropOldest());
  }

  #mostFrequent(): string {
    const counts = new Map<string, number>();
    let most = '';
    for (const origin of this.#pending.values()) {
      const count = (counts.get(origin) ?? 0) + 1;
      counts.set(origin, count);
      if (count > (counts.get(most) ?? 0)) most = origin;
    }
    return most;
  }

  /** Throws `InvariantError` unless the pending connections are within their limit and all among `connections`. */
  verify(connections: { has(connection: Connection): boolean }): void {
    assertAtMost('pending connections', this.#pending.size, this.#maxCount);
    for (const one of this.#pending.keys())
      assert(connections.has(one), 'pending connections: one that is none any more');
  }
}
