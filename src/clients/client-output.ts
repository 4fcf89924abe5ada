import type { Clock } from '../base/environment/clock.js';
import type { Connection } from '../base/environment/network.js';
import { CLIENT_SMALL_BODY_BYTES } from '../base/limits.js';
import { type AnswerBody, encodeHeader, type FrameHeader, type Status } from './wire/messages.js';

/** Memory for pages in the answer to one request that is being made. */
export interface AnswerPages {
  /** Takes memory for a page; false: there is none for it now. */
  take(bytes: number): boolean;
  /** Counts the pages no more: what was made waits in the socket of the client, and is counted there. */
  end(): void;
}

/** Least memory for pages that is asked for at a time: asking costs a look at all clients. */
const GRANT_MIN_BYTES = 2 ** 20;

export interface ClientOutputParts {
  readonly socket: Connection;
  /** While more than this waits, the client is given nothing further. */
  readonly maxBytes: number;
  /** Whether the client may have so much more in answers; all clients share what the node has for them. */
  readonly mayHave: (moreBytes: number) => boolean;
  readonly clock: Clock;
  readonly stallTimeoutMs: number;
  /** Called when the client has read nothing for the time limit. */
  readonly onStalled: () => void;
}

/** The answers to one client: their pages while they are being made, and all of them until the client has read them. */
export class ClientOutput {
  readonly #parts: ClientOutputParts;
  #takenBytes = 0;
  #makingBytes = 0;
  #cancelTimer: (() => void) | undefined;

  constructor(parts: ClientOutputParts) {
    this.#parts = parts;
  }

  /** Bytes that the client has not read yet, and those of pages in answers that are being made. */
  get bytes(): number {
    return this.#waitingBytes + this.#makingBytes;
  }

  /**
   * Whether so much waits for the client to read it, for its limit or for what all clients share, that it is given
   * nothing further before it has read.
   */
  get isFull(): boolean {
    const { maxBytes, mayHave } = this.#parts;
    const bytes = this.#waitingBytes;
    return bytes > maxBytes || (bytes > CLIENT_SMALL_BODY_BYTES && !mayHave(0));
  }

  get #waitingBytes(): number {
    return this.#parts.socket.writableLength;
  }

  /** Begins an answer with pages. */
  begin(): AnswerPages {
    let grantedBytes = 0;
    let leftBytes = 0;
    return {
      take: (bytes) => {
        if (bytes > leftBytes) {
          const moreBytes = Math.max(bytes - leftBytes, GRANT_MIN_BYTES);
          if (!this.#parts.mayHave(moreBytes)) return false;
          grantedBytes += moreBytes;
          leftBytes += moreBytes;
          this.#makingBytes += moreBytes;
        }
        leftBytes -= bytes;
        return true;
      },
      end: () => {
        this.#makingBytes -= grantedBytes;
        grantedBytes = 0;
        leftBytes = 0;
      },
    };
  }

  /** Sends an answer; the body must not change any more. */
  write({ type, requestId }: Pick<FrameHeader, 'type' | 'requestId'>, status: Status, body: AnswerBody): void {
    const { socket } = this.#parts;
    const pieces = body instanceof Uint8Array ? [body] : body;
    const bodyBytes = pieces.reduce((sum, { length }) => sum + length, 0);
    const header = encodeHeader({ bodyBytes, type, status, requestId, deadlineMs: 0 });
    if (bodyBytes <= CLIENT_SMALL_BODY_BYTES) {
      socket.write(bodyBytes === 0 ? header : Buffer.concat([header, ...pieces]));
    } else {
      socket.cork();
      socket.write(header);
      for (const piece of pieces) socket.write(piece);
      socket.uncork();
    }
    if (this.#waitingBytes > 0 && this.#cancelTimer === undefined) this.#watch();
  }

  /** Stops watching for a stalled client. */
  close(): void {
    this.#cancelTimer?.();
  }

  #watch(): void {
    const { socket, clock, stallTimeoutMs, onStalled } = this.#parts;
    this.#takenBytes = socket.bytesWritten - this.#waitingBytes;
    this.#cancelTimer = clock.after(stallTimeoutMs, () => {
      this.#cancelTimer = undefined;
      if (this.#waitingBytes === 0) return;
      if (socket.bytesWritten - this.#waitingBytes > this.#takenBytes) this.#watch();
      else onStalled();
    });
  }
}
