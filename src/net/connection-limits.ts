import { assertAtMost } from '../base/assert.js';
import type { Clock } from '../base/environment/clock.js';
import {
  UNAUTHENTICATED_ADDRESSES_MAX_COUNT,
  UNAUTHENTICATED_BURST_COUNT,
  UNAUTHENTICATED_PAUSE_MS,
  UNAUTHENTICATED_PER_ADDRESS_BURST_COUNT,
  UNAUTHENTICATED_PER_ADDRESS_PER_S,
  UNAUTHENTICATED_PER_S,
} from '../base/limits.js';

/** Rates at which unauthenticated connections are accepted; tests use other ones than `limits.ts`. */
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

/** Cost of refusing a connection, relative to a handshake: measured as one third in a flood, and more for single connections. */
const REFUSAL_COST = 1 / 2;

interface Bucket {
  tokens: number;
  filledAtMs: number;
}

/**
 * Limits the connections of unauthenticated peers, for each address and in all. Every connection counts as unauthenticated until
 * {@link proved} gives its share back. So members are not limited, however many they are; peers that fail or stay silent are.
 */
export class ConnectionLimits {
  readonly #rates: ConnectionRates;
  readonly #clock: Clock;
  readonly #all: Bucket;
  /** Buckets by address, the most recent one at the end. */
  readonly #addresses = new Map<string, Bucket>();

  constructor(clock: Clock, rates: ConnectionRates = CONNECTION_RATES) {
    this.#rates = rates;
    this.#clock = clock;
    this.#all = { tokens: rates.burstCount, filledAtMs: clock.nowMs() };
  }

  /** Number of addresses that are remembered. */
  get addressesCount(): number {
    return this.#addresses.size;
  }

  /** Decides about a new connection. `refuse`: this address has used its share. `pause`: the listener has no time even to refuse connections. */
  admit(address: string): 'accept' | 'refuse' | 'pause' {
    const { perS, burstCount } = this.#rates;
    fill(this.#all, { perS, burstCount, nowMs: this.#clock.nowMs() });
    const bucket = this.#bucketOf(originOf(address));
    const isAccepted = bucket.tokens >= 1;
    const cost = isAccepted ? 1 : REFUSAL_COST;
    if (this.#all.tokens < cost) return 'pause';
    this.#all.tokens -= cost;
    if (!isAccepted) return 'refuse';
    bucket.tokens--;
    return 'accept';
  }

  /** Gives back the share of an accepted connection from `address`, whose peer has authenticated itself. */
  proved(address: string): void {
    const { burstCount, perAddressBurstCount } = this.#rates;
    this.#all.tokens = Math.min(burstCount, this.#all.tokens + 1);
    const bucket = this.#addresses.get(originOf(address));
    if (bucket !== undefined) bucket.tokens = Math.min(perAddressBurstCount, bucket.tokens + 1);
  }

  #bucketOf(origin: string): Bucket {
    const { perAddressPerS: perS, perAddressBurstCount: burstCount } = this.#rates;
    const nowMs = this.#clock.nowMs();
    const bucket = this.#addresses.get(origin) ?? { tokens: burstCount, filledAtMs: nowMs };
    this.#addresses.delete(origin);
    this.#addresses.set(origin, bucket);
    if (this.#addresses.size > UNAUTHENTICATED_ADDRESSES_MAX_COUNT) {
      for (const oldest of this.#addresses.keys()) {
        this.#addresses.delete(oldest);
        break;
      }
    }
    fill(bucket, { perS, burstCount, nowMs });
    return bucket;
  }

  /** Throws `InvariantError` unless no bucket has more tokens than its burst, and no more addresses are kept than allowed. */
  verify(): void {
    const { burstCount, perAddressBurstCount } = this.#rates;
    verifyBucket('all', this.#all, burstCount);
    for (const [origin, bucket] of this.#addresses) verifyBucket(origin, bucket, perAddressBurstCount);
    assertAtMost('connection limits: addresses', this.#addresses.size, UNAUTHENTICATED_ADDRESSES_MAX_COUNT);
  }
}

function fill(
  bucket: Bucket,
  by: { readonly perS: number; readonly burstCount: number; readonly nowMs: number },
): void {
  const { perS, burstCount, nowMs } = by;
  bucket.tokens = Math.min(burstCount, bucket.tokens + ((nowMs - bucket.filledAtMs) / 1000) * perS);
  bucket.filledAtMs = nowMs;
}

function verifyBucket(whose: string, { tokens }: Bucket, burstCount: number): void {
  assertAtMost(`connection limits: what is left for ${whose}`, tokens, burstCount);
  assertAtMost(`connection limits: what ${whose} has taken`, burstCount - tokens, burstCount);
}

/** The key under which an address is counted: an IPv6 address counts as its /64 network, which belongs to one owner as a rule. */
function originOf(address: string): string {
  if (!address.includes(':')) return address;
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address);
  if (mapped !== null) return mapped[1] as string;
  const [head = '', tail] = address.split('::');
  const groups = head === '' ? [] : head.split(':');
  const tailGroups = tail === undefined || tail === '' ? [] : tail.split(':');
  // `::` stands for zeros, so that groups behind it may belong to the network part.
  while (tail !== undefined && groups.length + tailGroups.length < 8) groups.push('0');
  return [...groups, ...tailGroups].slice(0, 4).join(':');
}
