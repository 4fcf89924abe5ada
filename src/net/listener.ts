import type { Environment } from '../base/environment/environment.js';
import { type Connection, type ListenOptions, portOf, type Server } from '../base/environment/network.js';
import { SparseLog } from '../base/environment/sparse-log.js';
import type { AuthFailurePlane } from './auth-failures.js';
import { CONNECTION_RATES, ConnectionLimits, type ConnectionRates, turnAway } from './connection-limits.js';

interface ListenerParts {
  readonly env: Environment;
  /** The plane that the listener serves; a label of its metric. */
  readonly plane: AuthFailurePlane;
  readonly options: Omit<ListenOptions, 'admit'>;
  readonly rates?: ConnectionRates | undefined;
  /** Whether the listener never pauses, because no other process may take the port even for a moment. */
  readonly keepsPort?: boolean;
  /**
   * Called with each admitted or adopted connection, also before TLS. Returns false if an admitted one goes on
   * elsewhere.
   */
  keeps?(connection: Connection, isAdopted: boolean): boolean;
  /** Takes over an accepted connection. */
  onConnection(connection: Connection): void;
  /** Called when a connection was refused before anything was read from it. */
  onRefused(): void;
  /**
   * Called with later errors of the listening socket: a connection could not be accepted, or listening could not be
   * resumed yet.
   */
  onError(error: Error): void;
}

/**
 * A listening socket that unauthenticated peers cannot keep busy. Connections beyond {@link ConnectionLimits} are reset
 * as soon as they are accepted. That costs about 50 us each; when there are too many, the listener pauses, and the
 * kernel refuses them at almost no cost. Open connections are not affected; members that connect during a pause have to
 * try again.
 */
export class Listener {
  readonly #parts: ListenerParts;
  readonly #limits: ConnectionLimits;
  readonly #log: SparseLog;
  readonly #server: Server;
  #state: 'new' | 'starting' | 'open' | 'paused' | 'resuming' | 'ending' | 'closed' = 'new';
  #host = '';
  #port = 0;
  #settle: ((error?: Error) => void) | undefined;
  #end: (() => void) | undefined;
  #cancelPause: (() => void) | undefined;
  #saidResumeFailure = false;
  #isAdopting = false;
  #closing: Promise<void> | undefined;

  constructor(parts: ListenerParts) {
    this.#parts = parts;
    this.#log = new SparseLog(parts.env);
    this.#limits = new ConnectionLimits(parts.env.clock, parts.rates);
    const admit = (connection: Connection): boolean => this.#admits(connection);
    this.#server = parts.env.network.createServer({ ...parts.options, admit }, parts.onConnection);
    this.#server.on('listening', () => this.#listening());
    this.#server.on('error', (error) => this.#failed(error));
  }

  /**
   * Starts to listen; may be called once. Resolves with the port (`port` 0: a free one); rejects with the error of
   * `listen`.
   */
  listen(host: string, port: number): Promise<number> {
    this.#host = host;
    this.#port = port;
    this.#state = 'starting';
    return new Promise((resolve, reject) => {
      this.#settle = (error) => (error === undefined ? resolve(this.#port) : reject(error));
      this.#server.listen({ host, port });
    });
  }

  /**
   * Takes over the descriptor of a connection that another listener has admitted and has not read from. May be called
   * without {@link listen}. Has no effect in a network without descriptors. Throws if the descriptor is no connection.
   */
  adopt(descriptor: number): void {
    this.#isAdopting = true;
    try {
      this.#server.adopt?.(descriptor);
    } finally {
      this.#isAdopting = false;
    }
  }

  /** Called when the peer at `address` has authenticated itself. Its connection is no longer limited. */
  proved(address: string): void {
    this.#limits.proved(address);
  }

  /**
   * Stops accepting. Resolves when the port is free and all connections have ended. Must be called after {@link
   * listen}. Idempotent.
   */
  close(): Promise<void> {
    this.#cancelPause?.();
    this.#closing ??= new Promise((resolve) => {
      this.#end = () => {
        this.#server.dropPending?.();
        this.#server.close(() => resolve());
      };
      // A socket that is about to listen can be closed only once it listens.
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
    if (this.#isAdopting) return this.#keeps(connection);
    const address = connection.remoteAddress ?? '';
    const verdict = this.#state === 'open' ? this.#limits.admit(address) : 'refuse';
    if (verdict === 'accept') return this.#keeps(connection);
    this.#parts.onRefused();
    turnAway(connection);
    if (verdict === 'pause' && this.#parts.keepsPort !== true) this.#pause(address);
    return false;
  }

  #keeps(connection: Connection): boolean {
    return this.#parts.keeps?.(connection, this.#isAdopting) !== false;
  }

  #pause(address: string): void {
    const { env, plane } = this.#parts;
    this.#state = 'paused';
    // Accepted connections stay open: they may be handshakes of members.
    this.#server.close();
    this.#resumeLater();
    env.metrics.count('meshcache_listen_pauses_total', 1, { plane });
    this.#log.log(
      'warn',
      'unauthenticated connection flood: accepting is paused for a moment; block the source with a firewall',
      {
        plane,
        // A connection that has already ended has no address.
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
    // Another process may hold the port for long. Listening is retried ten times a second, and the failure reported
    // once.
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

  /** Throws `InvariantError` unless the connection limits are consistent. */
  verify(): void {
    this.#limits.verify();
  }
}
