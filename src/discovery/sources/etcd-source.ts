import { within } from '../../base/environment/clock.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { DISCOVERY_LEAVE_TIMEOUT_MS, DISCOVERY_MASTERS_MAX_COUNT } from '../../base/limits.js';
import { type DiscoveryAddress, formatDiscoveryAddress } from '../../base/settings/discovery-address.js';
import type { AddressSource, OwnSeat, SourceListener } from './address-source.js';
import type { EtcdClient } from './etcd-client.js';
import { type EtcdSeat, hasAddress, readSeats, seatRange, takeSeat } from './etcd-seats.js';

/** Pause between two lists while this node has no master, and after a failure. */
const RETRY_MS = 1_000;
/** Pause between two lists otherwise: the watch tells of changes, and the list of those that a watch has missed. */
const INTERVAL_MS = 30_000;
/** Time after which a key ends whose node does not keep its lease alive, and the pause between two signs of life. */
const LEASE_TTL_S = 10;
const KEEP_ALIVE_MS = 3_000;
/** Time for which a node holds a key after it has lost its seat. */
const RELEASE_MS = 10_000;
/** Time after which a node without a master registers its own: at random, where there is none; later, where none answers. */
const FOUND_MS = 1_000;
const SILENT_MS = 4_000;

export interface EtcdSourceOptions {
  readonly address: Extract<DiscoveryAddress, { readonly kind: 'etcd' }>;
  readonly client: EtcdClient;
  /** Masters that nodes without any may register. */
  readonly seats: number;
  readonly nodeId: string;
  readonly env: Pick<Environment, 'clock' | 'random'>;
}

/**
 * Addresses from etcd, where each node that runs a master registers it, with a lease. The other nodes only read: they list the keys, watch
 * them, and list them again from time to time and after each change. So the load on etcd follows the masters and not the nodes.
 */
export class EtcdSource implements AddressSource {
  readonly name: string;
  readonly #options: EtcdSourceOptions;
  #listener: SourceListener | undefined;
  #isUrgent = false;
  #own: OwnSeat | undefined;
  #seats: readonly EtcdSeat[] = [];
  #isAsking = false;
  /** Whether something has changed since the list was asked for. */
  #isStale = false;
  #cancelAsk: (() => void) | undefined;
  #endWatch: (() => void) | undefined;
  /** This node's lease, while it has one. */
  #lease: string | undefined;
  #cancelKeepAlive: (() => void) | undefined;
  #withoutSeatSinceMs: number | undefined;
  #loneSinceMs: number | undefined;
  readonly #graceMs: number;
  #stopped = false;

  constructor(options: EtcdSourceOptions) {
    this.#options = options;
    this.name = formatDiscoveryAddress(options.address);
    this.#graceMs = FOUND_MS * (0.2 + (0.8 * options.env.random.u32()) / 2 ** 32);
  }

  get server(): Endpoint {
    return this.#options.address.endpoints[0] as Endpoint;
  }

  start(listener: SourceListener): void {
    this.#listener = listener;
    void this.#ask();
  }

