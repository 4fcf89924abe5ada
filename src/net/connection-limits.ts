import { assertAtMost } from '../base/assert.js';
import type { Clock } from '../base/environment/clock.js';
import {
  STRANGERS_ADDRESSES_MAX_COUNT,
  STRANGERS_BURST_COUNT,
  STRANGERS_PAUSE_MS,
  STRANGERS_PER_ADDRESS_BURST_COUNT,
  STRANGERS_PER_ADDRESS_PER_S,
  STRANGERS_PER_S,
} from '../base/limits.js';

/** What `limits.ts` says of strangers; a test has other ones. */
export interface ConnectionRates {
  readonly perAddressPerS: number;
  readonly perAddressBurstCount: number;
  readonly perS: number;
  readonly burstCount: number;
  readonly pauseMs: number;
}

export const CONNECTION_RATES: ConnectionRates = {
  perAddressPerS: STRANGERS_PER_ADDRESS_PER_S,
  perAddressBurstCount: STRANGERS_PER_ADDRESS_BURST_COUNT,
  perS: STRANGERS_PER_S,
  burstCount: STRANGERS_BURST_COUNT,
  pauseMs: STRANGERS_PAUSE_MS,
};

/** What turning a connection away takes, as a part of what a handshake takes; a third of it in a crowd, more when they come one by one. */
const REFUSAL_COST = 1 / 2;

interface Bucket {
  tokens: number;
  filledAtMs: number;
}

/**
 * How many connections of strangers a listener has time for, from one address and in all. Whoever has connected is one until
 * {@link proved} says that it belongs here, which gives back what it has taken: members are not limited, however many
 * they are, those that fail or say nothing are.
 */
export class ConnectionLimits {
  readonly #rates: ConnectionRates;
  readonly #clock: Clock;
  readonly #all: Bucket;
  /** By address, the one that connected last at the end. */
  readonly #addresses = new Map<string, Bucket>();

  constructor(clock: Clock, rates: ConnectionRates = CONNECTION_RATES) {
    this.#rates = rates;
    this.#clock = clock;
    this.#all = { tokens: rates.burstCount, filledAtMs: clock.nowMs() };
  }

  /** Addresses that are remembered. */
  get addressesCount(): number {
    return this.#addresses.size;
  }

  /** `refuse`: this address has had its share. `pause`: there is no time for anybody, not even to refuse it. */
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

  /** A connection from `address` that was accepted belongs here. */
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
    if (this.#addresses.size > STRANGERS_ADDRESSES_MAX_COUNT) {
      for (const oldest of this.#addresses.keys()) {
        this.#addresses.delete(oldest);
        break;
      }
    }
    fill(bucket, { perS, burstCount, nowMs });
    return bucket;
  }

  /** Throws `InvariantError` unless nobody may have more connections than there ever may be, and no more addresses are kept. */
  verify(): void {
    const { burstCount, perAddressBurstCount } = this.#rates;
    verifyBucket('all', this.#all, burstCount);
    for (const [origin, bucket] of this.#addresses) verifyBucket(origin, bucket, perAddressBurstCount);
    assertAtMost('connection limits: addresses', this.#addresses.size, STRANGERS_ADDRESSES_MAX_COUNT);
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

/** Who has one address of an IPv6 network of 64 bits has all of them. */
function originOf(address: string): string {
  if (!address.includes(':')) return address;
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address);
  if (mapped !== null) return mapped[1] as string;
  const [head = '', tail] = address.split('::');
  const groups = head === '' ? [] : head.split(':');
  const tailGroups = tail === undefined || tail === '' ? [] : tail.split(':');
  // A short form leaves out zeros, so that the last groups may reach into the network's part.
  while (tail !== undefined && groups.length + tailGroups.length < 8) groups.push('0');
  return [...groups, ...tailGroups].slice(0, 4).join(':');
}
