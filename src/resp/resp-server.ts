import { createHash, timingSafeEqual } from 'node:crypto';
import { assert, assertAtMost, assertEqual } from '../base/assert.js';
import { ByteBudget } from '../base/concurrency/byte-budget.js';
import { PauseWatch } from '../base/concurrency/pause-watch.js';
import { within } from '../base/environment/clock.js';
import type { Environment } from '../base/environment/environment.js';
import { type Connection, formatEndpoint, listenAt, portOf, type Server } from '../base/environment/network.js';
import { ConfigError } from '../base/errors.js';
import { KEEP_ALIVE_DELAY_MS } from '../base/limits.js';
import { type LocalSocket, listenLocally } from '../net/local-socket.js';
import type { StoredPages } from '../store/namespace/namespace-pages.js';
import { ArgumentMemory } from './argument-memory.js';
import type { RespFacts } from './commands/command.js';
import { COMMANDS } from './commands/command-table.js';
import { RespConnection } from './resp-connection.js';
import { RespCounts } from './resp-counts.js';
import { type RespLimits, respLimits } from './resp-limits.js';
import { RespPages } from './values/resp-pages.js';
import type { WaitingTotal } from './waiting-commands.js';
import { errorAnswer } from './wire/resp-answers.js';

/** Where the door for Redis clients is, and who may use it. */
export interface RespServerOptions {
  /** Host and port to listen on; port 0 is any free one. */
  readonly endpoint?: { readonly host: string; readonly port: number } | undefined;
  /** A Unix socket to listen at. */
  readonly socket?: Omit<LocalSocket, 'key'> | undefined;
  /** Passwords, any of which authenticates a client; undefined: none is needed. */
  readonly passwords?: readonly string[] | undefined;
  /** Passwords for clients that come by the port, if they differ. */
  readonly portPasswords?: readonly string[] | undefined;
  /** Limits that replace those of production, for tests. */
  readonly limits?: Partial<RespLimits> | undefined;
}

export interface RespServerParts {
  readonly env: Environment;
  readonly pages: StoredPages;
  /** What clients may ask about the node; what the server knows itself is left out. */
  readonly facts: Omit<RespFacts, 'port' | 'clients' | 'commands' | 'uptimeS' | 'wallMs'>;
}

/** The door of a node for Redis clients: a port and a Unix socket that speak RESP2 and RESP3. docs/redis.md describes it for users. */
export class RespServer {
  readonly #options: RespServerOptions;
  readonly #parts: RespServerParts;
  readonly #limits: RespLimits;
  readonly #servers: Server[] = [];
  readonly #connections = new Set<RespConnection>();
  readonly #arguments: ByteBudget;
  readonly #memory = new ArgumentMemory();
  readonly #pages: RespPages;
  readonly #waiting: WaitingTotal = { bytes: 0 };
  readonly #counts: RespCounts;
  readonly #facts: RespFacts;
  readonly #pauses: PauseWatch;
  #lastId = 0;
  #port = 0;
  #onIdle: (() => void)[] = [];
  #closing: Promise<void> | undefined;

