import { pauseAfter } from '../../base/concurrency/backoff.js';
import { within } from '../../base/environment/clock.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { DISCOVERY_LEAVE_TIMEOUT_MS, DISCOVERY_MASTERS_MAX_COUNT } from '../../base/limits.js';
import { type DiscoveryAddress, formatDiscoveryAddress } from '../../base/settings/discovery-address.js';
import type { AddressSource, OwnSeat, SourceListener } from './address-source.js';
import {
  afterEvents,
  type EtcdClient,
  type EtcdObject,
  type EtcdSeats,
  freeKey,
  hasAddress,
  readSeats,
  seatRange,
  takeSeat,
} from './etcd-client.js';

/**
 * Pause between two lists while this node has no master, or a seat and no key of its own. The watch reports changes; the
 * list shows that etcd answers.
 */
const URGENT_MS = 5_000;
/** Pause between two lists of a node that has a key or wants one. A list finds what a watch may have missed. */
const MASTER_INTERVAL_MS = 30_000;
/** Pause between two lists of any other node. */
const INTERVAL_MS = 300_000;
/** Pause after a first failure. It doubles with each further one, up to a longest pause. */
const RETRY_MS = 1_000;
/** Longest pause after failures of a node that has no master, or that others wait for. */
const RETRY_PRESSING_MAX_MS = 2_000;
/** Longest pause after failures of any other node. */
const RETRY_MAX_MS = 30_000;
/** Longest time until a node that nobody waits for begins to watch again after its watch has ended. */
const REWATCH_MS = 10_000;
/** Time-to-live of leases: a key ends if its node does not keep its lease alive for that long. */
const LEASE_TTL_S = 10;
/** Pause between two calls that keep a lease alive. */
const KEEP_ALIVE_MS = 3_000;
/** Time for which a seat is held before it is registered beside others, because seats move while nodes join. */
const SETTLE_MS = 2_000;
/** Time for which a key is kept without a seat, because seats move while nodes join. */
const RELEASE_MS = 10_000;
/** Longest time after which a node without a master registers its own if none is registered; chosen at random. */
const FOUND_MS = 1_000;
/** Additional time if masters are registered and none of them answers. */
const SILENT_MS = 4_000;

interface EtcdSourceOptions {
  readonly address: Extract<DiscoveryAddress, { readonly kind: 'etcd' }>;
  readonly client: EtcdClient;
  /** Number of registered masters below which a node without a master may register its own. */
  readonly seats: number;
  readonly nodeId: string;
  readonly env: Environment;
}

/**
 * Addresses from etcd, where each node that runs a master registers it with a lease. All nodes list the keys once and
 * watch them; the changes that a watch reports are applied without another list. The number of requests thus depends on
 * how many masters and starts of nodes there are, and not on how many nodes or changes.
 */
export class EtcdSource implements AddressSource {
  readonly name: string;
  readonly #options: EtcdSourceOptions;
  #listener: SourceListener | undefined;
  #isUrgent = false;
  #own: OwnSeat | undefined;
  #known: EtcdSeats = { seats: [], foreign: [], revision: 0 };
  #isAsking = false;
  /** Whether something has changed since the list was asked for. */
  #isStale = false;
  #cancelAsk: (() => void) | undefined;
  #endWatch: (() => void) | undefined;
  /** Number of lists that have failed since the last one that was answered. */
  #failures = 0;
  /** Time since which lists are answered; undefined: the last one was not. */
  #answersSinceMs: number | undefined;
  /** This node's lease, while it has one. */
  #lease: string | undefined;
  #cancelKeepAlive: (() => void) | undefined;
  /** Time since which this node has a seat; undefined: it has none. */
  #seatSinceMs: number | undefined;
  /** Time since which this node has a key without a seat; undefined: that is not so. */
  #withoutSeatSinceMs: number | undefined;
  /** Time since which this node has been without a master; undefined: it has one. */
  #loneSinceMs: number | undefined;
  readonly #graceMs: number;
  #stopped = false;

