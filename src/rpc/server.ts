import { assertAtMost } from '../base/assert.js';
import type { Environment } from '../base/environment/environment.js';
import { type Connection, formatEndpoint } from '../base/environment/network.js';
import { SparseLog } from '../base/environment/sparse-log.js';
import { ArgumentError, ClosedError, ConfigError } from '../base/errors.js';
import {
  HANDSHAKES_PENDING_MAX_COUNT,
  KEEP_ALIVE_DELAY_MS,
  RPC_BUFFERED_MAX_BYTES,
  RPC_CONNECTIONS_MAX_COUNT,
  RPC_GRANTED_BYTES,
  RPC_GRANTED_COUNT,
  RPC_HANDSHAKE_TIMEOUT_MS,
  RPC_IN_FLIGHT_MAX_BYTES,
  RPC_IN_FLIGHT_MAX_COUNT,
  RPC_METHOD_MAX_BYTES,
  RPC_PAUSE_AT_BYTES,
  RPC_SERVER_BUFFERED_MAX_BYTES,
  RPC_SERVER_HELD_MAX_BYTES,
  RPC_SERVER_IN_FLIGHT_MAX_BYTES,
  RPC_SERVER_IN_FLIGHT_MAX_COUNT,
  RPC_STALL_TIMEOUT_MS,
} from '../base/limits.js';
import { type AuthFailureReason, AuthFailures } from '../net/auth-failures.js';
import type { ConnectionRates } from '../net/connection-limits.js';
import { Listener } from '../net/listener.js';
import { NO_SERVED_LIMITS, ServedConnections } from '../net/served/served-connections.js';
import { MessageCodec } from './message.js';
import { type RpcCall, type RpcFault, type RpcHandler, ServerConnection } from './server-connection.js';
import { type RpcService, rpcTarget } from './service.js';

export type { RpcCall, RpcContext, RpcFault, RpcHandler } from './server-connection.js';

/** Options of an `RpcServer`. */
export interface RpcServerOptions {
  /**
   * Address to listen on. Clients with secrets reach the server only by this exact address, unless it is a discovery
   * master.
   */
  readonly host: string;
  /** Port to listen on; 0 (default): any free one. */
  readonly port?: number;
  /** Most connections; further ones are closed at once. Default: RPC_CONNECTIONS_MAX_COUNT. */
  readonly maxConnections?: number;
  /** Purpose of the server, also a label of its metrics. Default: `control`. */
  readonly service?: RpcService;
  /** @internal Rate limits for connections of unauthenticated peers. Default: those of `limits.ts`. */
  readonly rates?: ConnectionRates;
  /**
   * @internal Returns the name of the user who makes a call, if that matters. Throws `AuthError` if the caller may not
   * make the call. Default: all callers are members.
   */
  readonly userOf?: (call: RpcCall) => string | undefined;
  readonly env: Environment;
}

/** Load and errors of an `RpcServer`. */
export interface RpcServerStats {
  readonly connections: number;
  /** Calls received since the start. */
  readonly calls: number;
  /** Calls in progress. */
  readonly inFlight: number;
  /** Bytes of answers that peers have not accepted yet. */
  readonly bufferedBytes: number;
  /** Memory of incomplete requests, in bytes. */
  readonly heldBytes: number;
  readonly errors: Readonly<Partial<Record<RpcFault, number>>>;
}

const LIMITS = {
  ...NO_SERVED_LIMITS,
  greetingMaxCount: HANDSHAKES_PENDING_MAX_COUNT,
  greetingTimeoutMs: RPC_HANDSHAKE_TIMEOUT_MS,
  lateReason: 'no hello in time',
  replacedReason: 'too many connections',
  stallTimeoutMs: RPC_STALL_TIMEOUT_MS,
  watchedMinBytes: RPC_PAUSE_AT_BYTES,
  outputMaxBytes: RPC_BUFFERED_MAX_BYTES,
  allOutputMaxBytes: RPC_SERVER_BUFFERED_MAX_BYTES,
  inFlightMaxCount: RPC_IN_FLIGHT_MAX_COUNT,
  inFlightMaxBytes: RPC_IN_FLIGHT_MAX_BYTES,
  allInFlightMaxCount: RPC_SERVER_IN_FLIGHT_MAX_COUNT,
  allInFlightMaxBytes: RPC_SERVER_IN_FLIGHT_MAX_BYTES,
  grantedCount: RPC_GRANTED_COUNT,
  grantedBytes: RPC_GRANTED_BYTES,
};

