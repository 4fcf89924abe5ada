import type { Clock } from '../base/environment/clock.js';
import type { Connection } from '../base/environment/network.js';
import { CLIENT_SMALL_BODY_BYTES } from '../base/limits.js';
import { encodeHeader, type FrameHeader, type Status } from './wire/messages.js';

export interface ClientOutputParts {
  readonly socket: Connection;
  readonly clock: Clock;
  readonly stallTimeoutMs: number;
  /** Called when the client has read nothing for the time limit. */
  readonly onStalled: () => void;
}

/** The answers to one client that are being written. */
export class ClientOutput {
  readonly #parts: ClientOutputParts;
  #takenBytes = 0;
  #cancelTimer: (() => void) | undefined;

  constructor(parts: ClientOutputParts) {
    this.#parts = parts;
  }

  /** Bytes that the client has not read yet. */
  get waitingBytes(): number {
    return this.#parts.socket.writableLength;
  }

  /** Sends an answer; the body must not change any more. */
  write({ type, requestId }: Pick<FrameHeader, 'type' | 'requestId'>, status: Status, body: Buffer): void {
    const { socket } = this.#parts;
    const header = encodeHeader({ bodyBytes: body.length, type, status, requestId, deadlineMs: 0 });
    if (body.length <= CLIENT_SMALL_BODY_BYTES) {
      socket.write(body.length === 0 ? header : Buffer.concat([header, body]));
    } else {
      socket.cork();
      socket.write(header);
      socket.write(body);
      socket.uncork();
    }
    if (this.waitingBytes > 0 && this.#cancelTimer === undefined) this.#watch();
  }

  /** Stops watching for a stalled client. */
  close(): void {
    this.#cancelTimer?.();
  }

  #watch(): void {
    const { socket, clock, stallTimeoutMs, onStalled } = this.#parts;
    this.#takenBytes = socket.bytesWritten - this.waitingBytes;
    this.#cancelTimer = clock.after(stallTimeoutMs, () => {
      this.#cancelTimer = undefined;
      if (this.waitingBytes === 0) return;
      if (socket.bytesWritten - this.waitingBytes > this.#takenBytes) this.#watch();
      else onStalled();
    });
  }
}
