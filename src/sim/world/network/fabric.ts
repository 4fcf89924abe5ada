import { type ConnectOptions, isEveryAddress, type ListenTarget } from '../../../base/environment/network.js';
import type { EventLog } from '../kernel/event-log.js';
import type { Scheduler } from '../kernel/scheduler.js';
import { forkedRandom } from '../kernel/seeds.js';
import { systemError } from '../kernel/system-error.js';
import { HostNetwork, type NetworkProcess } from './host-network.js';
import { Link, type LinkTrouble, type NetworkShape } from './link.js';
import { SimConnection } from './sim-connection.js';
import type { SimServer } from './sim-server.js';
import { Stream, type StreamParts } from './stream.js';

/** Milliseconds before the first retry of a connection request; each further wait is twice as long. */
const CONNECT_RETRY_MS = 1000;
const CONNECT_ATTEMPTS_COUNT = 7;
/** Milliseconds of silence after which Linux probes a peer by default. */
const KEEP_ALIVE_DEFAULT_MS = 7_200_000;
const LOOPBACK = '127.0.0.1';
const HOST_INDEX_LIMIT = 2 ** 20;

interface FabricParts {
  readonly scheduler: Scheduler;
  readonly log: EventLog;
  readonly seed: number;
  readonly shape: NetworkShape;
}

/** Trouble of all links from some hosts to others. */
interface LinkRule {
  readonly from: ReadonlySet<HostNetwork>;
  readonly to: ReadonlySet<HostNetwork>;
  readonly trouble: LinkTrouble;
}

interface Dialing {
  readonly connection: SimConnection;
  readonly there: Link;
  readonly back: Link;
  readonly address: string;
  readonly port: number;
  /** The accepting side, once the request has arrived. */
  accepted: { readonly connection: SimConnection; readonly outgoing: Stream; readonly incoming: Stream } | undefined;
}

/** The network between all hosts of a world: their addresses, the links, and how connections are established. */
export class Fabric {
  readonly scheduler: Scheduler;
  readonly log: EventLog;
  readonly shape: NetworkShape;
  readonly #seed: number;
  readonly #hosts = new Map<string, HostNetwork>();
  readonly #names = new Map<string, HostNetwork>();
  readonly #links = new Map<number, Link>();
  readonly #rules = new Set<LinkRule>();

  constructor({ scheduler, log, seed, shape }: FabricParts) {
    this.scheduler = scheduler;
    this.log = log;
    this.shape = shape;
    this.#seed = seed;
  }

