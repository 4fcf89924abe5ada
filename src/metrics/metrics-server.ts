import { createServer, type Server as HttpServer } from 'node:http';
import type { Socket } from 'node:net';
import type Koa from 'koa';
import { WorkTurns } from '../base/concurrency/work-turns.js';
import type { Environment } from '../base/environment/environment.js';
import { formatEndpoint, listenAt, portOf, type Server } from '../base/environment/network.js';
import { SparseLog } from '../base/environment/sparse-log.js';
import { ArgumentError, ClosedError, ConfigError } from '../base/errors.js';
import {
  METRICS_CONNECTION_MAX_REQUESTS,
  METRICS_IDLE_CONNECTIONS_MAX_COUNT,
  METRICS_MAX_CONNECTIONS,
  METRICS_PORTS_MAX_COUNT,
  METRICS_REQUEST_TIMEOUT_MS,
} from '../base/limits.js';
import { shown } from '../base/shown.js';
import { PendingConnections } from '../net/connection-limits.js';
import type { DoorTls } from '../net/credentials/door-tls.js';
import { PacedStream } from '../net/paced-stream.js';
import { isLoopback } from './http-access.js';
import { HttpAnswers, type MetricsServerOptions, type MetricsSource } from './http-answers.js';

export type { MetricsServerOptions, MetricsSource } from './http-answers.js';

/** Bytes read from a connection in one turn: one request of a browser, or several short ones. */
const PIECE_BYTES = 1024;
/** Milliseconds between checks for late requests. */
const TIMEOUT_CHECK_MS = 500;

/** HTTP server of one node for its operator: metrics, health, reports and the dashboard. It is read-only. */
export class MetricsServer {
  readonly #host: string;
  readonly #port: number;
  readonly #avoidPorts: ReadonlySet<number>;
  readonly #isTokenNeeded: boolean;
  readonly #env: Environment;
  readonly #answers: HttpAnswers;
  readonly #tls: DoorTls | undefined;
  /** Answers requests on connections that the listener has accepted. */
  #server: HttpServer | undefined;
  #listener: Server | undefined;
  readonly #turns: WorkTurns;
  #lastConnection = 0;
  #stopped = false;

  /** `port` 0 takes any free port. Throws `ArgumentError` for an invalid host or port. */
  constructor(metrics: MetricsSource, host: string, port: number, options: MetricsServerOptions) {
    if (typeof host !== 'string' || host === '') {
      throw new ArgumentError(`host must be a host name or an address, got ${shown(host)}`);
    }
    if (!Number.isInteger(port) || port < 0 || port > 65_535) {
      throw new ArgumentError(`port must be 0 to 65535, got ${shown(port)}`);
    }
    this.#host = host;
    this.#port = port;
    this.#avoidPorts = new Set(options.avoidPorts);
    this.#isTokenNeeded = options.token !== undefined || options.users?.hasTokens === true;
    this.#turns = options.turns ?? new WorkTurns(options.env.clock);
    this.#tls = options.tls;
    this.#env = options.env;
    this.#answers = new HttpAnswers(metrics, options);
  }

