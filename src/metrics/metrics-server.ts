import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import Koa from 'koa';
import type { Environment } from '../base/environment/environment.js';
import { formatEndpoint } from '../base/environment/network.js';
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
import { PendingConnections } from '../net/pending-connections.js';
import { isLoopback } from './http-access.js';
import { HttpAnswers, type MetricsServerOptions, type MetricsSource } from './http-answers.js';

export type { MetricsServerOptions, MetricsSource } from './http-answers.js';

/** Milliseconds between two checks for late requests. */
const TIMEOUT_CHECK_MS = 500;

/** HTTP server of one node for its operator: metrics, health, reports and the dashboard. It only reads. */
export class MetricsServer {
  readonly #host: string;
  readonly #port: number;
  readonly #avoidPorts: ReadonlySet<number>;
  readonly #isTokenNeeded: boolean;
  readonly #env: Environment;
  readonly #answers: HttpAnswers;
  #server: Server | undefined;
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
    this.#env = options.env;
    this.#answers = new HttpAnswers(metrics, options);
  }

  /**
   * Listens, and resolves with the port: the requested one, or the next free one that need not be avoided. Throws
   * `ConfigError` if the host is not an address of this machine, the port needs a privilege, or METRICS_PORTS_MAX_COUNT
   * ports are taken.
   */
  async start(): Promise<number> {
    if (this.#stopped || this.#server !== undefined) throw new ClosedError('the metrics server');
    const server = createServer({ connectionsCheckingInterval: TIMEOUT_CHECK_MS }, this.#application().callback());
    this.#server = server;
    server.maxRequestsPerSocket = METRICS_CONNECTION_MAX_REQUESTS;
    server.headersTimeout = METRICS_REQUEST_TIMEOUT_MS;
    server.requestTimeout = METRICS_REQUEST_TIMEOUT_MS;
    server.keepAliveTimeout = METRICS_REQUEST_TIMEOUT_MS;
    // Limits clients that do not read their answer; making it may have its own time before that.
    server.timeout = 2 * METRICS_REQUEST_TIMEOUT_MS;
    const lines = new SparseLog(this.#env);
    makeRoom(server, (isAnswered, from) => {
      if (isAnswered) lines.log('warn', 'metrics server: a client that does not read its answer made room', { from });
    });
    await this.#listen(server);
    server.on('error', (error) => this.#env.log.log('error', 'metrics server failed', { error: error.message }));
    if (this.#stopped) {
      await end(server);
      throw new ClosedError('the metrics server');
    }
    return this.#announce(server.address() as AddressInfo);
  }

  /** Ends every connection, also during a request. Idempotent. */
  async stop(): Promise<void> {
    this.#stopped = true;
    if (this.#server?.listening) await end(this.#server);
  }

  #application(): Koa {
    const application = new Koa();
    // A client that disconnected, or an error of ours that was answered with status 500: neither belongs on the
    // console.
    application.on('error', (error: Error) => {
      this.#env.log.log('debug', 'metrics request failed', { error: error.message });
    });
    return application.use((ctx) => this.#answers.answer(ctx));
  }

  #announce({ address, port }: AddressInfo): number {
    this.#answers.isLocalOnly = isLoopback(address);
    const url = `http://${formatEndpoint({ host: address, port })}/`;
    this.#env.log.log('info', 'metrics server listening', { url });
    if (!this.#isTokenNeeded && !isLoopback(address)) {
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

  async #listen(server: Server): Promise<void> {
    let failure: NodeJS.ErrnoException = Object.assign(new Error('to be avoided'), { code: 'EADDRINUSE' });
    let port = this.#port;
    for (let tries = 0; tries < METRICS_PORTS_MAX_COUNT && !this.#stopped; tries++) {
      port = this.#port === 0 ? 0 : this.#port + tries;
      if (port > 65_535) break;
      if (this.#avoidPorts.has(port)) continue;
      try {
        await listenOnce(server, this.#host, port);
        if (!this.#avoidPorts.has((server.address() as AddressInfo).port)) return;
        await end(server);
      } catch (error) {
        failure = error as NodeJS.ErrnoException;
        if (failure.code !== 'EADDRINUSE') break;
      }
    }
    if (this.#stopped) throw new ClosedError('the metrics server');
    throw this.#listenError(failure, Math.min(port, 65_535));
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

/** Listens once. Rejects with the system's error; the server can listen again then. */
function listenOnce(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const onError = (error: Error): void => {
      server.off('listening', onListening);
      reject(error);
    };
    const onListening = (): void => {
      server.off('error', onError);
      resolve();
    };
    server.once('error', onError);
    server.once('listening', onListening);
    // Exclusive, so that several processes of a node:cluster program do not share the port.
    server.listen({ host, port, exclusive: true });
  });
}

async function end(server: Server): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  server.closeAllConnections();
  await closed;
}

/**
 * Keeps room for a scrape and a probe, whatever others do: a connection beyond METRICS_IDLE_CONNECTIONS_MAX_COUNT idle ones, or beyond
 * METRICS_MAX_CONNECTIONS in all, replaces another one. Idle ones go first, then the earliest of those that have an answer, from the address that
 * has most. So nobody keeps others out by answers that they do not read.
 */
function makeRoom(server: Server, onReplaced: (isAnswered: boolean, from: string) => void): void {
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