  /** Adds a host. Throws if another host has its name or one of its addresses. */
  addHost(identity: Pick<HostNetwork, 'index' | 'name' | 'rack' | 'addresses'>, bytesPerS?: number): HostNetwork {
    const rate = bytesPerS ?? this.shape.bytesPerS;
    const random = forkedRandom(this.#seed, 'network', identity.index);
    const host = new HostNetwork({ ...identity, random }, { up: rate, down: rate });
    for (const address of host.addresses) {
      if (this.#hosts.has(address)) throw new Error(`two hosts with the address ${address}`);
      this.#hosts.set(address, host);
    }
    if (this.#names.has(host.name)) throw new Error(`two hosts with the name ${host.name}`);
    this.#names.set(host.name, host);
    return host;
  }

  /** The addresses for a host name or an address, as a process on `host` sees them. */
  resolve(name: string, host: HostNetwork): readonly string[] {
    if (name === 'localhost') return [LOOPBACK];
    if (isAddress(name)) return [name];
    return this.#names.get(name)?.addresses ?? (name === host.name ? host.addresses : []);
  }

  link(from: HostNetwork, to: HostNetwork): Link {
    const key = from.index * HOST_INDEX_LIMIT + to.index;
    let link = this.#links.get(key);
    if (link === undefined) {
      link = new Link(from, to, this.shape);
      link.setTroubles(this.#troublesOf(link));
      this.#links.set(key, link);
    }
    return link;
  }

  /** Adds a rule; the returned function removes it. */
  addRule(rule: LinkRule): () => void {
    this.#rules.add(rule);
    this.#rulesChanged(rule);
    if (rule.trouble.isBlocked === true) {
      for (const host of rule.from) this.#probe(host, (connection) => rule.to.has(connection.network));
    }
    return () => {
      if (this.#rules.delete(rule)) this.#rulesChanged(rule);
    };
  }

  /** Lets the peers of a host that falls silent probe it by keep-alive. Must precede the end of its connections. */
  probeSilent(host: HostNetwork): void {
    this.#probe(host, () => true);
  }

  /** Makes a server listen; returns its address, or the error. */
  bind(server: SimServer, target: ListenTarget): { readonly address: string; readonly port: number } | string | Error {
    const { network, files } = server.process;
    if ('path' in target) {
      const error = files.bindSocket(target.path, server);
      return error ?? target.path;
    }
    const [address] = this.resolve(target.host, network);
    const text = `listen %: ${target.host}:${target.port}`;
    const fails = (code: string): Error => systemError(code, text.replace('%', code), { syscall: 'listen', ...target });
    if (address === undefined) return fails('ENOTFOUND');
    if (!isEveryAddress(address) && !isLoopback(address) && !network.addresses.includes(address)) {
      return fails('EADDRNOTAVAIL');
    }
    const port = target.port === 0 ? network.freePort() : target.port;
    const others = network.servers.get(port) ?? [];
    const isTaken = others.some(
      ({ boundAddress = '' }) => boundAddress === address || isEveryAddress(boundAddress) || isEveryAddress(address),
    );
    if (isTaken) return fails('EADDRINUSE');
    network.servers.set(port, [...others, server]);
    return { address, port };
  }

  unbind(server: SimServer, bound: { readonly port: number } | string): void {
    const { network, files } = server.process;
    if (typeof bound === 'string') {
      files.unbindSocket(bound, server);
      return;
    }
    const rest = (network.servers.get(bound.port) ?? []).filter((other) => other !== server);
    if (rest.length === 0) network.servers.delete(bound.port);
    else network.servers.set(bound.port, rest);
  }

  connect(process: NetworkProcess, options: ConnectOptions): SimConnection {
    return 'path' in options ? this.#connectToPath(process, options) : this.#connectToPort(process, options);
  }

  /** Sends a reset for a receiver whose kernel does not know the connection. */
  answerReset({ back, sender }: StreamParts): void {
    if (!back.isOpen) return;
    this.scheduler.schedule(back.arrivalOfSmallMs(this.scheduler.nowMs), {
      kind: 'reset',
      owner: undefined,
      detail: back.to.index,
      run: () => {
        if (back.to.isUp && !sender.isGone) sender.wasReset();
      },
    });
  }

  #connectToPath(process: NetworkProcess, options: ConnectOptions & { readonly path: string }): SimConnection {
    const { network } = process;
    const connection = this.#newConnection(process, undefined, options);
    const link = this.link(network, network);
    process.schedule('connect', () => {
      if (connection.destroyed) return;
      const server = process.files.socketAt(options.path);
      if (server instanceof Error) {
        connection.failedToConnect(server);
        return;
      }
      const dialing = { connection, there: link, back: link, address: '', port: 0, accepted: undefined };
      // Only simulated servers bind paths.
      this.#accept(dialing, server as SimServer, undefined);
      this.#establish(dialing);
    });
    return connection;
  }

  #connectToPort(
    process: NetworkProcess,
    options: ConnectOptions & { readonly host: string; readonly port: number },
  ): SimConnection {
    const { network } = process;
    const { host, port } = options;
    const [address] = this.resolve(host, network);
    const connection = this.#newConnection(process, { address: address ?? host, port }, options);
    const isOwn =
      address !== undefined && (isLoopback(address) || isEveryAddress(address) || network.addresses.includes(address));
    const target = isOwn ? network : this.#hosts.get(address ?? '');
    process.schedule('connect', () => {
      if (connection.destroyed) return;
      if (address === undefined) {
        const text = `getaddrinfo ENOTFOUND ${host}`;
        connection.failedToConnect(systemError('ENOTFOUND', text, { syscall: 'getaddrinfo' }));
      } else if (target === undefined) {
        // No host has this address, so nothing answers.
        this.#retryLater({ connection, address, port }, CONNECT_ATTEMPTS_COUNT - 1, () => {});
      } else {
        const dialing = { connection, there: this.link(network, target), back: this.link(target, network) };
        this.#request({ ...dialing, address, port, accepted: undefined }, 0);
      }
    });
    return connection;
  }

  #newConnection(
    process: NetworkProcess,
    remote: { address: string; port: number } | undefined,
    options: ConnectOptions,
  ): SimConnection {
    const { keepAlive, keepAliveInitialDelay, onread } = options;
    return new SimConnection({
      process,
      network: process.network,
      remote,
      onread,
      keepAliveMs: keepAlive ? (keepAliveInitialDelay ?? KEEP_ALIVE_DEFAULT_MS) : undefined,
      splitProbability: this.shape.splitProbability,
    });
  }

  /** Sends a request for a connection; `attempt` counts from 0. */
  #request(dialing: Dialing, attempt: number): void {
    const { connection, there, back, address, port } = dialing;
    if (connection.destroyed || connection.outgoing !== undefined) return;
    const again = (): void => this.#retryLater(dialing, attempt, () => this.#request(dialing, attempt + 1));
    if (!there.isOpen) {
      again();
      return;
    }
    this.scheduler.schedule(there.arrivalOfSmallMs(this.scheduler.nowMs), {
      kind: 'request',
      owner: undefined,
      detail: port,
      run: () => {
        const { to: network } = there;
        if (!network.isUp || !back.isOpen) {
          again();
          return;
        }
        const server = network.isRefusing ? undefined : network.serverAt(address, port);
        if (dialing.accepted === undefined && server === undefined) {
          this.#answer(dialing, () => this.#refuse(dialing));
        } else if (dialing.accepted === undefined && server?.isBacklogFull === true) {
          again();
        } else {
          if (dialing.accepted === undefined) this.#accept(dialing, server as SimServer, connection);
          this.#answer(dialing, () => this.#establish(dialing));
        }
      },
    });
  }

  #retryLater(
    { connection, address, port }: Pick<Dialing, 'connection' | 'address' | 'port'>,
    attempt: number,
    retry: () => void,
  ): void {
    const waitsMs = CONNECT_RETRY_MS * 2 ** attempt;
    const isLast = attempt + 1 >= CONNECT_ATTEMPTS_COUNT;
    connection.process.schedule(
      'connect',
      () => {
        if (connection.destroyed) return;
        const more = { syscall: 'connect', address, port };
        if (isLast) connection.failedToConnect(systemError('ETIMEDOUT', `connect ETIMEDOUT ${address}:${port}`, more));
        else retry();
      },
      waitsMs,
    );
  }