/**
 * Answers calls of the control plane. Whatever a peer sends, the worst outcome is that its connection is closed; every
 * such case is counted by kind in `meshcache_rpc_errors_total`. With secrets in its environment it answers only
 * authenticated peers.
 */
export class RpcServer {
  /** @internal Reads and writes messages. */
  readonly codec = new MessageCodec();
  readonly env: Environment;
  /** Rate-limited log for events that peers can cause. */
  readonly lines: SparseLog;
  /**
   * @internal Returns the name of the user who makes a call, if that matters. Throws `AuthError` if the caller may not
   * make it.
   */
  readonly userOf: (call: RpcCall) => string | undefined;
  readonly connections: ServedConnections<ServerConnection>;
  readonly #host: string;
  readonly #port: number;
  /** The advertised port: `#port`, or the assigned one if that is 0. */
  #listeningPort: number;
  readonly #maxConnections: number;
  readonly #service: RpcService;
  readonly #rates: ConnectionRates | undefined;
  readonly #handlers = new Map<string, RpcHandler>();
  readonly #authFailures: AuthFailures;
  readonly #errors: Partial<Record<RpcFault, number>> = {};
  #calls = 0;
  #listener: Listener | undefined;
  #stopped = false;

  /** Creates a server. Throws `ArgumentError` for an invalid host or port. */
  constructor(options: RpcServerOptions) {
    const { host, port = 0 } = options;
    if (typeof host !== 'string' || host === '')
      throw new ArgumentError(`host must be a host name, got ${String(host)}`);
    if (!Number.isInteger(port) || port < 0 || port > 65_535) {
      throw new ArgumentError(`port must be 0 to 65535, got ${String(port)}`);
    }
    this.#host = host;
    this.#port = port;
    this.#listeningPort = port;
    this.#maxConnections = options.maxConnections ?? RPC_CONNECTIONS_MAX_COUNT;
    this.#rates = options.rates;
    this.userOf = options.userOf ?? (() => undefined);
    this.#service = options.service ?? 'control';
    this.env = options.env;
    this.lines = new SparseLog(this.env);
    this.connections = new ServedConnections(this.env.clock, LIMITS);
    this.#authFailures = new AuthFailures('rpc', this.env, 'control');
    this.env.metrics.setGaugeProvider('meshcache_rpc_connections', () => this.connections.size, {
      side: 'server',
      service: this.#service,
    });
  }

