import type { Endpoint } from './network.js';

/** A question to a {@link NameService}. */
export interface NameQuery {
  /** A domain name, without a dot at the end. */
  readonly name: string;
  /**
   * Addresses: A records, or AAAA records if there are none. Services: SRV records, their targets resolved to
   * addresses.
   */
  readonly kind: 'addresses' | 'services';
  /** The name server to ask; default: those of the machine, with its search domains. */
  readonly server?: Endpoint | undefined;
}

/** The answer of a {@link NameService}. */
export interface NameAnswer {
  /** Addresses with the port of the SRV record, 0 for address records; empty: there is no such record. */
  readonly endpoints: readonly Endpoint[];
  /** Seconds for which the answer is valid; undefined: unknown. */
  readonly ttlS: number | undefined;
}

/** Tells when an answer is no longer wanted; every `CancelSignal` is one. */
export interface LookUpSignal {
  readonly aborted: boolean;
  /** Adds a listener that is called when the answer is no longer wanted. */
  addEventListener(type: 'abort', listener: () => void): void;
  /** Removes a listener that {@link addEventListener} has added. */
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** The domain name system, as seen from this machine. */
export interface NameService {
  /**
   * Resolves with an empty answer if the name does not exist. Rejects within some seconds if no name server answers, or
   * if it cannot answer, and at once when the answer is no longer wanted.
   */
  lookUp(query: NameQuery, signal?: LookUpSignal): Promise<NameAnswer>;
}
