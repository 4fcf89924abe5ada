import { EventEmitter } from 'node:events';
import {
  type Connection,
  type ConnectOptions,
  isEveryAddress,
  type ListenOptions,
  type ListenTarget,
  type Network,
  type Server,
} from '../../../base/environment/network.js';
import type { Fabric } from './fabric.js';
import type { NetworkProcess } from './host-network.js';
import type { SimConnection } from './sim-connection.js';

/** Most connections that the kernel establishes before the program accepts them. */
const BACKLOG_COUNT = 511;

/** A listening socket of a simulated process, which behaves like a `net.Server`. */
export class SimServer extends EventEmitter implements Server {
  readonly process: NetworkProcess;
  readonly options: ListenOptions;
  readonly #fabric: Fabric;
  readonly #onConnection: (connection: SimConnection) => void;
  readonly #connections = new Set<SimConnection>();
  /** Connections that the kernel has established and the program has not accepted. */
  readonly #backlog = new Set<SimConnection>();
  #bound: { readonly address: string; readonly port: number } | string | null = null;
  /** Changes with every `listen` and `close`. */
  #generation = 0;
  #onClosed: (() => void)[] = [];

  constructor(
    parts: { readonly fabric: Fabric; readonly process: NetworkProcess; readonly options: ListenOptions },
    onConnection: (connection: SimConnection) => void,
  ) {
    super();
    this.#fabric = parts.fabric;
    this.process = parts.process;
    this.options = parts.options;
    this.#onConnection = onConnection;
  }

  /** Plane to which the traffic of its connections belongs. */
  get plane(): string {
    return this.options.plane ?? 'other';
  }

  get isBacklogFull(): boolean {
    return this.#backlog.size >= BACKLOG_COUNT;
  }

  /** The address on which it listens, which distinguishes servers of one port. */
  get boundAddress(): string | undefined {
    return typeof this.#bound === 'string' ? undefined : this.#bound?.address;
  }

  isReachedAt(address: string): boolean {
    const { boundAddress } = this;
    return boundAddress !== undefined && (isEveryAddress(boundAddress) || boundAddress === address);
  }

  override on(event: string, listener: (...values: never[]) => void): this {
    return super.on(event, listener as (...values: unknown[]) => void);
  }

  listen(target: ListenTarget): this {
    const generation = ++this.#generation;
    this.process.schedule('listen', () => {
      if (generation !== this.#generation) return;
      const bound = this.#fabric.bind(this, target);
      if (bound instanceof Error) {
        this.emit('error', bound);
        return;
      }
      this.#bound = bound;
      this.process.servers.add(this);
      this.emit('listening');
    });
    return this;
  }

  address(): { readonly address: string; readonly port: number } | string | null {
    return this.#bound;
  }

  close(done?: () => void): this {
    this.#unbind();
    if (done !== undefined) this.#onClosed.push(done);
    for (const connection of this.#backlog) connection.resetAndDestroy();
    this.#backlog.clear();
    this.#closedWhenUnused();
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  /** Accepts a connection that the kernel has established. */
  accept(connection: SimConnection): void {
    this.#backlog.add(connection);
    const { process } = this;
    process.enter('accept', () => {
      if (!this.#backlog.delete(connection) || connection.destroyed) return;
      this.#connections.add(connection);
      connection.on('close', () => {
        this.#connections.delete(connection);
        this.#closedWhenUnused();
      });
      if (this.options.admit?.(connection) === false) return;
      this.#onConnection(connection);
      connection.opened();
    });
  }

  /** Closes the server of a process that has died. */
  closedByKernel(): void {
    this.removeAllListeners();
    this.#onClosed = [];
    this.#unbind({ leavesPath: true });
    for (const connection of this.#backlog) connection.closedByKernel();
    this.#backlog.clear();
  }

  #unbind({ leavesPath = false } = {}): void {
    this.#generation++;
    const isPath = typeof this.#bound === 'string';
    if (this.#bound !== null && !(isPath && leavesPath)) this.#fabric.unbind(this, this.#bound);
    this.#bound = null;
    this.process.servers.delete(this);
  }

  #closedWhenUnused(): void {
    if (this.#bound !== null || this.#connections.size > 0 || this.#onClosed.length === 0) return;
    const generation = this.#generation;
    this.process.schedule('closed', () => {
      if (generation !== this.#generation || this.#connections.size > 0) return;
      for (const onClosed of this.#onClosed.splice(0)) onClosed();
      this.emit('close');
    });
  }
}

/** The network as one process sees it. It has no TLS. */
export class SimNetwork implements Network {
  readonly #process: NetworkProcess;
  readonly #fabric: Fabric;

  constructor(process: NetworkProcess, fabric: Fabric) {
    this.#process = process;
    this.#fabric = fabric;
  }

  connect(options: ConnectOptions): Connection {
    return this.#fabric.connect(this.#process, options);
  }

  createServer(options: ListenOptions, onConnection: (connection: Connection) => void): Server {
    return new SimServer({ fabric: this.#fabric, process: this.#process, options }, onConnection);
  }
}
