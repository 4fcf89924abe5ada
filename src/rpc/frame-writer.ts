import type { Socket } from 'node:net';

/** Writes frames to a socket; those of one tick leave together. */
export class FrameWriter {
  readonly #socket: Socket;
  #corked = false;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** Bytes that the peer has not taken yet. */
  get bufferedBytes(): number {
    return this.#socket.writableLength;
  }

  /** `bytes` must not change afterwards. */
  write(bytes: Buffer): void {
    if (this.#socket.destroyed) return;
    if (!this.#corked) {
      this.#corked = true;
      this.#socket.cork();
      process.nextTick(() => {
        this.#corked = false;
        this.#socket.uncork();
      });
    }
    this.#socket.write(bytes);
  }
}
