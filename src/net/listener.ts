import type { Environment } from '../base/environment/environment.js';
import { type Connection, type ListenOptions, portOf, type Server } from '../base/environment/network.js';
import { AUTH_LOG_INTERVAL_MS } from '../base/limits.js';
import type { AuthFailurePlane } from './auth-failures.js';
import { CONNECTION_RATES, ConnectionLimits, type ConnectionRates } from './connection-limits.js';

export interface ListenerParts {
  readonly env: Pick<Environment, 'clock' | 'log' | 'metrics' | 'network'>;
  /** What it is for: a label of its metric. */
  readonly plane: AuthFailurePlane;
  readonly options: Omit<ListenOptions, 'admit'>;
  readonly rates?: ConnectionRates | undefined;
  /** Whether it never stops listening: the port must not be another's for a moment. */
  readonly keepsPort?: boolean;
  /** The connection is the callee's. */
  onConnection(connection: Connection): void;
  /** A connection was turned away before anything was read from it. */
  onRefused(): void;
  /** Later errors of the listening socket: a connection could not be accepted, or a pause could not be ended yet. */
  onError(error: Error): void;
}

/**
 * A listening socket that strangers cannot keep busy. Connections beyond {@link ConnectionLimits} are reset as soon as they are
 * accepted; and as even that costs some 50 us each, it stops listening for a moment when they are too many: the kernel refuses them
 * meanwhile, for next to nothing. Connections that are there are never touched by that; new ones of members have to try again.
 */
export class Listener {
  readonly #parts: ListenerParts;
  readonly #limits: ConnectionLimits;
  readonly #server: Server;
  #state: 'new' | 'starting' | 'open' | 'paused' | 'resuming' | 'ending' | 'closed' = 'new';
  #host = '';
  #port = 0;
  #settle: ((error?: Error) => void) | undefined;
  #end: (() => void) | undefined;
  #cancelPause: (() => void) | undefined;
  #loggedAtMs = Number.NEGATIVE_INFINITY;
  #saidResumeFailure = false;
  #closing: Promise<void> | undefined;

  constructor(parts: ListenerParts) {
    this.#parts = parts;
    this.#limits = new ConnectionLimits(parts.env.clock, parts.rates);
    const admit = (connection: Connection): boolean => this.#admits(connection);
    this.#server = parts.env.network.createServer({ ...parts.options, admit }, parts.onConnection);
    this.#server.on('listening', () => this.#listening());
    this.#server.on('error', (error) => this.#failed(error));
  }

  /** Once. Resolves with the port (`port` 0: a free one); rejects with the error of `listen`. */
  listen(host: string, port: number): Promise<number> {
    this.#host = host;
    this.#port = port;
    this.#state = 'starting';
    return new Promise((resolve, reject) => {
      this.#settle = (error) => (error === undefined ? resolve(this.#port) : reject(error));
      this.#server.listen({ host, port });
    });
  }

  /** The peer at `address` belongs here: its connection does not count any more. */
  proved(address: string): void {
    this.#limits.proved(address);
  }

  /** Accepts nothing more; resolves when the port is free and every connection has ended. After {@link listen}; idempotent. */
  close(): Promise<void> {
    this.#cancelPause?.();
    this.#closing ??= new Promise((resolve) => {
      this.#end = () => {
        this.#server.dropPending?.();
        this.#server.close(() => resolve());
      };
      // A socket that is about to listen can be closed only when it does.
      if (this.#state === 'starting' || this.#state === 'resuming') {
        this.#state = 'ending';
        return;
      }
      this.#state = 'closed';
      this.#end();
    });
    return this.#closing;
  }

  #admits(connection: Connection): boolean {
    const address = connection.remoteAddress ?? '';
    const verdict = this.#state === 'open' ? this.#limits.admit(address) : 'refuse';
    if (verdict === 'accept') return true;
    this.#parts.onRefused();
    connection.on('error', () => {});
    // Unlike an orderly end, a reset leaves nothing behind in the kernel.
    connection.resetAndDestroy();
    if (verdict === 'pause' && this.#parts.keepsPort !== true) this.#pause(address);
    return false;
  }

  #pause(address: string): void {
    const { env, plane } = this.#parts;
    this.#state = 'paused';
    // Handshakes of members may be under way: they go on.
    this.#server.close();
    this.#resumeLater();
    env.metrics.count('meshcache_listen_pauses_total', 1, { plane });
    const nowMs = env.clock.nowMs();
    if (nowMs - this.#loggedAtMs < AUTH_LOG_INTERVAL_MS) return;
    this.#loggedAtMs = nowMs;
    env.log.log(
      'warn',
      'a flood of connections by strangers: some are not even looked at; keep them away by a firewall',
      {
        plane,
        // One that has gone by now has no address any more.
        one_of_them: address || undefined,
      },
    );
  }

  #resumeLater(): void {
    const { pauseMs } = this.#parts.rates ?? CONNECTION_RATES;
    const resume = (): void => {
      this.#state = 'resuming';
      this.#server.listen({ host: this.#host, port: this.#port });
    };
    this.#cancelPause = this.#parts.env.clock.after(pauseMs, resume, { keepAlive: true });
  }

  #listening(): void {
    this.#port = portOf(this.#server);
    this.#settle?.();
    if (this.#state !== 'ending') {
      this.#state = 'open';
      this.#saidResumeFailure = false;
      return;
    }
    this.#state = 'closed';
    this.#end?.();
  }

  #failed(error: Error): void {
    this.#settle?.(error);
    if (this.#state === 'starting') {
      this.#state = 'closed';
      return;
    }
    // Another one may hold the port for long; it is tried ten times a second.
    if (!this.#saidResumeFailure) this.#parts.onError(error);
    this.#saidResumeFailure = this.#state === 'resuming';
    if (this.#state === 'ending') {
      this.#state = 'closed';
      this.#end?.();
    } else if (this.#state === 'resuming') {
      this.#state = 'paused';
      this.#resumeLater();
    }
  }

  /** Throws `InvariantError` unless its limits agree with themselves. */
  verify(): void {
    this.#limits.verify();
  }
}