  setUrgent(isUrgent: boolean): void {
    if (isUrgent === this.#isUrgent) return;
    this.#isUrgent = isUrgent;
    if (isUrgent && this.#listener !== undefined) this.#askAfter(0);
  }

  setOwn(own: OwnSeat): void {
    const wasSeat = this.#own?.hasSeat;
    this.#own = own;
    // A seat that is new is registered at once.
    if (own.hasSeat !== wasSeat && this.#listener !== undefined) this.#askAfter(0);
  }

  /** Takes the own key out of etcd, so that nobody waits for its lease to end. */
  async stop(): Promise<void> {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#cancelAsk?.();
    this.#endWatch?.();
    await within(this.#options.env.clock, DISCOVERY_LEAVE_TIMEOUT_MS, this.#release());
    this.#options.client.close();
  }

  async #ask(): Promise<void> {
    if (this.#isAsking) {
      this.#isStale = true;
      return;
    }
    this.#isAsking = true;
    this.#isStale = false;
    let isAnswered = false;
    try {
      const { seats, revision } = await readSeats(this.#options.client, this.#options.address.name);
      isAnswered = true;
      if (this.#stopped) return;
      this.#seats = seats;
      this.#watch(revision);
      this.#listener?.onFound(seats.map(({ endpoint }) => endpoint));
      await this.#register();
    } catch (error) {
      if (this.#stopped) return;
      // A watch on a server that does not answer tells nothing.
      this.#endWatch?.();
      this.#endWatch = undefined;
      this.#listener?.onFailure((error as Error).message);
    } finally {
      this.#isAsking = false;
    }
    const { random } = this.#options.env;
    const intervalMs = INTERVAL_MS * (0.9 + (0.2 * random.u32()) / 2 ** 32);
    const isWaiting = this.#isUrgent || this.#withoutSeatSinceMs !== undefined;
    if (this.#isStale) this.#askAfter(0);
    else this.#askAfter(isAnswered && !isWaiting ? intervalMs : RETRY_MS);
  }

  #askAfter(delayMs: number): void {
    this.#cancelAsk?.();
    if (!this.#stopped) this.#cancelAsk = this.#options.env.clock.after(delayMs, () => void this.#ask());
  }

  /** Waits for changes after `revision`, unless a watch is under way. Each change is a reason to list the keys again. */
  #watch(revision: number): void {
    if (this.#endWatch !== undefined) return;
    const { client, address, env } = this.#options;
    const params = { create_request: { ...seatRange(address.name), start_revision: String(revision + 1) } };
    this.#endWatch = client.stream('watch', params, {
      onMessage: (message) => {
        const { events, canceled } = (message.result ?? {}) as {
          readonly events?: unknown;
          readonly canceled?: unknown;
        };
        // The revision may be gone, or this user may not read the keys any more: the next list says which.
        if (canceled === true) this.#watchEnded();
        else if (events !== undefined) void this.#ask();
      },
      // Many nodes see the end of a server at the same moment.
      onEnd: () => {
        this.#endWatch = undefined;
        this.#askAfter(RETRY_MS * (0.5 + env.random.u32() / 2 ** 33));
      },
    });
  }

  #watchEnded(): void {
    this.#endWatch?.();
    this.#endWatch = undefined;
    this.#askAfter(RETRY_MS);
  }

  /** Brings the own key in line with whether this node has a seat. */
  async #register(): Promise<void> {
    const { clock } = this.#options.env;
    const own = this.#own;
    if (own === undefined) return;
    const isHeld = this.#lease !== undefined && this.#seats.some(({ lease }) => lease === this.#lease);
    // A list without the own key is the truth, whatever became of the lease.
    if (this.#lease !== undefined && !isHeld) this.#forgetLease();
    if (this.#isWanted(own)) {
      this.#withoutSeatSinceMs = undefined;
      if (!isHeld && !hasAddress(this.#seats, own.addr)) await this.#take(own);
    } else if (isHeld) {
      this.#withoutSeatSinceMs ??= clock.nowMs();
      if (clock.nowMs() - this.#withoutSeatSinceMs >= RELEASE_MS) await this.#release();
    } else {
      this.#withoutSeatSinceMs = undefined;
    }
  }

  /** Whether this node should be found at its master: it has a seat, or it has waited long enough for another master. */
  #isWanted({ hasSeat, isJoined }: OwnSeat): boolean {
    const nowMs = this.#options.env.clock.nowMs();
    if (isJoined) this.#loneSinceMs = undefined;
    else this.#loneSinceMs ??= nowMs;
    if (this.#loneSinceMs === undefined) return hasSeat;
    const loneMs = nowMs - this.#loneSinceMs;
    if (this.#seats.length === 0) return loneMs >= this.#graceMs;
    return loneMs >= SILENT_MS + this.#graceMs && this.#seats.length < this.#options.seats;
  }

  async #take({ addr }: OwnSeat): Promise<void> {
    const { client, address, nodeId } = this.#options;
    if (this.#seats.length >= DISCOVERY_MASTERS_MAX_COUNT) return;
    const lease = String((await client.call('lease/grant', { TTL: LEASE_TTL_S })).ID);
    const parts = { seats: this.#seats, addr, nodeId, lease };
    const key = this.#stopped ? undefined : await takeSeat(client, address.name, parts);
    if (key === undefined || this.#stopped) {
      await client.call('lease/revoke', { ID: lease }).catch(() => {});
    } else {
      this.#lease = lease;
      this.#keepAliveLater();
    }
    this.#isStale = true;
  }

  #keepAliveLater(): void {
    this.#cancelKeepAlive = this.#options.env.clock.after(KEEP_ALIVE_MS, () => void this.#keepAlive());
  }

  async #keepAlive(): Promise<void> {
    const lease = this.#lease;
    if (lease === undefined || this.#stopped) return;
    try {
      const { TTL = 0 } = await this.#options.client.call('lease/keepalive', { ID: lease });
      if (this.#lease !== lease) return;
      if (Number(TTL) <= 0) {
        // The key has ended with the lease. That removes nobody; the next list has the node register again.
        this.#forgetLease();
        this.#askAfter(0);
        return;
      }
    } catch {
      // The lists say that etcd does not answer.
    }
    if (this.#lease === lease && !this.#stopped) this.#keepAliveLater();
  }

  #forgetLease(): void {
    this.#lease = undefined;
    this.#cancelKeepAlive?.();
  }

  async #release(): Promise<void> {
    const lease = this.#lease;
    this.#forgetLease();
    this.#withoutSeatSinceMs = undefined;
    if (lease !== undefined) await this.#options.client.call('lease/revoke', { ID: lease }).catch(() => {});
  }
}
