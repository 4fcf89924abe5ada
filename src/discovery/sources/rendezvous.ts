import type { Environment } from '../../base/environment/environment.js';
import { type Endpoint, formatEndpoint } from '../../base/environment/network.js';
import { DISCOVERY_LOG_INTERVAL_MS } from '../../base/limits.js';
import { isSameEndpoints } from '../masters/masters.js';
import { type AddressSource, type JoinedState, ListedAddresses, type OwnSeat } from './address-source.js';
import type { OpenedSource } from './open-source.js';

/** Time between two checks of whether this node has a master. */
const TICK_MS = 1_000;
const ALONE = { isJoined: false, isHead: false, hasSeat: false, live: () => new Set<string>() };

interface RendezvousOptions extends OpenedSource {
  readonly env: Environment;
}

/** This node's part in the cluster, as far as it decides which addresses are tried. */
interface Joining {
  /** Returns the present state of the cluster, without the time. */
  state(): Omit<JoinedState, 'nowMs'> & Pick<OwnSeat, 'hasSeat'>;
  /** `host:port` of the master that this node's host has when it has a seat. */
  readonly ownAddr: string;
  /** Called when the listed addresses change. */
  onListed(listed: readonly Endpoint[]): void;
}

/** The state of a source, for operators. */
export interface SourceState {
  /** The source as `discovery_addr` names it. */
  readonly source: string;
  /** Number of addresses in its last answer that had any. */
  readonly found: number;
  /** Milliseconds since its last answer that could be used; undefined: there was none. */
  readonly answeredAgoMs: number | undefined;
  /** Why the source does not answer, or does not accept this node's own master; undefined: neither is the case. */
  readonly failure: string | undefined;
}

/** Follows a source of addresses, and keeps the list of those where nodes meet. */
export class Rendezvous {
  readonly #source: AddressSource;
  readonly #env: Environment;
  readonly #addresses: ListedAddresses;
  #joining: Joining | undefined;
  #listed: readonly Endpoint[] = [];
  #answeredMs: number | undefined;
  #found = 0;
  #failure: string | undefined;
  #saidFailureMs: number | undefined;
  #unregistered: string | undefined;
  #saidUnregisteredMs: number | undefined;
  #cancelTick: (() => void) | undefined;
  #onFirst: (() => void) | undefined;
  #isFollowing = false;
  #stopped = false;

  constructor({ source, env, ...listing }: RendezvousOptions) {
    this.#source = source;
    this.#env = env;
    this.#addresses = new ListedAddresses(listing);
    env.metrics.setGaugeProvider('meshcache_discovery_source_answers', () =>
      Number(this.#answeredMs !== undefined && this.#failure === undefined),
    );
  }

  /** An address of the source itself; undefined: it has none. */
  get server(): Endpoint | undefined {
    return this.#source.server;
  }

  /** Begins to ask. Resolves with the first listed addresses, or with none after `timeoutMs`. */
  async open(timeoutMs: number): Promise<readonly Endpoint[]> {
    this.#source.setUrgent(true);
    const first = new Promise<void>((resolve) => {
      const cancel = this.#env.clock.after(timeoutMs, resolve, { keepAlive: true });
      this.#onFirst = () => {
        cancel();
        resolve();
      };
    });
    this.#source.start({
      onFound: (endpoints) => this.#answered(endpoints),
      onFailure: (reason) => this.#failed(reason),
      onRegistered: (failure) => this.#registered(failure),
    });
    await first;
    return this.#listed;
  }

  /** Tells `joining` which addresses are listed, from now on. */
  follow(joining: Joining): void {
    this.#joining = joining;
    this.#tick();
  }

  state(): SourceState {
    const answeredAgoMs = this.#answeredMs === undefined ? undefined : this.#env.clock.nowMs() - this.#answeredMs;
    const failure = this.#failure ?? this.#unregistered;
    return { source: this.#source.name, found: this.#found, answeredAgoMs, failure };
  }

  /** Stops following the source. Idempotent. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancelTick?.();
    this.#onFirst?.();
    await this.#source.stop();
  }

  #answered(endpoints: readonly Endpoint[]): void {
    if (this.#stopped) return;
    if (this.#saidFailureMs !== undefined) {
      this.#env.log.log('warn', 'discovery source answers again', { source: this.#source.name });
    }
    this.#saidFailureMs = undefined;
    this.#failure = undefined;
    this.#answeredMs = this.#env.clock.nowMs();
    this.#found = endpoints.length;
    this.#addresses.answered(endpoints);
    this.#update();
    this.#onFirst?.();
  }

  #failed(reason: string): void {
    if (this.#stopped) return;
    this.#failure = reason;
    const nowMs = this.#env.clock.nowMs();
    if (this.#saidFailureMs !== undefined && nowMs - this.#saidFailureMs < DISCOVERY_LOG_INTERVAL_MS) return;
    this.#saidFailureMs = nowMs;
    const message = 'discovery source does not answer; this node keeps the addresses that it knows, and asks again';
    this.#env.log.log('warn', message, { source: this.#source.name, addresses: this.#found, reason });
  }

  #registered(failure: string | undefined): void {
    if (this.#stopped) return;
    const nowMs = this.#env.clock.nowMs();
    const isSaid =
      this.#saidUnregisteredMs !== undefined && nowMs - this.#saidUnregisteredMs < DISCOVERY_LOG_INTERVAL_MS;
    this.#unregistered = failure;
    if (failure === undefined || isSaid) return;
    this.#saidUnregisteredMs = nowMs;
    const message = 'discovery source does not take the address of the master on this node; it is offered again';
    this.#env.log.log('warn', message, { source: this.#source.name, reason: failure });
  }

  #tick(): void {
    if (this.#stopped) return;
    this.#update();
    this.#cancelTick = this.#env.clock.after(TICK_MS, () => this.#tick());
  }

  #update(): void {
    const state = this.#joining?.state() ?? ALONE;
    const { isJoined, hasSeat } = state;
    this.#source.setUrgent(!isJoined);
    if (this.#joining !== undefined) this.#source.setOwn?.({ addr: this.#joining.ownAddr, hasSeat, isJoined });
    const listed = this.#addresses.listed({ nowMs: this.#env.clock.nowMs(), ...state });
    if (this.#isFollowing === (this.#joining !== undefined) && isSameEndpoints(listed, this.#listed)) return;
    this.#isFollowing = this.#joining !== undefined;
    this.#listed = listed;
    this.#joining?.onListed(listed);
  }

  /** @internal Throws `InvariantError` unless every listed address is listed once. */
  verify(): void {
    this.#addresses.verify();
    const names = new Set(this.#listed.map(formatEndpoint));
    if (names.size !== this.#listed.length) throw new Error(`rendezvous: listed twice: ${[...names].join()}`);
  }
}
