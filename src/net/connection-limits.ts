import { assert, assertAtMost } from '../base/assert.js';
import type { Clock } from '../base/environment/clock.js';
import type { Connection } from '../base/environment/network.js';
import {
  UNAUTHENTICATED_ADDRESSES_MAX_COUNT,
  UNAUTHENTICATED_BURST_COUNT,
  UNAUTHENTICATED_PAUSE_MS,
  UNAUTHENTICATED_PER_ADDRESS_BURST_COUNT,
  UNAUTHENTICATED_PER_ADDRESS_PER_S,
  UNAUTHENTICATED_PER_S,
} from '../base/limits.js';

/**
 * Connections that must make room for others: unauthenticated ones, or idle ones. A connection beyond the limit
 * replaces the oldest one of the origin that has most of them. Peers that open many thus close their own, and others
 * keep theirs until `maxCount` further connections arrive.
 */
export class PendingConnections<Connection> {
  readonly #maxCount: number;
  readonly #drop: (connection: Connection) => void;
  readonly #originOf: (connection: Connection) => string;
  /** Pending connections and their origins, oldest first. */
  readonly #pending = new Map<Connection, string>();

  /**
   * `drop` must end a replaced connection, which is no longer pending by then. By default all connections have one
   * origin.
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

  /** Ends the oldest connection of the origin that has most; returns false if there is none. */
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

/** Rates at which unauthenticated connections are accepted; tests replace those of `limits.ts`. */
export interface ConnectionRates {
  readonly perAddressPerS: number;
  readonly perAddressBurstCount: number;
  readonly perS: number;
  readonly burstCount: number;
  readonly pauseMs: number;
}

export const CONNECTION_RATES: ConnectionRates = {
  perAddressPerS: UNAUTHENTICATED_PER_ADDRESS_PER_S,
  perAddressBurstCount: UNAUTHENTICATED_PER_ADDRESS_BURST_COUNT,
  perS: UNAUTHENTICATED_PER_S,
  burstCount: UNAUTHENTICATED_BURST_COUNT,
  pauseMs: UNAUTHENTICATED_PAUSE_MS,
};

/**
 * Cost of refusing a connection, relative to a handshake: measured as one third in a flood, and more for single
 * connections.
 */
const REFUSAL_COST = 1 / 2;

/**
 * Limits the connections of unauthenticated peers, per address and in total. Every connection counts as unauthenticated
 * until {@link proved} returns its share. Members are thus not limited, however many they are; peers that fail or stay
 * silent are.
 */
export class ConnectionLimits {
  readonly #all: Bucket;
  readonly #addresses: AddressBuckets;

  constructor(clock: Clock, rates: ConnectionRates = CONNECTION_RATES) {
    this.#all = new Bucket(clock, () => ({ perS: rates.perS, burstCount: rates.burstCount }));
    const rate = () => ({ perS: rates.perAddressPerS, burstCount: rates.perAddressBurstCount });
    this.#addresses = new AddressBuckets(clock, rate);
  }

  /** Number of remembered addresses. */
  get addressesCount(): number {
    return this.#addresses.size;
  }

  /**
   * Decides about a new connection. `refuse`: its address has used up its share. `pause`: the listener has no time even
   * for refusing connections.
   */
  admit(address: string): 'accept' | 'refuse' | 'pause' {
    const bucket = this.#addresses.of(address);
    const isAccepted = bucket.has(1);
    const cost = isAccepted ? 1 : REFUSAL_COST;
    if (!this.#all.has(cost)) return 'pause';
    this.#all.take(cost);
    if (!isAccepted) return 'refuse';
    bucket.take(1);
    return 'accept';
  }

  /** Returns the share of an accepted connection from `address`, because its peer has authenticated itself. */
  proved(address: string): void {
    this.#all.giveBack(1);
    this.#addresses.known(address)?.giveBack(1);
  }

  /**
   * Throws `InvariantError` unless no bucket has more tokens than its burst, and no more addresses are kept than
   * allowed.
   */
  verify(): void {
    this.#all.verify('connection limits', 'all');
    this.#addresses.verify('connection limits');
  }
}

/** How fast a bucket fills, and how much it holds. */
interface BucketRate {
  readonly perS: number;
  readonly burstCount: number;
}

/** A token bucket: a share that refills over time. */
class Bucket {
  readonly #clock: Clock;
  readonly #rate: () => BucketRate;
  #tokens: number;
  #filledAtMs: number;

