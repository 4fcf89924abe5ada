import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import type { Sharer } from '../base/concurrency/shares.js';
import type { WorkTurns } from '../base/concurrency/work-turns.js';

interface PacedStreamParts {
  readonly turns: WorkTurns;
  readonly sharer: Sharer;
  /** Most bytes that a reader gets in one turn. */
  readonly pieceBytes: number;
}

/**
 * An accepted connection as a stream that delivers received bytes in small pieces, each when it is the peer's turn. It
 * is for readers that execute everything in the bytes they get before they return, as Node's HTTP server does: 64 KiB
 * can contain well over a thousand requests. While a piece waits, nothing more is read from the socket.
 */
export class PacedStream extends Duplex {
  readonly #socket: Socket;
  readonly #parts: PacedStreamParts;
  #chunks: Buffer[] = [];
  #isWaiting = false;
  /** Whether the reader wants nothing until it asks again. */
  #isFull = false;
  #hasEnded = false;

  constructor(socket: Socket, parts: PacedStreamParts) {
    // With this mark, a paused reader also finds at most one piece when it resumes.
    super({ allowHalfOpen: true, readableHighWaterMark: 1 });
    this.#socket = socket;
    this.#parts = parts;
    socket.on('data', (bytes) => this.#add(bytes));
    socket.on('end', () => this.#end());
    socket.on('timeout', () => this.emit('timeout'));
    socket.on('error', (error) => this.destroy(error));
    socket.on('close', () => this.destroy());
  }

  get remoteAddress(): string | undefined {
    return this.#socket.remoteAddress;
  }

  /** Whether the connection uses TLS. */
  get encrypted(): boolean {
    return 'encrypted' in this.#socket && this.#socket.encrypted === true;
  }

  /** Whether the peer has presented an accepted certificate. */
  get authorized(): boolean {
    return 'authorized' in this.#socket && this.#socket.authorized === true;
  }

  /** Emits `timeout` when nothing has been received or sent for `ms` milliseconds. */
  setTimeout(ms: number): this {
    this.#socket.setTimeout(ms);
    return this;
  }

  /** Ends the connection when everything that was written has been sent. */
  destroySoon(): void {
    this.end(() => this.destroy());
  }

  override _read(): void {
    if (!this.#isFull) return;
    this.#isFull = false;
    this.#takeNext();
  }

  override _write(bytes: Buffer, _encoding: BufferEncoding, done: () => void): void {
    if (this.#socket.write(bytes)) done();
    else this.#socket.once('drain', done);
  }

  override _writev(chunks: readonly { readonly chunk: Buffer }[], done: () => void): void {
    this._write(Buffer.concat(chunks.map(({ chunk }) => chunk)), 'binary', done);
  }

  override _final(done: () => void): void {
    this.#socket.end(done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#chunks = [];
    this.#socket.destroy();
    done(error);
  }

  #add(bytes: Buffer): void {
    this.#chunks.push(bytes);
    this.#takeNext();
  }

  #end(): void {
    this.#hasEnded = true;
    this.#takeNext();
  }

  #takeNext(): void {
    if (this.#isWaiting || this.#isFull || this.destroyed) return;
    if (this.#chunks.length === 0) {
      if (this.#hasEnded) this.push(null);
      else this.#socket.resume();
      return;
    }
    this.#isWaiting = true;
    const takePiece = (): void => {
      this.#isWaiting = false;
      this.#takePiece();
      this.#takeNext();
    };
    this.#parts.turns.run(this.#parts.sharer, takePiece, { goesOn: true });
    if (this.#isWaiting || this.#isFull) this.#socket.pause();
  }

  #takePiece(): void {
    const [chunk] = this.#chunks;
    if (chunk === undefined) return;
    const { pieceBytes } = this.#parts;
    if (chunk.length <= pieceBytes) this.#chunks.shift();
    else this.#chunks[0] = chunk.subarray(pieceBytes);
    this.#isFull = !this.push(chunk.subarray(0, pieceBytes));
  }
}