  /** Delivers the other host's answer after the latency of the way back, if it can. */
  #answer({ back, connection }: Dialing, then: () => void): void {
    const atMs = back.arrivalOfSmallMs(this.scheduler.nowMs);
    this.scheduler.schedule(atMs, {
      kind: 'answer',
      owner: undefined,
      detail: back.to.index,
      run: () => {
        if (back.to.isUp && connection.process.isAlive) then();
      },
    });
  }

  #refuse({ connection, address, port }: Dialing): void {
    connection.process.enter('connect', () => {
      const more = { syscall: 'connect', address, port };
      connection.failedToConnect(systemError('ECONNREFUSED', `connect ECONNREFUSED ${address}:${port}`, more));
    });
  }

  /** Creates the accepting side, whose data arrives after the answer. */
  #accept(dialing: Dialing, server: SimServer, remote: SimConnection | undefined): void {
    const { connection, there, back } = dialing;
    const { keepAlive, keepAliveInitialDelay } = server.options;
    const from = there.from === there.to ? LOOPBACK : there.from.address;
    const accepted = new SimConnection({
      process: server.process,
      network: there.to,
      remote: remote === undefined ? undefined : { address: from, port: there.from.freePort() },
      keepAliveMs: keepAlive ? (keepAliveInitialDelay ?? KEEP_ALIVE_DEFAULT_MS) : undefined,
      splitProbability: this.shape.splitProbability,
    });
    const { plane } = server;
    const parts = { fabric: this, plane };
    const outgoing = new Stream({ ...parts, link: there, back, sender: connection, receiver: accepted, scale: 1 });
    const scale = plane === 'data' ? this.shape.bytesScale : 1;
    const incoming = new Stream({ ...parts, link: back, back: there, sender: accepted, receiver: connection, scale });
    dialing.accepted = { connection: accepted, outgoing, incoming };
    accepted.established(incoming, outgoing);
    incoming.beginAt(this.scheduler.nowMs + back.latencyMs);
    server.accept(accepted);
  }

  #establish(dialing: Dialing): void {
    const { connection, accepted } = dialing;
    if (accepted === undefined || connection.outgoing !== undefined) return;
    if (connection.destroyed) {
      accepted.outgoing.reset();
      return;
    }
    connection.established(accepted.outgoing, accepted.incoming);
    connection.process.enter('connected', () => connection.opened('connect'));
  }

  /** Lets both ends of these connections of a host check by keep-alive whether the peer can be reached. */
  #probe(host: HostNetwork, isConcerned: (peer: SimConnection) => boolean): void {
    for (const connection of host.connections) {
      const { peer } = connection;
      if (peer === undefined || !isConcerned(peer)) continue;
      for (const end of [peer, connection]) if (end.keepAliveMs !== undefined) this.#probeLater(end, 0);
    }
  }

  #probeLater(connection: SimConnection, misses: number): void {
    const waitsMs = misses === 0 ? (connection.keepAliveMs as number) : 1000;
    this.scheduler.schedule(this.scheduler.nowMs + waitsMs, {
      kind: 'probe',
      owner: undefined,
      detail: misses,
      run: () => {
        const link = connection.outgoing?.link;
        if (connection.destroyed || link === undefined || !connection.network.isUp) return;
        const back = this.link(link.to, link.from);
        if (!link.isOpen || !back.isOpen || !link.to.isUp) {
          if (misses >= 10) connection.failed('ETIMEDOUT');
          else this.#probeLater(connection, misses + 1);
        } else if (connection.isPeerGone) {
          connection.wasReset();
        }
      },
    });
  }

  #troublesOf({ from, to }: Link): LinkTrouble[] {
    return [...this.#rules].filter((rule) => rule.from.has(from) && rule.to.has(to)).map(({ trouble }) => trouble);
  }

  #rulesChanged({ from, to }: LinkRule): void {
    for (const link of this.#links.values()) {
      if (from.has(link.from) && to.has(link.to)) link.setTroubles(this.#troublesOf(link));
    }
  }
}

function isLoopback(address: string): boolean {
  return address.startsWith('127.') || address === '::1';
}

function isAddress(name: string): boolean {
  return /^\d+\.\d+\.\d+\.\d+$/.test(name) || name.includes(':');
}
