import { assertAtMost } from '../base/assert.js';
import { ByteBudget } from '../base/concurrency/byte-budget.js';
import type { PauseWatch } from '../base/concurrency/pause-watch.js';
import { type Sharer, Shares } from '../base/concurrency/shares.js';
import { WorkTurns } from '../base/concurrency/work-turns.js';
import type { AuditActor } from '../base/environment/audit.js';
import type { Environment } from '../base/environment/environment.js';
import {
  type Connection,
  formatEndpoint,
  listenAt,
  type Network,
  portOf,
  type Server,
} from '../base/environment/network.js';
import { SparseLog } from '../base/environment/sparse-log.js';
import { ConfigError } from '../base/errors.js';
import { KEEP_ALIVE_DELAY_MS, RESP_COMMAND_MAX_BYTES } from '../base/limits.js';
import { credentialsOf, sharerOf } from '../native/unix-sockets.js';
import type { DoorTls } from '../net/credentials/door-tls.js';
import { type LocalSocket, listenLocally } from '../net/local-socket.js';
import { ServedConnections } from '../net/served/served-connections.js';
import { RespAccess, type RespOrigin } from './access/resp-access.js';
import { RespUsers, type RespUsersParts } from './access/resp-users.js';
import type { RespFacts } from './commands/command.js';
import { COMMANDS } from './commands/command-table.js';
import { RespConnection } from './resp-connection.js';
import { RespCounts } from './resp-counts.js';
import { type RespLimits, respLimits, servedLimits } from './resp-limits.js';
import { ValueMemory } from './values/value-memory.js';
import { errorAnswer } from './wire/resp-answers.js';

/** Where the door for Redis clients listens, and who may use it. */
export interface RespServerOptions {
  /** Host and port to listen on; port 0 is any free one. */
  readonly endpoint?: { readonly host: string; readonly port: number } | undefined;
  /** A Unix socket to listen at. */
  readonly socket?: Omit<LocalSocket, 'key'> | undefined;
  /** TLS at the port, but not at the Unix socket; undefined for a plain port. The server closes it. */
  readonly tls?: DoorTls | undefined;
  /** Password of the user `default`; undefined if that user needs none. */
  readonly password?: string | undefined;
  /** Replacements for the production limits, for tests. */
  readonly limits?: Partial<RespLimits> | undefined;
}

export interface RespServerParts {
  readonly env: Environment;
  /** Tells when this process was not running. */
  readonly pauses: Pick<PauseWatch, 'sentAfterMs'>;
  /** The users of the node, and the pages that they reach. */
  readonly users: Pick<RespUsersParts, 'users' | 'nodeTag' | 'pagesOf'>;
  /** Divides the time of the main loop between the clients of all doors. Default: only between those of this server. */
  readonly turns?: WorkTurns | undefined;
  /** Date against which clients state expiries, in milliseconds since 1970. Default: the wall clock. */
  readonly dateMs?: (() => number) | undefined;
  /** Facts about the node that clients may ask for, except those that the server itself knows. */
  readonly facts: Omit<RespFacts, 'port' | 'clients' | 'commands' | 'uptimeS' | 'dateMs'>;
}

/**
 * The door of a node for Redis clients: a port and a Unix socket that speak RESP2 and RESP3. docs/redis.md describes it
 * for users.
 */
export class RespServer {
  readonly #options: RespServerOptions;
  readonly limits: RespLimits;
  readonly #users: RespUsers;
  readonly #unwatchUsers: () => void;
  readonly #servers: Server[] = [];
  readonly env: Environment;
  /** @internal All connections. The unauthenticated ones count as greeting. */
  readonly connections: ServedConnections<RespConnection>;
  /** Number of connections, by origin. */
  readonly #shares: Shares;
  /** Memory for large arguments that are being received, shared by all connections. */
  readonly budget: ByteBudget;
  /** @internal Divides the time of the main loop between clients. */
  readonly turns: WorkTurns;
  /** Rate-limited log for events that clients can cause. */
  readonly lines: SparseLog;
  readonly memory = new ValueMemory();
  /** Memory for copies of values, shared by all connections. */
  readonly valuesBudget: ByteBudget;
  readonly counts: RespCounts;
  /** @internal Facts for clients. The port is known once the server listens. */
  facts: RespFacts;
  #lastId = 0;
  #closing: Promise<void> | undefined;

