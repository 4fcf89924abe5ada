import type { Clock } from '../base/environment/clock.js';
import type { Connection } from '../base/environment/network.js';

/** Writes frames to a connection; those that are written by what runs now leave together. */
export class FrameWriter {
  readonly #socket: Connection;
  readonly #clock: Clock;
  #corked = false;

  constructor(socket: Connection, clock: Clock) {
    this.#socket = socket;
    this.#clock = clock;
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
      this.#clock.soon(() => {
        this.#corked = false;
        this.#socket.uncork();
      });
    }
    this.#socket.write(bytes);
  }
}
