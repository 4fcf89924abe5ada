import { assertEqual } from '../base/assert.js';
import type { SharedClock } from '../base/concurrency/hybrid-clock.js';
import type { Environment } from '../base/environment/environment.js';
import { type Endpoint, formatEndpoint } from '../base/environment/network.js';
import { ConfigError } from '../base/errors.js';
import { isOtherLoopback, localAddressOf } from '../net/loopback.js';
import { isSameEndpoints } from './masters/masters.js';
import type { RefusedNode } from './refused-nodes.js';
import { DiscoveryServer, type MasterOwner } from './server.js';

interface EmbeddedMasterOptions {
  /** Time-to-live of a member in seconds; default 6. */
  readonly memberTtl?: number;
  /** Interval of heartbeats in seconds; default 2. */
  readonly heartbeatInterval?: number;
  /** Host at which other nodes reach this one. Unlisted masters at this host belong to this machine. */
  readonly ownHost?: string;
  /**
   * Whether the user chose `ownHost`. If so, and if it is a loopback address, other loopback addresses stand for other
   * hosts.
   */
  readonly isHostChosen?: boolean;
  /** Returns why a master must not listen at an address, see `openNodeFault`; default: it may at any. */
  readonly openFault?: (host: string) => string | undefined;
  /** The node of this process. */
  readonly owner?: MasterOwner;
  /** The clock of the node of this process; default: the masters send none. */
  readonly clock?: SharedClock | undefined;
  readonly env: Environment;
}

/** A listed address of this machine, and the address to listen on for it. */
interface OwnAddress {
  readonly endpoint: Endpoint;
  readonly listenHost: string;
}

/** The address of a master on this machine, and the master itself if this process runs it. */
interface Seat {
  readonly endpoint: Endpoint;
  readonly listenHost: string;
  isListed: boolean;
  server: DiscoveryServer | undefined;
  saidFailure: boolean;
}

/**
 * The masters that this process runs. Of all nodes on a master's machine, the one that gets the port runs it; the
 * others are clients and try to take the port when it does not answer (`tryTakeOver`).
 */
export class EmbeddedMaster {
  /** The listed addresses. */
  #listed: readonly Endpoint[];
  /** The listed addresses of this machine, and where to listen for each. */
  #ownListed: readonly OwnAddress[] = [];
  /** The intended masters as they were last given. */
  #intended: readonly Endpoint[];
  readonly #options: EmbeddedMasterOptions;
  readonly #env: Environment;
  #seats: Seat[] = [];
  /** Seats of this machine that are not listed. */
  #further: readonly Endpoint[] = [];
  #pass: Promise<void> | undefined;
  #isLooking = false;
  #stopped = false;

  /** `masters`: the listed discovery addresses. */
  constructor(masters: readonly Endpoint[], options: EmbeddedMasterOptions) {
    this.#listed = masters;
    this.#intended = masters;
    this.#options = options;
    this.#env = options.env;
    this.#env.metrics.setGaugeProvider('meshcache_discovery_head', () => Number(this.isHead));
  }

  /** Whether this process runs a master now. */
  get isHead(): boolean {
    return this.#seats.some((seat) => seat.server !== undefined);
  }