  constructor(options: EtcdSourceOptions) {
    this.#options = options;
    this.name = formatDiscoveryAddress(options.address);
    this.#graceMs = FOUND_MS * this.#between(0.2, 1);
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
    const before = this.#own;
    this.#own = own;
    if (own.hasSeat === before?.hasSeat && own.isJoined === before.isJoined) return;
    this.#note(own);
    if (this.#listener !== undefined) this.#reconsider();
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
    this.#cancelAsk?.();
    this.#isAsking = true;
    this.#isStale = false;
    let isListed = false;
    try {
      const known = await readSeats(this.#options.client, this.#options.address.name);
      if (this.#stopped) return;
      isListed = true;
      this.#listed(known);
      await this.#register();
      this.#failures = 0;
      this.#listener?.onRegistered(undefined);
    } catch (error) {
      if (this.#stopped) return;
      this.#failures++;
      const { message } = error as Error;
      if (isListed) this.#listener?.onRegistered(message);
      else this.#silent(message);
    } finally {
      this.#isAsking = false;
    }
    this.#askAfter(this.#pauseMs());
  }

  /** Takes a list, and watches from there on. */
  #listed(known: EtcdSeats): void {
    // A list older than what the watch has reported was overtaken by it, or etcd has lost data. A watch from here on
    // shows which.
    if (known.revision < this.#known.revision) this.#dropWatch();
    this.#known = known;
    this.#answersSinceMs ??= this.#nowMs;
    this.#watch();
    this.#listener?.onFound(known.seats.map(({ endpoint }) => endpoint));
  }

  /** Reports that etcd does not answer. The watch ends, because one on a silent server reports nothing. */
  #silent(reason: string): void {
    this.#dropWatch();
    this.#answersSinceMs = undefined;
    this.#listener?.onFailure(reason);
  }

  #askAfter(delayMs: number): void {
    this.#cancelAsk?.();
    if (!this.#stopped) this.#cancelAsk = this.#options.env.clock.after(delayMs, () => void this.#ask());
  }

  /** Whether the cluster, or this node, waits for what etcd says. */
  get #isPressing(): boolean {
    return this.#isUrgent || this.#lease !== undefined || this.#own?.hasSeat === true;
  }

  /** The pause after a list. It varies at random, so that nodes that begin together do not keep asking together. */
  #pauseMs(): number {
    if (this.#isStale) return 0;
    if (this.#failures > 0) {
      const maxMs = this.#isPressing ? RETRY_PRESSING_MAX_MS : RETRY_MAX_MS;
      return pauseAfter(this.#failures, { minMs: RETRY_MS, maxMs }) * this.#between(0.5, 1);
    }
    const dueInMs = (this.#dueMs() ?? 0) - this.#nowMs;
    if (dueInMs > 0) return dueInMs;
    // Without a lease, the key of a node with a seat is that of an earlier start, whose end a watch may miss.
    const isBorrowed = this.#own?.hasSeat === true && this.#lease === undefined;
    if (this.#isUrgent || isBorrowed) return URGENT_MS * this.#between(0.8, 1);
    return (this.#isPressing ? MASTER_INTERVAL_MS : INTERVAL_MS) * this.#between(0.8, 1);
  }

  /**
   * Plans the next list anew. If the own key is due to be written or removed, asks for the list at once, because the
   * decision is made from a list.
   */
  #reconsider(): void {
    if ((this.#dueMs() ?? Number.POSITIVE_INFINITY) <= this.#nowMs) void this.#ask();
    else if (!this.#isAsking) this.#askAfter(this.#pauseMs());
  }

  /** Time at which the own key is to be written or removed unless something changes before; undefined: never. */
  #dueMs(): number | undefined {
    if (this.#withoutSeatSinceMs !== undefined) return this.#withoutSeatSinceMs + RELEASE_MS;
    const isRegistered = this.#own === undefined || hasAddress(this.#known.seats, this.#own.addr);
    return isRegistered ? undefined : this.#wantedAtMs();
  }

  /** Waits for changes after the list, unless a watch is under way. */
  #watch(): void {
    if (this.#endWatch !== undefined) return;
    const { client, address } = this.#options;
    const start_revision = String(this.#known.revision + 1);
    const end = client.stream(
      'watch',
      { create_request: { ...seatRange(address.name), start_revision } },
      {
        onMessage: (message) => {
          const { events, canceled } = (message.result ?? {}) as EtcdObject;
          // The revision may be gone, or this user may not read the keys any more: the next list shows which.
          if (canceled === true) this.#watchEnded(end);
          else if (events !== undefined) this.#heard(events);
        },
        onEnd: () => this.#watchEnded(end),
      },
    );
    this.#endWatch = end;
  }

  #heard(events: unknown): void {
    const known = afterEvents(this.#known, events);
    if (this.#stopped || known === this.#known) return;
    this.#known = known;
    this.#listener?.onFound(known.seats.map(({ endpoint }) => endpoint));
    this.#reconsider();
  }

  #watchEnded(end: () => void): void {
    if (this.#stopped || this.#endWatch !== end) return;
    this.#dropWatch();
    this.#askAfter(this.#isPressing ? RETRY_MS * this.#between(0.5, 1) : REWATCH_MS * this.#between(0, 1));
  }

  #dropWatch(): void {
    const end = this.#endWatch;
    this.#endWatch = undefined;
    end?.();
  }

  /** Brings the own key in line with whether this node has a seat. */
  async #register(): Promise<void> {
    const own = this.#own;
    if (own === undefined) return;
    this.#note(own);
    const isHeld = this.#lease !== undefined && this.#known.seats.some(({ lease }) => lease === this.#lease);
    // If the list does not have the own key, the key is gone, whatever became of the lease.
    if (this.#lease !== undefined && !isHeld) this.#forgetLease();
    const { seats } = this.#known;
    if (isHeld) {
      if (this.#nowMs - (this.#withoutSeatSinceMs ?? this.#nowMs) >= RELEASE_MS) await this.#release();
    } else if (this.#nowMs >= (this.#wantedAtMs() ?? Number.POSITIVE_INFINITY) && !hasAddress(seats, own.addr)) {
      await this.#take(own);
    }
  }

  /** Notes since when the own state has lasted. A node with a key keeps it while it has a seat, or has no master. */
  #note({ hasSeat, isJoined }: OwnSeat): void {
    const since = (isSo: boolean, beforeMs: number | undefined) => (isSo ? (beforeMs ?? this.#nowMs) : undefined);
    this.#loneSinceMs = since(!isJoined, this.#loneSinceMs);
    this.#seatSinceMs = since(isJoined && hasSeat, this.#seatSinceMs);
    const isReleasing = this.#lease !== undefined && isJoined && !hasSeat;
    this.#withoutSeatSinceMs = since(isReleasing, this.#withoutSeatSinceMs);
  }

  /**
   * Time from which on this node's master should be registered: the node has a seat, or has waited long enough for
   * another master. Time in which etcd did not answer does not count, or all nodes would register when it is back.
   * Undefined: never.
   */
  #wantedAtMs(): number | undefined {
    const { seats } = this.#known;
    if (this.#seatSinceMs !== undefined) return seats.length === 0 ? this.#seatSinceMs : this.#seatSinceMs + SETTLE_MS;
    if (this.#loneSinceMs === undefined) return undefined;
    const loneSinceMs = Math.max(this.#loneSinceMs, this.#answersSinceMs ?? 0) + this.#graceMs;
    if (seats.length === 0) return loneSinceMs;
    return seats.length < this.#options.seats ? loneSinceMs + SILENT_MS : undefined;
  }

  async #take({ addr }: OwnSeat): Promise<void> {
    const { client, address, nodeId } = this.#options;
    const { seats, foreign } = this.#known;
    if (seats.length >= DISCOVERY_MASTERS_MAX_COUNT) return;
    const key = freeKey(address.name, this.#known);
    if (key === undefined) {
      const first = foreign[0];
      throw new Error(
        `no key is free for a master: ${foreign.length} of them name none, such as ${first}; remove these`,
      );
    }
    const lease = String((await client.call('lease/grant', { TTL: LEASE_TTL_S })).ID);
    const isTaken = !this.#stopped && (await takeSeat(client, key, { addr, nodeId, lease }));
    if (!isTaken || this.#stopped) {
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
        // The key has ended with the lease. No member is removed by that; after the next list the node registers again.
        this.#forgetLease();
        this.#askAfter(0);
        return;
      }
    } catch {
      // A list will report that etcd does not answer.
    }
    if (this.#lease === lease && !this.#stopped) this.#keepAliveLater();
  }

  #forgetLease(): void {
    this.#lease = undefined;
    this.#withoutSeatSinceMs = undefined;
    this.#cancelKeepAlive?.();
  }

  async #release(): Promise<void> {
    const lease = this.#lease;
    this.#forgetLease();
    if (lease !== undefined) await this.#options.client.call('lease/revoke', { ID: lease }).catch(() => {});
  }

  get #nowMs(): number {
    return this.#options.env.clock.nowMs();
  }

  /** A random number between `least` and `most`. */
  #between(least: number, most: number): number {
    return least + ((most - least) * this.#options.env.random.u32()) / 2 ** 32;
  }
}
