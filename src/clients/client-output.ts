import type { Connection } from '../base/environment/network.js';
import { CLIENT_SMALL_BODY_BYTES } from '../base/limits.js';
import type { ServedConnection } from '../net/served/served-connection.js';
import { type AnswerBody, encodeFrame, encodeHeader, type FrameHeader, type Status } from './wire/messages.js';

/** Counts the memory of pages in one answer that is being built. */
export interface AnswerPages {
  /** Takes memory for a page; returns false if there is not enough now. */
  take(bytes: number): boolean;
  /** Stops counting the pages here. After this they wait in the client's socket and are counted there. */
  end(): void;
}

/** Smallest amount of page memory to request at a time, because each request checks all clients. */
const GRANT_MIN_BYTES = 2 ** 20;

/**
 * The answers to one client. Counts their pages while they are built, and all their bytes until the client has read
 * them.
 */
export class ClientOutput {
  readonly #socket: Connection;
  readonly #served: ServedConnection;
  /** Above this many unread bytes, no further request of the client is run. */
  readonly #maxBytes: number;
  /** Whether the client's answers may grow by `moreBytes`. All clients share the node's limit for answers. */
  readonly #mayHave: (moreBytes: number) => boolean;
  #makingBytes = 0;

  constructor(
    socket: Connection,
    served: ServedConnection,
    { maxBytes, mayHave }: { readonly maxBytes: number; readonly mayHave: (moreBytes: number) => boolean },
  ) {
    this.#socket = socket;
    this.#served = served;
    this.#maxBytes = maxBytes;
    this.#mayHave = mayHave;
  }

  /** Bytes that the client has not read yet, plus pages of answers that are being built. */
  get bytes(): number {
    return this.#served.waitingBytes + this.#makingBytes;
  }

  /**
   * Whether so many bytes are unread that no further request is run until the client reads. The client's own limit and
   * the limit shared by all clients both count.
   */
  get isFull(): boolean {
    const bytes = this.#served.waitingBytes;
    return bytes > this.#maxBytes || (bytes > CLIENT_SMALL_BODY_BYTES && !this.#mayHave(0));
  }

  /** Begins to count an answer with pages. */
  begin(): AnswerPages {
    let grantedBytes = 0;
    let leftBytes = 0;
    return {
      take: (bytes) => {
        if (bytes > leftBytes) {
          const moreBytes = Math.max(bytes - leftBytes, GRANT_MIN_BYTES);
          if (!this.#mayHave(moreBytes)) return false;
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

  /** Sends an answer. The body must not change afterwards. */
  write({ type, requestId }: Pick<FrameHeader, 'type' | 'requestId'>, status: Status, body: AnswerBody): void {
    const socket = this.#socket;
    const pieces = body instanceof Uint8Array ? [body] : body;
    let bodyBytes = 0;
    for (const { length } of pieces) bodyBytes += length;
    const header = { bodyBytes, type, status, requestId, deadlineMs: 0 };
    if (bodyBytes <= CLIENT_SMALL_BODY_BYTES) {
      socket.write(encodeFrame(header, pieces));
    } else {
      socket.cork();
      socket.write(encodeHeader(header));
      for (const piece of pieces) socket.write(piece);
      socket.uncork();
    }
    this.#served.wrote();
  }
}