  /** Starts to listen. Throws `ConfigError` if the port or the path cannot be used. */
  static async listen(options: RespServerOptions, parts: RespServerParts): Promise<RespServer> {
    const server = new RespServer(options, parts);
    try {
      await server.#listen();
    } catch (error) {
      await server.close();
      throw error;
    }
    return server;
  }

  private constructor(options: RespServerOptions, parts: RespServerParts) {
    const { env, users, facts, dateMs = () => env.clock.wallMs() } = parts;
    this.env = env;
    this.#options = options;
    this.limits = respLimits(options.limits);
    const { argumentsBudgetBytes, connectionsMaxCount } = this.limits;
    this.budget = new ByteBudget(argumentsBudgetBytes, Math.min(RESP_COMMAND_MAX_BYTES, argumentsBudgetBytes));
    this.#shares = new Shares(connectionsMaxCount);
    this.turns = parts.turns ?? new WorkTurns(env.clock);
    this.lines = new SparseLog(env);
    const fairness = { turns: this.turns, pauses: parts.pauses };
    this.connections = new ServedConnections(env.clock, servedLimits(this.limits), fairness);
    this.valuesBudget = new ByteBudget(this.limits.valuesBudgetBytes);
    const memory = { memory: this.memory, budget: this.valuesBudget };
    this.#users = new RespUsers({ ...users, password: options.password, memory, env });
    this.#unwatchUsers = this.#users.onChanged(() => {
      for (const connection of this.connections) connection.usersChanged();
    });
    this.counts = new RespCounts(env.metrics, COMMANDS.keys());
    const startMs = env.clock.nowMs();
    this.facts = {
      ...facts,
      port: 0,
      dateMs,
      uptimeS: () => (env.clock.nowMs() - startMs) / 1000,
      clients: () => this.connectionsCount,
      commands: () => this.counts.commands,
    };
    env.metrics.setGaugeProvider('meshcache_resp_connections', () => this.connectionsCount);
  }

  /** `host:port` of the port; empty without one. */
  get endpoint(): string {
    const { endpoint } = this.#options;
    return endpoint === undefined ? '' : formatEndpoint({ ...endpoint, port: this.facts.port });
  }

  /** Path of the Unix socket; empty without one. */
  get path(): string {
    return this.#options.socket?.path ?? '';
  }

  /** Number of open connections. */
  get connectionsCount(): number {
    return this.connections.unendedCount;
  }

  /** Number of commands that were carried out or refused. */
  get commandsCount(): number {
    return this.counts.commands;
  }

  /**
   * Finishes commands in progress, then ends all connections. Resolves when nothing reads from the pool any more and
   * the port is free. Idempotent.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#options.tls?.close();
    this.#unwatchUsers();
    const closed = Promise.all(
      this.#servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))),
    );
    for (const server of this.#servers) server.dropPending?.();
    await this.connections.shutDown('the node is closing', this.limits.finishTimeoutMs);
    await closed;
  }

  async #listen(): Promise<void> {
    const { endpoint, socket, tls } = this.#options;
    const { env } = this;
    const onError = (error: Error): void => env.log.log('error', 'redis door failed', { error: error.message });
    if (endpoint !== undefined) {
      const server = this.#serve(tls ?? env.network, 'port');
      try {
        await listenAt(server, { ...endpoint, exclusive: true }, onError);
      } catch (cause) {
        throw listenError(cause as NodeJS.ErrnoException, endpoint);
      }
      this.#servers.push(server);
      this.facts = { ...this.facts, port: portOf(server) };
    }
    if (socket !== undefined) {
      const server = this.#serve(env.network, 'socket');
      await listenLocally(server, { ...socket, key: 'resp_socket' }, { env, onError });
      this.#servers.push(server);
    }
    env.log.log('info', 'serving redis clients', {
      endpoint: this.endpoint || undefined,
      tls: tls !== undefined || undefined,
      path: this.path || undefined,
    });
  }

  #serve(network: Pick<Network, 'createServer'>, at: 'port' | 'socket'): Server {
    const options = {
      plane: 'resp',
      allowHalfOpen: true,
      reusesMemory: true,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_DELAY_MS,
    };
    return network.createServer(options, (socket) => {
      // The port's connections have an address, unless the client has reset them already.
      if (at === 'socket' || socket.remoteAddress !== undefined) {
        this.#accept(socket);
        return;
      }
      socket.on('error', () => {});
      socket.destroy();
    });
  }

  #accept(socket: Connection): void {
    const id = ++this.#lastId;
    const origin = originOf(socket, id);
    const guesser = guesserOf(socket, origin);
    if (this.#closing !== undefined || !this.#hasRoom(origin)) {
      this.#refused(origin, guesser.actor, 'too many connections');
      socket.on('error', () => {});
      socket.end(errorAnswer('ERR max number of clients reached'));
      socket.destroySoon();
      return;
    }
    const { encrypted, authorized, remoteAddress = '' } = socket;
    const onProved = (): void => {
      if (encrypted && !authorized) this.#options.tls?.proved(remoteAddress);
    };
    const access = new RespAccess(this.#users, guesser, onProved);
    this.#shares.take(origin, 1);
    this.connections.add(new RespConnection(socket, this, { id, origin, access }));
  }

  /**
   * Whether there is room for a connection of this origin. Unauthenticated connections are closed to make room, first
   * those of the origin that has most, so that they cannot keep others out.
   */
  #hasRoom(origin: Sharer): boolean {
    while (!this.#shares.allows(origin, 1)) if (!this.connections.greeting.dropOldest()) return false;
    return true;
  }

  /** Called when a connection was closed to make room for others. */
  replaced({ origin, access, served }: RespConnection): void {
    this.#refused(origin, access.actor, served.reason);
  }

  /** Called when a connection is closed and nothing of it is in progress. */
  ended({ access, origin }: RespConnection): void {
    access.ended();
    this.#shares.giveBack(origin, 1);
  }

  #refused({ one, group }: Sharer, actor: AuditActor, reason: string): void {
    this.counts.refused();
    this.env.audit?.record({ action: 'attach', door: 'redis', outcome: 'refused', actor, reason });
    this.lines.log('warn', 'redis client refused', { from: one, by: group, reason }, reason);
  }

  /** @internal Throws `InvariantError` unless the connections are within their limits, and each is consistent. */
  verify(): void {
    this.connections.verify('redis door');
    assertAtMost('redis door: connections', this.connectionsCount, this.limits.connectionsMaxCount);
    this.#users.verify();
    this.#options.tls?.verify();
    this.budget.verify();
    this.#shares.verify();
    this.valuesBudget.verify();
  }
}

