/*
 * Two plain sockets that only copy. They show what Node.js itself can do, which is the ceiling for the
 * transport. Request: u32 count, u32 page length in bytes, then u32 page numbers. Answer: the pages,
 * one after the other.
 */
import net from 'node:net';

/** Most bytes received at a time; very large buffers are slower. */
const RECEIVE_MAX_BYTES = 256 * 1024;
const HEADER_BYTES = 8;

/** Serves pages of `pool` on a loopback port from the main thread; resolves with the port. */
export function servePlainly(pool: Uint8Array): Promise<number> {
  const server = net.createServer({ noDelay: true }, (socket) => {
    let input: Buffer = Buffer.alloc(0);
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => {
      input = input.length === 0 ? chunk : Buffer.concat([input, chunk]);
      while (input.length >= HEADER_BYTES) {
        const count = input.readUInt32LE(0);
        const requestBytes = HEADER_BYTES + 4 * count;
        if (input.length < requestBytes) break;
        const pageBytes = input.readUInt32LE(4);
        socket.cork();
        for (let at = HEADER_BYTES; at < requestBytes; at += 4) {
          const offset = pool.byteOffset + input.readUInt32LE(at) * pageBytes;
          socket.write(Buffer.from(pool.buffer as ArrayBuffer, offset, pageBytes));
        }
        socket.uncork();
        input = input.subarray(requestBytes);
      }
    });
  });
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve((server.address() as net.AddressInfo).port));
  });
}

/** Pages to request in one message, and memory of the same total length that they go to, in order. */
export interface PlainBatch {
  readonly pages: readonly number[];
  readonly destinations: readonly Uint8Array[];
}

/** The reading side: one connection, one batch at a time, received directly into the destinations. */
export class PlainReader {
  readonly #socket: net.Socket;
  readonly #scratch = new Uint8Array(RECEIVE_MAX_BYTES);
  /** Destinations of the whole pass. */
  #destinations: Uint8Array[] = [];
  /** Index of the destination that is being filled. */
  #destination = 0;
  #filledBytes = 0;
  #batchRestBytes = 0;
  #onBatch: () => void = () => {};

  static connect(port: number): Promise<PlainReader> {
    return new Promise((resolve, reject) => {
      const reader = new PlainReader(port);
      reader.#socket.once('error', reject);
      reader.#socket.once('connect', () => resolve(reader));
    });
  }

  private constructor(port: number) {
    this.#socket = net.connect({
      host: '127.0.0.1',
      port,
      noDelay: true,
      onread: {
        buffer: () => this.#target(),
        callback: (count, bytes) => {
          this.#received(bytes, count);
          return true;
        },
      },
    });
  }

  /** Reads all batches one after the other. All destinations are known before the first byte arrives. */
  async readAll(batches: readonly PlainBatch[], pageBytes: number): Promise<void> {
    this.#destinations = batches.flatMap((batch) => batch.destinations);
    this.#destination = this.#filledBytes = 0;
    for (const { pages } of batches) {
      this.#batchRestBytes = pages.length * pageBytes;
      const done = new Promise<void>((resolve) => {
        this.#onBatch = resolve;
      });
      this.#socket.write(Buffer.from(Uint32Array.of(pages.length, pageBytes, ...pages).buffer));
      await done;
    }
  }

  close(): void {
    this.#socket.destroy();
  }

  #target(): Uint8Array {
    const destination = this.#destinations[this.#destination];
    if (destination === undefined) return this.#scratch;
    const from = this.#filledBytes;
    return destination.subarray(from, Math.min(destination.length, from + RECEIVE_MAX_BYTES));
  }

  #received(bytes: Uint8Array, count: number): void {
    if (bytes.buffer === this.#scratch.buffer) this.#copy(bytes.subarray(0, count));
    else this.#advance(count);
    this.#batchRestBytes -= count;
    if (this.#batchRestBytes === 0) this.#onBatch();
  }

  #copy(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; ) {
      const destination = this.#destinations[this.#destination] as Uint8Array;
      const take = Math.min(bytes.length - at, destination.length - this.#filledBytes);
      destination.set(bytes.subarray(at, at + take), this.#filledBytes);
      at += take;
      this.#advance(take);
    }
  }

  #advance(count: number): void {
    this.#filledBytes += count;
    if (this.#filledBytes < (this.#destinations[this.#destination]?.length ?? 0)) return;
    this.#destination++;
    this.#filledBytes = 0;
  }
}