  /** Listens. Throws `ConfigError` if the port or the path cannot be used. */
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
    const { env, pages, facts } = parts;
    this.#options = options;
    this.#parts = parts;
    this.#limits = respLimits(options.limits);
    this.#arguments = new ByteBudget(this.#limits.argumentsBudgetBytes);
    this.#pages = new RespPages(pages, new ByteBudget(this.#limits.valuesBudgetBytes));
    this.#counts = new RespCounts(env.metrics, COMMANDS.keys());
    this.#pauses = new PauseWatch(env.clock);
    const startMs = env.clock.nowMs();
    this.#facts = {
      ...facts,
      port: 0,
      wallMs: () => env.clock.wallMs(),
      uptimeS: () => (env.clock.nowMs() - startMs) / 1000,
      clients: () => this.#connections.size,
      commands: () => this.#counts.commands,
    };
    env.metrics.setGaugeProvider('meshcache_resp_connections', () => this.#connections.size);
  }

  /** `host:port` of the port; empty without one. */
  get endpoint(): string {
    const { endpoint } = this.#options;
    return endpoint === undefined ? '' : formatEndpoint({ ...endpoint, port: this.#port });
  }

  /** Path of the Unix socket; empty without one. */
  get path(): string {
    return this.#options.socket?.path ?? '';
  }

  /** Number of open connections. */
  get connectionsCount(): number {
    return this.#connections.size;
  }

  /** Number of commands that were carried out or refused. */
  get commandsCount(): number {
    return this.#counts.commands;
  }

  /**
   * Ends what is in progress, then all connections. Resolves when nothing reads from the pool any more, and the port is free. Idempotent.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#pauses.close();
    const closed = Promise.all(
      this.#servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))),
    );
    const idle = new Promise<void>((resolve) => this.#onIdle.push(resolve));
    for (const connection of [...this.#connections]) connection.finish();
    this.#tellIdle();
    await within(this.#parts.env.clock, this.#limits.finishTimeoutMs, idle);
    for (const connection of [...this.#connections]) connection.close('the node is closing');
    await idle;
    await closed;
  }

  async #listen(): Promise<void> {
    const { endpoint, socket, passwords, portPasswords } = this.#options;
    const { env } = this.#parts;
    const onError = (error: Error): void => env.log.log('error', 'redis door failed', { error: error.message });
    if (endpoint !== undefined) {
      const server = this.#serve(portPasswords ?? passwords);
      try {
        await listenAt(server, { ...endpoint, exclusive: true }, onError);
      } catch (cause) {
        throw listenError(cause as NodeJS.ErrnoException, endpoint);
      }
      this.#servers.push(server);
      this.#port = portOf(server);
    }
    if (socket !== undefined) {
      const server = this.#serve(passwords);
      await listenLocally(server, { ...socket, key: 'resp_socket' }, { env, onError });
      this.#servers.push(server);
    }
    env.log.log('info', 'serving redis clients', {
      endpoint: this.endpoint || undefined,
      path: this.path || undefined,
    });
  }

  #serve(passwords: readonly string[] | undefined): Server {
    const isPassword = passwords && passwordCheck(passwords);
    const options = {
      plane: 'resp',
      allowHalfOpen: true,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_DELAY_MS,
    };
    return this.#parts.env.network.createServer(options, (socket) => this.#accept(socket, isPassword));
  }

  #accept(socket: Connection, isPassword: ((password: Buffer) => boolean) | undefined): void {
    const { env } = this.#parts;
    if (this.#closing !== undefined || !this.#hasRoom()) {
      this.#counts.refused();
      socket.on('error', () => {});
      socket.end(errorAnswer('ERR max number of clients reached'));
      socket.destroySoon();
      return;
    }
    const connection = new RespConnection({
      socket,
      id: ++this.#lastId,
      limits: this.#limits,
      budget: this.#arguments,
      memory: this.#memory,
      waiting: this.#waiting,
      pages: this.#pages,
      facts: { ...this.#facts, port: this.#port },
      counts: this.#counts,
      isPassword,
      clock: env.clock,
      pauses: this.#pauses,
      log: env.log,
      onEnded: (ended) => {
        this.#connections.delete(ended);
        this.#tellIdle();
      },
    });
    this.#connections.add(connection);
  }

  /** Whether there is room for a connection. The oldest one that has not authenticated itself makes room: it must not keep others out. */
  #hasRoom(): boolean {
    if (this.#connections.size < this.#limits.connectionsMaxCount) return true;
    for (const connection of this.#connections) {
      if (connection.isTrusted) continue;
      this.#counts.refused();
      connection.close('too many connections that are not authenticated');
      return this.#connections.size < this.#limits.connectionsMaxCount;
    }
    return false;
  }

  #tellIdle(): void {
    if (this.#connections.size > 0) return;
    for (const resolve of this.#onIdle.splice(0)) resolve();
  }

  /** @internal Throws `InvariantError` unless the connections are within their limits, and each is consistent. */
  verify(): void {
    for (const connection of this.#connections) connection.verify();
    assertAtMost('redis door: connections', this.#connections.size, this.#limits.connectionsMaxCount);
    this.#arguments.verify();
    this.#pages.budget.verify();
    assert(this.#waiting.bytes >= 0, () => `redis door: ${this.#waiting.bytes} bytes wait`);
    if (this.#connections.size === 0) assertEqual('redis door: bytes that wait', this.#waiting.bytes, 0);
  }
}

/** Compares digests, so that the time of a comparison tells nothing about a password. */
function passwordCheck(passwords: readonly string[]): (password: Buffer) => boolean {
  const digest = (text: string | Buffer): Buffer => createHash('sha256').update(text).digest();
  const right = passwords.map(digest);
  return (password) => {
    const given = digest(password);
    let isRight = false;
    for (const each of right) isRight = timingSafeEqual(each, given) || isRight;
    return isRight;
  };
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