  /**
   * Resolves when every listed port of this machine is taken, by this process or another one. Throws `ConfigError` if
   * one cannot be taken for another reason.
   */
  async start(): Promise<void> {
    this.#ownListed = await this.#ownAmong(this.#listed);
    this.#seats = this.#ownListed.map((own) => ({ ...own, isListed: true, server: undefined, saidFailure: false }));
    try {
      for (const seat of this.#seats) await this.#take(seat);
    } catch (error) {
      // Other seats may have been taken already.
      await this.stop();
      throw error;
    }
  }

  /**
   * Replaces the listed addresses: runs masters at those of this machine, and stops those that have no seat any more.
   * Never rejects.
   */
  async setListed(listed: readonly Endpoint[]): Promise<void> {
    if (isSameEndpoints(listed, this.#listed)) return;
    this.#listed = listed;
    const own = await this.#ownAmong(listed);
    // Another list may have been given meanwhile.
    if (this.#listed !== listed || this.#stopped) return;
    this.#ownListed = own;
    this.#chooseFurther();
    await this.#pass;
    await this.tryTakeOver();
  }

  /** Whether the master with this id is one of this process's. */
  has(masterId: string): boolean {
    return this.#seats.some(({ server }) => server?.masterId === masterId);
  }

  /** Nodes that the masters of this process have recently refused for their settings. */
  refusedNodes(): RefusedNode[] {
    const nodes = this.#seats.flatMap(({ server }) => server?.refusedNodes() ?? []);
    return [...new Map(nodes.map((node) => [node.nodeId, node])).values()];
  }

  /**
   * Replaces the set of intended masters: runs masters at free seats of this host among them, and stops masters that
   * are no longer among them. Never rejects.
   */
  mastersChanged(masters: readonly Endpoint[]): Promise<void> {
    this.#intended = masters;
    this.#chooseFurther();
    const isAsBefore = isSameEndpoints(
      this.#further,
      this.#seats.flatMap((seat) => (seat.isListed ? [] : seat.endpoint)),
    );
    return isAsBefore ? Promise.resolve() : this.tryTakeOver();
  }

  /**
   * Tries once to take the free seats of this machine. It is called again whenever a master does not answer. Never
   * rejects.
   */
  tryTakeOver(): Promise<void> {
    void this.#lookAgain();
    this.#pass ??= this.#takeFree().finally(() => {
      this.#pass = undefined;
      // The intended masters may have changed meanwhile.
      if (!this.#stopped) void this.mastersChanged(this.#intended);
    });
    return this.#pass;
  }

  /** Stops all masters of this process. Idempotent. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#pass;
    const servers = this.#seats.flatMap((seat) => seat.server ?? []);
    this.#seats = [];
    await Promise.all(servers.map((server) => server.stop()));
  }

  #chooseFurther(): void {
    const listed = new Set(this.#listed.map(formatEndpoint));
    const { ownHost } = this.#options;
    this.#further = this.#intended.filter((one) => one.host === ownHost && !listed.has(formatEndpoint(one)));
  }

  /** Returns the addresses that belong to this machine. */
  async #ownAmong(endpoints: readonly Endpoint[]): Promise<OwnAddress[]> {
    const { ownHost, isHostChosen } = this.#options;
    const own: OwnAddress[] = [];
    for (const endpoint of endpoints) {
      const listenHost = await localAddressOf(endpoint.host, this.#env.host);
      if (listenHost === undefined || (isHostChosen && isOtherLoopback(listenHost, ownHost))) continue;
      own.push({ endpoint, listenHost });
    }
    return own;
  }

  /**
   * Finds listed addresses that have become this machine's, such as that of a link that had no carrier when the node
   * started, or of a name that was not known yet. Nothing waits for it, because resolving names may take long. Never
   * rejects.
   */
  async #lookAgain(): Promise<void> {
    if (this.#isLooking || this.#ownListed.length === this.#listed.length) return;
    this.#isLooking = true;
    const listed = this.#listed;
    const own = await this.#ownAmong(listed);
    this.#isLooking = false;
    // An address that is gone keeps its seat: it may come back, and members of the master may still reach it.
    const known = new Set(this.#ownListed.map(({ endpoint }) => formatEndpoint(endpoint)));
    const found = own.filter(({ endpoint }) => !known.has(formatEndpoint(endpoint)));
    if (found.length === 0 || this.#listed !== listed || this.#stopped) return;
    this.#ownListed = [...this.#ownListed, ...found];
    await this.#pass;
    await this.tryTakeOver();
  }

  async #takeFree(): Promise<void> {
    await this.#arrangeSeats();
    for (const seat of this.#seats) {
      if (seat.server !== undefined || this.#stopped) continue;
      try {
        await this.#take(seat);
      } catch (error) {
        // Logged once, because clients try again as long as there is no master.
        if (!seat.saidFailure) {
          const fields = { address: formatEndpoint(seat.endpoint), error: (error as Error).message };
          this.#env.log.log('warn', 'cannot take over as discovery master', fields);
        }
        seat.saidFailure = true;
      }
    }
  }

  /** Adds and removes seats to match the intended masters. */
  async #arrangeSeats(): Promise<void> {
    if (this.#stopped) return;
    const further = this.#further.map((endpoint) => ({ endpoint, listenHost: endpoint.host, isListed: false }));
    const listed = this.#ownListed.map((own) => ({ ...own, isListed: true }));
    const wanted = new Map([...further, ...listed].map((one) => [formatEndpoint(one.endpoint), one]));
    const given: Seat[] = [];
    this.#seats = this.#seats.filter((seat) => {
      const name = formatEndpoint(seat.endpoint);
      const one = wanted.get(name);
      wanted.delete(name);
      if (one === undefined) given.push(seat);
      else seat.isListed = one.isListed;
      return one !== undefined;
    });
    for (const one of wanted.values()) this.#seats.push({ ...one, server: undefined, saidFailure: false });
    for (const { endpoint, server } of given) {
      if (server === undefined) continue;
      this.#env.log.log('info', 'discovery master stopped on this node', { address: formatEndpoint(endpoint) });
      await server.stop();
    }
  }

  async #take(seat: Seat): Promise<void> {
    const { memberTtl, heartbeatInterval, owner, clock, openFault } = this.#options;
    const fault = openFault?.(seat.listenHost);
    if (fault !== undefined) throw new ConfigError(`configuration key "discovery_addr": ${fault}`);
    const server = new DiscoveryServer(seat.listenHost, seat.endpoint.port, {
      ...(memberTtl === undefined ? {} : { memberTtl }),
      ...(heartbeatInterval === undefined ? {} : { heartbeatInterval }),
      ...(owner === undefined ? {} : { owner }),
      clock,
      env: this.#env,
    });
    try {
      await server.start();
    } catch (error) {
      if (isPortTaken(error)) return;
      throw error;
    }
    seat.server = server;
    this.#env.log.log('info', 'discovery master started on this node', { address: formatEndpoint(seat.endpoint) });
    if (this.#stopped) await server.stop();
  }

  /** @internal Throws `InvariantError` unless every address has one seat and every master is consistent. */
  verify(): void {
    const addresses = new Set(this.#seats.map(({ endpoint }) => formatEndpoint(endpoint)));
    assertEqual('embedded master: seats', this.#seats.length, addresses.size);
    for (const { server } of this.#seats) server?.verify();
  }
}

function isPortTaken(error: unknown): boolean {
  return error instanceof ConfigError && (error.cause as NodeJS.ErrnoException | undefined)?.code === 'EADDRINUSE';
}