  /**
   * Listens, and resolves with the port: the requested one, or the next one that is free and need not be avoided.
   * Throws `ConfigError` if the host is not an address of this machine, the port needs a privilege, or
   * METRICS_PORTS_MAX_COUNT ports are taken.
   */
  async start(): Promise<number> {
    // Loaded only here, because most commands and programs do not start this server.
    const { default: Application } = await import('koa');
    if (this.#stopped || this.#server !== undefined) throw new ClosedError('the metrics server');
    const application = this.#prepare(new Application());
    const server = createServer({ connectionsCheckingInterval: TIMEOUT_CHECK_MS }, application.callback());
    this.#server = server;
    server.maxRequestsPerSocket = METRICS_CONNECTION_MAX_REQUESTS;
    server.headersTimeout = METRICS_REQUEST_TIMEOUT_MS;
    server.requestTimeout = METRICS_REQUEST_TIMEOUT_MS;
    server.keepAliveTimeout = METRICS_REQUEST_TIMEOUT_MS;
    // Limits clients that do not read their answer, after the time that creating it may take.
    server.timeout = 2 * METRICS_REQUEST_TIMEOUT_MS;
    const lines = new SparseLog(this.#env);
    makeRoom(server, (isAnswered, from) => {
      if (isAnswered) lines.log('warn', 'metrics server: a client that does not read its answer made room', { from });
    });
    // Starts the server's checks for late requests, as if the server listened itself.
    server.emit('listening');
    const listener = await this.#listen(server);
    if (this.#stopped) {
      await end(listener, server);
      throw new ClosedError('the metrics server');
    }
    this.#listener = listener;
    return this.#announce(listener);
  }

  /** Ends every connection, even during a request. Idempotent. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#tls?.close();
    const [listener, server] = [this.#listener, this.#server];
    if (listener === undefined || server === undefined) return;
    this.#listener = undefined;
    await end(listener, server);
  }

  #prepare(application: Koa): Koa {
    // The cause is a client that disconnected, or an error of ours that was answered with status 500. Neither belongs
    // on the console.
    application.on('error', (error: Error) => {
      this.#env.log.log('debug', 'metrics request failed', { error: error.message });
    });
    return application.use((ctx) => this.#answers.answer(ctx));
  }

  #announce(listener: Server): number {
    const address = hostOf(listener);
    const port = portOf(listener);
    this.#answers.access.isLocalOnly = isLoopback(address);
    const url = `${this.#tls === undefined ? 'http' : 'https'}://${formatEndpoint({ host: address, port })}/`;
    this.#env.log.log('info', 'metrics server listening', { url });
    const isProofNeeded = this.#isTokenNeeded || this.#tls?.wantsCertificates === true;
    if (!isProofNeeded && !isLoopback(address)) {
      this.#env.log.log(
        'warn',
        'metrics server has no token: only /metrics and /healthz are answered; set metrics_token',
        {
          url,
        },
      );
    }
    return port;
  }

  async #listen(server: HttpServer): Promise<Server> {
    let failure: NodeJS.ErrnoException = Object.assign(new Error('to be avoided'), { code: 'EADDRINUSE' });
    let port = this.#port;
    for (let tries = 0; tries < METRICS_PORTS_MAX_COUNT && !this.#stopped; tries++) {
      port = this.#port === 0 ? 0 : this.#port + tries;
      if (port > 65_535) break;
      if (this.#avoidPorts.has(port)) continue;
      const listener = this.#listenerFor(server);
      const onError = (error: Error): void =>
        this.#env.log.log('error', 'metrics server failed', { error: error.message });
      try {
        // Exclusive, so that several processes of a node:cluster program do not share the port.
        await listenAt(listener, { host: this.#host, port, exclusive: true }, onError);
        if (!this.#avoidPorts.has(portOf(listener))) return listener;
        await new Promise<void>((resolve) => listener.close(resolve));
      } catch (error) {
        failure = error as NodeJS.ErrnoException;
        if (failure.code !== 'EADDRINUSE') break;
      }
    }
    if (this.#stopped) throw new ClosedError('the metrics server');
    throw this.#listenError(failure, Math.min(port, 65_535));
  }

  #listenerFor(server: HttpServer): Server {
    const options = { plane: 'metrics', allowHalfOpen: true, noDelay: true };
    return (this.#tls ?? this.#env.network).createServer(options, (socket) => {
      const sharer = { one: String(++this.#lastConnection), group: `reader ${socket.remoteAddress}` };
      const parts = { turns: this.#turns, sharer, pieceBytes: PIECE_BYTES };
      server.emit('connection', new PacedStream(socket as Socket, parts));
    });
  }

  #listenError(error: NodeJS.ErrnoException, port: number): ConfigError {
    const host = JSON.stringify(this.#host);
    const foreign = `metrics_host: ${host} is no address of this machine; allowed: one that it has, or 0.0.0.0 or :: for all`;
    const unknown = `metrics_host: no host ${host} is known here; allowed: a name or an address of this machine`;
    const reasons: Readonly<Record<string, string>> = {
      EADDRINUSE: `metrics_port: ${this.#port} and all up to ${port} are taken on ${host}, or to be avoided; choose another, or 0 for any free one`,
      EACCES: `metrics_port: ${port} needs a privilege that this process does not have; choose one above 1023`,
      EADDRNOTAVAIL: foreign,
      EINVAL: foreign,
      ENOTFOUND: unknown,
      EAI_AGAIN: unknown,
    };
    const other = `metrics_host, metrics_port: cannot listen on ${host}, port ${port}: ${error.message}`;
    return new ConfigError(reasons[error.code ?? ''] ?? other, { cause: error });
  }
}

async function end(listener: Server, server: HttpServer): Promise<void> {
  const closed = new Promise<void>((resolve) => listener.close(() => resolve()));
  listener.dropPending?.();
  server.closeAllConnections();
  server.close();
  await closed;
}

/** The address that a server listens at. */
function hostOf(server: Server): string {
  const at = server.address();
  return typeof at === 'object' && at !== null ? at.address : '';
}

/**
 * Keeps room for a scrape and a probe, whatever other clients do. A connection beyond
 * METRICS_IDLE_CONNECTIONS_MAX_COUNT idle ones, or beyond METRICS_MAX_CONNECTIONS in all, replaces another one: first
 * an idle one, then the earliest with an answer in progress, of the address that has most. This way nobody can keep
 * others out by not reading answers.
 */
function makeRoom(server: HttpServer, onReplaced: (isAnswered: boolean, from: string) => void): void {
  const addresses = new WeakMap<Socket, string>();
  const originOf = (socket: Socket): string => addresses.get(socket) ?? '';
  const replace = (socket: Socket, isAnswered: boolean): void => {
    onReplaced(isAnswered, originOf(socket));
    socket.destroy();
  };
  const idle = new PendingConnections<Socket>(
    METRICS_IDLE_CONNECTIONS_MAX_COUNT,
    (socket) => replace(socket, false),
    originOf,
  );
  const answered = new PendingConnections<Socket>(METRICS_MAX_CONNECTIONS, (socket) => replace(socket, true), originOf);
  server.on('connection', (socket) => {
    addresses.set(socket, socket.remoteAddress ?? '');
    socket.once('close', () => {
      idle.delete(socket);
      answered.delete(socket);
    });
    if (idle.count + answered.count >= METRICS_MAX_CONNECTIONS && !idle.dropOldest()) answered.dropOldest();
    idle.add(socket);
  });
  server.on('request', ({ socket }, response) => {
    idle.delete(socket);
    if (!socket.destroyed) answered.add(socket);
    response.once('close', () => {
      answered.delete(socket);
      if (!socket.destroyed) idle.add(socket);
    });
  });
}
