import type { Clock } from '../base/environment/clock.js';
import type { Connection } from '../base/environment/network.js';
import { type FrameTags, TAG_BYTES } from '../memory/frame-tags.js';

/** Frames of at least this many bytes are sent at once. */
const SENT_AT_ONCE_MIN_BYTES = 1024;

/**
 * Writes frames to a connection. Small frames written in one turn of the event loop are sent together. A frame that is
 * worth its own system call is sent at once with those before it, so that the peer can begin while this node continues.
 */
export class FrameWriter {
  readonly #socket: Connection;
  readonly #clock: Clock;
  /** The tags that frames carry; undefined without tags, as during the opening. */
  #tags: FrameTags | undefined;
  #corked = false;

  constructor(socket: Connection, clock: Clock) {
    this.#socket = socket;
    this.#clock = clock;
  }

  /** Bytes that the peer has not accepted yet. */
  get bufferedBytes(): number {
    return this.#socket.writableLength;
  }

  /** Adds tags to all later frames. Must be called at the end of the opening. */
  addTags(tags: FrameTags | undefined): void {
    this.#tags = tags;
  }

  /** Writes a frame, or a part of the opening; `bytes` must not change afterwards. */
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
    if (this.#tags !== undefined) {
      const tag = Buffer.allocUnsafe(TAG_BYTES);
      this.#tags.begin();
      this.#tags.beginPart(0);
      this.#tags.add(bytes);
      this.#tags.endPart(tag, 0);
      this.#socket.write(tag);
    }
    if (bytes.length < SENT_AT_ONCE_MIN_BYTES) return;
    this.#socket.uncork();
    this.#socket.cork();
  }
}
