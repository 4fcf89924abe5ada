import type { Clock } from '../base/environment/clock.js';
import {
  UNAUTHENTICATED_BURST_COUNT,
  UNAUTHENTICATED_PAUSE_MS,
  UNAUTHENTICATED_PER_ADDRESS_BURST_COUNT,
  UNAUTHENTICATED_PER_ADDRESS_PER_S,
  UNAUTHENTICATED_PER_S,
} from '../base/limits.js';
import { AddressBuckets, Bucket } from './address-buckets.js';

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

/**
 * Limits the connections of unauthenticated peers, for each address and in all. Every connection counts as unauthenticated until
 * {@link proved} gives its share back. So members are not limited, however many they are; peers that fail or stay silent are.
 */
export class ConnectionLimits {
  readonly #all: Bucket;
  readonly #addresses: AddressBuckets;

  constructor(clock: Clock, rates: ConnectionRates = CONNECTION_RATES) {
    this.#all = new Bucket(clock, () => ({ perS: rates.perS, burstCount: rates.burstCount }));
    const rate = () => ({ perS: rates.perAddressPerS, burstCount: rates.perAddressBurstCount });
    this.#addresses = new AddressBuckets(clock, rate);
  }

  /** Number of addresses that are remembered. */
  get addressesCount(): number {
    return this.#addresses.size;
  }

  /** Decides about a new connection. `refuse`: this address has used its share. `pause`: the listener has no time even to refuse connections. */
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

  /** Gives back the share of an accepted connection from `address`, whose peer has authenticated itself. */
  proved(address: string): void {
    this.#all.giveBack(1);
    this.#addresses.known(address)?.giveBack(1);
  }

  /** Throws `InvariantError` unless no bucket has more tokens than its burst, and no more addresses are kept than allowed. */
  verify(): void {
    this.#all.verify('connection limits', 'all');
    this.#addresses.verify('connection limits');
  }
}