function listenError(
  cause: NodeJS.ErrnoException,
  endpoint: { readonly host: string; readonly port: number },
): ConfigError {
  const { code } = cause;
  const [key, advice] =
    code === 'EADDRINUSE'
      ? ['resp_port', 'the port is taken; choose another, or 0 for any that is free']
      : code === 'EACCES'
        ? ['resp_port', 'the port needs a privilege that this process does not have; choose one above 1023']
        : ['resp_host', `${cause.message}; allowed is an address of this machine, or 0.0.0.0 or :: for all`];
  return new ConfigError(`configuration key "${key}": cannot listen at ${formatEndpoint(endpoint)}: ${advice}`, {
    cause,
  });
}

/** Returns what wrong passwords are counted by: the address, or the user of the host. */
function guesserOf(socket: Connection, { group }: Sharer): RespOrigin {
  const { remoteAddress } = socket;
  if (remoteAddress !== undefined) return { from: remoteAddress, actor: { address: remoteAddress } };
  const { uid, pid } = credentialsOf(socket) ?? {};
  return { from: group, actor: { uid, pid: pid || undefined } };
}

/** Returns the origin of a connection: process and user at a Unix socket, the address at the port. */
function originOf(socket: Connection, id: number): Sharer {
  const { remoteAddress } = socket;
  if (remoteAddress !== undefined) return { one: remoteAddress, group: 'port' };
  return sharerOf(credentialsOf(socket), id);
}
