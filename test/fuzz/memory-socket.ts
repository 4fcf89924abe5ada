import { EventEmitter } from 'node:events';
import { Duplex } from 'node:stream';
import type {
  Connection,
  ConnectOptions,
  ListenOptions,
  Network,
  ReceiveInto,
  Server,
} from '../../src/base/environment/network.js';

/** A socket without a system below it: what it is fed it receives at once, what it sends is there to be looked at. */
export class MemorySocket extends Duplex implements Connection {
  readonly remoteAddress = '192.0.2.1';
  readonly remotePort = 1024;
  readonly #sent: Buffer[] = [];
  readonly #onRead: ReceiveInto | undefined;
  #target: Uint8Array | undefined;
  #takenBytes = 0;
  /** What takes the write in progress; undefined: none waits. */
  #take: (() => void) | undefined;
  /** Whether the peer takes nothing of what is written. */
  isStuck = false;

  constructor(onRead?: ReceiveInto) {
    super();
    this.#onRead = onRead;
  }

  get sent(): Buffer {
    return Buffer.concat(this.#sent);
  }

  /** As the system's sockets have it: ends when what was written has been sent. */
  destroySoon(): void {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once('finish', () => this.destroy());
  }

  resetAndDestroy(): void {
    this.destroy();
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  override _read(): void {}

  /** Bytes written so far, including those that wait. */
  get bytesWritten(): number {
    return this.#takenBytes + this.writableLength;
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#take = () => {
      this.#take = undefined;
      this.#sent.push(Buffer.from(chunk));
      this.#takenBytes += chunk.length;
      done();
    };
    if (!this.isStuck) this.#take();
  }

  /** The peer takes one write that waits. */
  takeOne(): void {
    this.#take?.();
  }

  connected(): void {
    if (this.#onRead !== undefined) this.#target = this.#nextTarget();
    this.emit('connect');
  }

  /** Receives the pieces one after the other, as long as it is open; not while it is paused. */
  async feed(pieces: readonly Buffer[]): Promise<void> {
    for (const piece of pieces) {
      while (this.isPaused() && !this.destroyed) await turn();
      if (this.destroyed) return;
      if (this.#onRead === undefined) this.emit('data', piece);
      else this.#land(piece, this.#onRead);
    }
    while (this.isPaused() && !this.destroyed) await turn();
  }

  /** The peer ends its side. */
  async hangUp(): Promise<void> {
    if (!this.destroyed) this.emit('end');
    this.destroy();
    await turn();
  }

  #land(piece: Buffer, { callback }: ReceiveInto): void {
    for (let at = 0; at < piece.length && !this.destroyed; ) {
      const target = this.#target as Uint8Array;
      const count = Math.min(target.length, piece.length - at);
      target.set(piece.subarray(at, at + count));
      at += count;
      callback(count, target);
      if (!this.destroyed) this.#target = this.#nextTarget();
    }
  }

  #nextTarget(): Uint8Array {
    return (this.#onRead as ReceiveInto).buffer();
  }
}

/** Resolves when everything that is due has run: ticks, promises, events of closed sockets. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** A network of {@link MemorySocket}s: servers get theirs by `accept`, clients theirs are in `connections`. */
export class MemoryNetwork implements Network {
  readonly connections: MemorySocket[] = [];
  #onConnection: ((connection: Connection) => void) | undefined;

  connect(options: ConnectOptions): MemorySocket {
    const socket = new MemorySocket(options.onread);
    this.connections.push(socket);
    return socket;
  }

  createServer(_options: ListenOptions, onConnection: (connection: Connection) => void): Server {
    this.#onConnection = onConnection;
    return new MemoryServer();
  }

  accept(): MemorySocket {
    const socket = new MemorySocket();
    this.#onConnection?.(socket);
    return socket;
  }
}

class MemoryServer extends EventEmitter implements Server {
  listen(): this {
    setImmediate(() => this.emit('listening'));
    return this;
  }

  address(): { readonly address: string; readonly port: number } {
    return { address: '192.0.2.2', port: 1 };
  }

  close(done?: () => void): this {
    if (done !== undefined) setImmediate(done);
    return this;
  }

  unref(): this {
    return this;
  }
}
