import { assertAtMost, assertEqual } from '../../../base/assert.js';
import type { Environment } from '../../../base/environment/environment.js';
import type { Connection } from '../../../base/environment/network.js';
import type { MessageEnd } from '../../../base/environment/threads.js';
import { READ_TLS_WRITE_MAX_BYTES, READERS_KEEP_ALIVE_DELAY_MS } from '../../../base/limits.js';
import { AuthFailures } from '../../../net/auth-failures.js';
import { PendingConnections } from '../../../net/connection-limits.js';
import { Listener } from '../../../net/listener.js';
import type { TcpLimits } from '../protocol/limits.js';
import { dataTarget } from '../protocol/protocol.js';
import { MovedConnections, type ServingLoads } from './moved-connections.js';
import type { Registrations } from './registrations.js';
import { ServingConnection, type ServingCounters } from './serving-connection.js';

interface ServingParts {
  readonly registrations: Registrations;
  readonly counters: ServingCounters;
  readonly limits: TcpLimits;
  readonly env: Environment;
  /** Address to listen on, which readers use to reach this node. */
  readonly host: string;
  /** The threads that serve together with this one, and its number among them; undefined: it serves alone. */
  readonly group?: { readonly index: number; readonly loads: ServingLoads; readonly channel: MessageEnd } | undefined;
}

/** The listening side: answers the reads of peers out of registered memory. */
export class Serving {
  readonly #parts: ServingParts;
  readonly #listener: Listener;
  #port = 0;
  readonly #connections = new Map<Connection, ServingConnection>();
  readonly #authFailures: AuthFailures;
  /** Connections of unauthenticated readers. */
  readonly #pending: PendingConnections<Connection>;
  /** Connections that other threads of the group accept, or serve; undefined: this thread serves alone. */
  readonly #moved: MovedConnections | undefined;
  /** Called when the last connection has ended. */
  #onLastEnded: () => void = () => {};

  constructor(parts: ServingParts) {
    this.#parts = parts;
    const options = {
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: READERS_KEEP_ALIVE_DELAY_MS,
      plane: 'data',
    };
    this.#listener = new Listener({
      env: parts.env,
      plane: 'data',
      options,
      rates: parts.limits.connectionRates,
      keeps: (socket, isAdopted) => this.#moved?.keeps(socket, isAdopted) ?? true,
      onConnection: (socket) => this.#accepted(socket),
      onRefused: () => parts.counters.add('refusedConnections', 1),
      // A connection could not be accepted because the process has no descriptors left.
      onError: () => parts.counters.add('refusedConnections', 1),
    });
    this.#authFailures = new AuthFailures('data', parts.env, 'data');
    this.#pending = new PendingConnections(parts.limits.pendingMaxCount, (oldest) => {
      this.#ended(oldest);
      this.#refuse(oldest);
    });
    const { group, limits, env } = parts;
    if (group === undefined) return;
    this.#moved = new MovedConnections({
      ...group,
      clock: env.clock,
      timeoutMs: limits.handshakeTimeoutMs,
      onConnection: (descriptor) => this.#listener.adopt(descriptor),
      onProved: (address) => this.#listener.proved(address),
    });
  }

  /**
   * Starts to listen and resolves with the port (`port` 0: any free one); rejects with the error of `listen`. A thread
   * to which another one moves connections does not listen; peers connect to `port` of the other one.
   */
  async start(port: number): Promise<number> {
    const { group, host } = this.#parts;
    this.#port = group === undefined || group.index === 0 ? await this.#listener.listen(host, port) : port;
    return this.#port;
  }

  /**
   * Ends idle connections at once, and the others when the peer has received the current answer, at the latest after
   * `finishTimeoutMs`. Resolves when the port is free.
   */
  async stop(): Promise<void> {
    const { env, limits } = this.#parts;
    const cancel = env.clock.after(limits.finishTimeoutMs, () => {
      for (const socket of this.#connections.keys()) socket.destroy();
    });
    const closed = this.#listener.close();
    for (const connection of this.#connections.values()) connection.finish();
    await closed;
    // The listener knows nothing about connections that another thread has accepted.
    await new Promise<void>((resolve) => {
      this.#onLastEnded = resolve;
      if (this.#connections.size === 0) resolve();
    });
    this.#moved?.close();
    cancel();
  }

  /** Ends every connection at once; resolves when the port is free. Must be called after {@link start}. Idempotent. */
  async end(): Promise<void> {
    this.#moved?.close();
    const closed = this.#listener.close();
    for (const socket of this.#connections.keys()) socket.destroy();
    await closed;
  }

  #accepted(socket: Connection): void {
    const { registrations, counters, limits, env, host } = this.#parts;
    const isFull = this.#connections.size >= limits.connectionsMaxCount;
    if (isFull && this.#pending.count === 0) {
      this.#refuse(socket);
      return;
    }
    if (isFull) this.#pending.dropOldest();
    counters.add('connections', 1);
    socket.on('close', () => this.#ended(socket));
    const connection = new ServingConnection({
      socket,
      registrations,
      counters,
      limits,
      clock: env.clock,
      random: env.random,
      secrets: env.secrets,
      target: dataTarget({ host, port: this.#port }),
      writeMaxBytes: socket.encrypted ? READ_TLS_WRITE_MAX_BYTES : Number.POSITIVE_INFINITY,
      onOpen: () => {
        this.#pending.delete(socket);
        const address = socket.remoteAddress ?? '';
        if (this.#moved === undefined) this.#listener.proved(address);
        else this.#moved.proved(address);
      },
      onUnauthenticated: (reason) => this.#authFailures.record(reason, socket.remoteAddress ?? ''),
    });
    this.#connections.set(socket, connection);
    this.#pending.add(socket);
  }

  #ended(socket: Connection): void {
    if (this.#connections.delete(socket)) this.#parts.counters.add('connections', -1);
    this.#pending.delete(socket);
    if (this.#connections.size === 0) this.#onLastEnded();
  }

  #refuse(socket: Connection): void {
    this.#parts.counters.add('refusedConnections', 1);
    socket.on('error', () => {});
    socket.destroy();
  }

  /**
   * Throws `InvariantError` unless connections are counted and within their limits, and every pending one is among
   * them.
   */
  verify(): void {
    const { counters, limits } = this.#parts;
    assertEqual('serving: connections', counters.value('connections'), this.#connections.size);
    assertAtMost('serving: connections', this.#connections.size, limits.connectionsMaxCount);
    this.#pending.verify(this.#connections);
    this.#listener.verify();
  }
}