  /**
   * Registers `handler` for calls of `method`. A thrown error is sent as code and message: a `MeshCacheError` with its
   * own code, anything else as `ERR_REMOTE`. Throws `ArgumentError` if the method already has a handler.
   */
  handle(method: string, handler: RpcHandler): void {
    if (this.#handlers.has(method)) throw new ArgumentError(`method ${method} has a handler already`);
    if (Buffer.byteLength(method) > RPC_METHOD_MAX_BYTES) throw new ArgumentError(`method name too long: ${method}`);
    this.#handlers.set(method, handler);
  }

  /** Starts to listen and resolves with the port. Throws `ConfigError` if the address cannot be used. */
  async start(): Promise<number> {
    if (this.#stopped || this.#listener !== undefined) throw new ClosedError('the RPC server');
    const listener = new Listener({
      env: this.env,
      plane: 'rpc',
      options: { noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_DELAY_MS, plane: this.#service },
      rates: this.#rates,
      // A discovery server must not release its port: the process that holds the port is the master.
      keepsPort: this.#service === 'discovery',
      onConnection: (socket) => this.#accept(socket),
      onRefused: () => this.fault('too_many_connections'),
      onError: (error) => this.env.log.log('error', 'control server failed', { error: error.message }),
    });
    this.#listener = listener;
    const port = await listener.listen(this.#host, this.#port).catch((error) => {
      throw this.#listenError(error);
    });
    if (this.#stopped) throw new ClosedError('the RPC server');
    this.#listeningPort = port;
    return port;
  }

  /** Closes every connection, even during a call. Idempotent. */
  async stop(): Promise<void> {
    this.#stopped = true;
    const closed = this.#listener?.close();
    this.connections.close('the server is stopping');
    await closed;
  }

  /** Current load, and counters since the start. */
  stats(): RpcServerStats {
    return {
      connections: this.connections.size,
      calls: this.#calls,
      inFlight: this.connections.inFlightCount,
      bufferedBytes: this.connections.sum(({ served }) => served.waitingBytes),
      heldBytes: this.connections.sum(({ heldBytes }) => heldBytes),
      errors: { ...this.#errors },
    };
  }

  /** @internal The target that clients must name to authenticate with this server. */
  get target(): string {
    return rpcTarget(this.#service, { host: this.#host, port: this.#listeningPort });
  }

  /** @internal Returns the handler of a method; undefined if there is none. */
  handlerOf(method: string): RpcHandler | undefined {
    return this.#handlers.get(method);
  }

  /** @internal Counts a received call. */
  called(): void {
    this.#calls++;
    this.env.metrics.count('meshcache_rpc_served_calls_total');
  }

  /** @internal Counts a fault. */
  fault(kind: RpcFault): void {
    this.#errors[kind] = (this.#errors[kind] ?? 0) + 1;
    this.env.metrics.count('meshcache_rpc_errors_total', 1, { kind });
  }

  /** Called when a peer and this node do not share a secret. */
  unauthenticated(reason: AuthFailureReason, address: string): void {
    this.#authFailures.record(reason, address);
  }

  /** Called when a peer has said hello and, if required, has authenticated itself. */
  proved(address: string): void {
    this.#listener?.proved(address);
  }

  /** @internal Limits the memory of incomplete requests: if it is too much, closes the connection that holds most. */
  shedHeld(): void {
    const bytes = this.connections.sum(({ heldBytes }) => Math.max(0, heldBytes - RPC_GRANTED_BYTES));
    if (bytes <= RPC_SERVER_HELD_MAX_BYTES) return;
    [...this.connections].reduce((most, one) => (one.heldBytes > most.heldBytes ? one : most)).shed();
  }

  #accept(socket: Connection): void {
    const { size, greeting } = this.connections;
    const hasRoom = size - greeting.count < this.#maxConnections;
    if (this.#stopped || !hasRoom) {
      if (!this.#stopped) this.fault('too_many_connections');
      socket.on('error', () => {});
      socket.destroy();
      return;
    }
    if (size >= this.#maxConnections) greeting.dropOldest();
    this.connections.add(new ServerConnection(socket, this));
  }

  #listenError(error: NodeJS.ErrnoException): ConfigError {
    const address = formatEndpoint({ host: this.#host, port: this.#port });
    const reasons: Readonly<Record<string, string>> = {
      EADDRINUSE: `port ${this.#port} is in use already`,
      EACCES: `port ${this.#port} needs a privilege that this process does not have`,
      EADDRNOTAVAIL: `${this.#host} is no address of this machine`,
    };
    const reason = reasons[error.code ?? ''] ?? error.message;
    return new ConfigError(`cannot listen on ${address}: ${reason}`, { cause: error });
  }

  /** @internal Throws `InvariantError` unless its counts match its connections, and each is consistent. */
  verify(): void {
    this.connections.verify('RPC server');
    // On a full server, a new unauthenticated connection replaces another unauthenticated one.
    assertAtMost('RPC server: connections', this.connections.size, this.#maxConnections);
    this.#listener?.verify();
  }
}
