import { Cancellation, type CancelSignal } from '../../base/concurrency/cancellation.js';
import type { Environment } from '../../base/environment/environment.js';
import type { NameAnswer } from '../../base/environment/name-service.js';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import { MEMBERS_MAX_COUNT } from '../../base/limits.js';
import { type DiscoveryAddress, formatDiscoveryAddress } from '../../base/settings/discovery-address.js';
import type { AddressSource, SourceListener } from './address-source.js';

/** Longest wait for an answer. */
const TIMEOUT_MS = 4_000;
/** Pause after an answer while this node has no master, and after a failure. */
const RETRY_MS = 1_000;
/** Shortest pause after an answer. Between this and the longest one, the records' time-to-live decides. */
const INTERVAL_MIN_MS = 5_000;
/** Longest pause after an answer. */
const INTERVAL_MAX_MS = 30_000;
/** Service of SRV records that belong to a name. */
const SERVICE = '_meshcache._tcp';

interface DnsSourceOptions {
  readonly address: Extract<DiscoveryAddress, { readonly kind: 'dns' }>;
  /** Port of records without one. */
  readonly port: number;
  readonly env: Environment;
}

/**
 * Addresses from the domain name system: the A or AAAA records of a name, or its SRV records, looked up again and
 * again. The addresses are sorted, those of SRV records by priority, so that nodes with the same answer have them in
 * the same order.
 */
export class DnsSource implements AddressSource {
  readonly name: string;
  readonly #options: DnsSourceOptions;
  #listener: SourceListener | undefined;
  #isUrgent = false;
  #isAsking = false;
  #cancel: (() => void) | undefined;
  readonly #stopping = new Cancellation();

  constructor(options: DnsSourceOptions) {
    this.#options = options;
    this.name = formatDiscoveryAddress(options.address);
  }

  start(listener: SourceListener): void {
    this.#listener = listener;
    void this.#ask();
  }

  setUrgent(isUrgent: boolean): void {
    if (isUrgent === this.#isUrgent) return;
    this.#isUrgent = isUrgent;
    if (isUrgent && this.#listener !== undefined && !this.#isAsking) this.#askAfter(0);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#cancel?.();
  }

  async #ask(): Promise<void> {
    this.#isAsking = true;
    let pauseMs = RETRY_MS;
    try {
      const { endpoints, ttlS } = await this.#lookUp();
      if (this.#stopping.aborted) return;
      if (endpoints.length > 0) pauseMs = this.#pauseMs(ttlS);
      if (endpoints.length > 0) this.#listener?.onFound(endpoints);
      else this.#listener?.onFailure(`the name ${this.#options.address.name} has no A, AAAA or SRV records`);
    } catch (error) {
      if (this.#stopping.aborted) return;
      this.#listener?.onFailure((error as Error).message);
    } finally {
      this.#isAsking = false;
    }
    this.#askAfter(this.#isUrgent ? RETRY_MS : pauseMs);
  }

  /** Asks once. Gives up after `TIMEOUT_MS`, or when the source is stopped. */
  async #lookUp(): Promise<NameAnswer> {
    const { clock } = this.#options.env;
    const given = new Cancellation();
    const giveUp = (): void => given.abort();
    this.#stopping.addEventListener('abort', giveUp);
    const cancel = clock.after(TIMEOUT_MS, giveUp);
    try {
      return await lookUpAll(this.#options, given);
    } catch (error) {
      throw given.aborted ? new Error(`no answer within ${TIMEOUT_MS / 1000} s`) : error;
    } finally {
      cancel();
      this.#stopping.removeEventListener('abort', giveUp);
    }
  }

  /** The pause after an answer. It varies at random, so that nodes that start together do not keep asking together. */
  #pauseMs(ttlS: number | undefined): number {
    const { random } = this.#options.env;
    const ms = Math.min(INTERVAL_MAX_MS, Math.max(INTERVAL_MIN_MS, (ttlS ?? 0) * 1000));
    return ms * (0.9 + (0.2 * random.u32()) / 2 ** 32);
  }

  #askAfter(delayMs: number): void {
    this.#cancel?.();
    if (!this.#stopping.aborted) this.#cancel = this.#options.env.clock.after(delayMs, () => void this.#ask());
  }
}

/** Asks once. Rejects if no name server answers. */
export async function lookUpAll({ address, port, env }: DnsSourceOptions, signal?: CancelSignal): Promise<NameAnswer> {
  const { name, port: givenPort, server } = address;
  const isService = name.startsWith('_');
  if (givenPort === undefined || isService) {
    const service = isService ? name : `${SERVICE}.${name}`;
    const answer = await env.names.lookUp({ name: service, kind: 'services', server }, signal);
    if (answer.endpoints.length > 0 || isService) return { ...answer, endpoints: distinct(answer.endpoints) };
  }
  const { endpoints, ttlS } = await env.names.lookUp({ name, kind: 'addresses', server }, signal);
  const withPort = endpoints.map(({ host }) => ({ host, port: givenPort ?? port }));
  const sorted = withPort.sort((a, b) => (formatEndpoint(a) < formatEndpoint(b) ? -1 : 1));
  return { endpoints: distinct(sorted), ttlS };
}

function distinct(endpoints: readonly Endpoint[]): Endpoint[] {
  const known = new Map(endpoints.map((endpoint) => [formatEndpoint(endpoint), endpoint]));
  return [...known.values()].slice(0, MEMBERS_MAX_COUNT);
}