  constructor(clock: Clock, rate: () => BucketRate) {
    this.#clock = clock;
    this.#rate = rate;
    this.#tokens = rate().burstCount;
    this.#filledAtMs = clock.nowMs();
  }

  /** Whether at least this many tokens are left. */
  has(tokens: number): boolean {
    const { perS, burstCount } = this.#rate();
    const nowMs = this.#clock.nowMs();
    this.#tokens = Math.min(burstCount, this.#tokens + ((nowMs - this.#filledAtMs) / 1000) * perS);
    this.#filledAtMs = nowMs;
    return this.#tokens >= tokens;
  }

  /** Takes tokens that {@link has} has confirmed. */
  take(tokens: number): void {
    this.#tokens -= tokens;
  }

  giveBack(tokens: number): void {
    this.#tokens = Math.min(this.#rate().burstCount, this.#tokens + tokens);
  }

  /** Throws `InvariantError` unless the number of tokens is between 0 and the burst. */
  verify(subject: string, whose: string): void {
    const { burstCount } = this.#rate();
    assertAtMost(`${subject}: what is left for ${whose}`, this.#tokens, burstCount);
    assertAtMost(`${subject}: what ${whose} has taken`, burstCount - this.#tokens, burstCount);
  }
}

/** One bucket per address. If there are too many addresses, the one that was used longest ago is forgotten. */
export class AddressBuckets {
  readonly #clock: Clock;
  readonly #rate: () => BucketRate;
  /** Buckets by origin, the most recently used one at the end. */
  readonly #buckets = new Map<string, Bucket>();

  constructor(clock: Clock, rate: () => BucketRate) {
    this.#clock = clock;
    this.#rate = rate;
  }

  get size(): number {
    return this.#buckets.size;
  }

  /** Returns the bucket of an address, which is remembered from now on. */
  of(address: string): Bucket {
    const origin = originOf(address);
    const bucket = this.#buckets.get(origin) ?? new Bucket(this.#clock, this.#rate);
    this.#buckets.delete(origin);
    this.#buckets.set(origin, bucket);
    if (this.#buckets.size > UNAUTHENTICATED_ADDRESSES_MAX_COUNT) {
      for (const oldest of this.#buckets.keys()) {
        this.#buckets.delete(oldest);
        break;
      }
    }
    return bucket;
  }

  /** Returns the bucket of an address, if the address is remembered. */
  known(address: string): Bucket | undefined {
    return this.#buckets.get(originOf(address));
  }

  /** Throws `InvariantError` unless each bucket is consistent, and no more are kept than allowed. */
  verify(subject: string): void {
    for (const [origin, bucket] of this.#buckets) bucket.verify(subject, origin);
    assertAtMost(`${subject}: addresses`, this.#buckets.size, UNAUTHENTICATED_ADDRESSES_MAX_COUNT);
  }
}

/**
 * Returns the key under which an address is counted. An IPv6 address counts as its /64 network, which usually has one
 * owner.
 */
function originOf(address: string): string {
  if (!address.includes(':')) return address;
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address);
  if (mapped !== null) return mapped[1] as string;
  const [head = '', tail] = address.split('::');
  const groups = head === '' ? [] : head.split(':');
  const tailGroups = tail === undefined || tail === '' ? [] : tail.split(':');
  // `::` stands for zeros, so groups after it may belong to the network part.
  while (tail !== undefined && groups.length + tailGroups.length < 8) groups.push('0');
  return [...groups, ...tailGroups].slice(0, 4).join(':');
}

/** Ends a connection that is not admitted before anything is read from it. */
export function turnAway(connection: Connection): void {
  connection.on('error', () => {});
  // Unlike an orderly end, a reset leaves nothing behind in the kernel.
  connection.resetAndDestroy();
}
