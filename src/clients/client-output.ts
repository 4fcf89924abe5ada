import type { Connection } from '../base/environment/network.js';
import { CLIENT_SMALL_BODY_BYTES } from '../base/limits.js';
import type { ServedConnection } from '../net/served/served-connection.js';
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

/** The answers to one client: their pages while they are being made, and all of them until the client has read them. */
export class ClientOutput {
  readonly #socket: Connection;
  readonly #served: ServedConnection;
  /** While more than this waits, the client is given nothing further. */
  readonly #maxBytes: number;
  /** Whether the client may have so much more in answers; all clients share what the node has for them. */
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

  /** Bytes that the client has not read yet, and those of pages in answers that are being made. */
  get bytes(): number {
    return this.#served.waitingBytes + this.#makingBytes;
  }

  /**
   * Whether so much waits for the client to read it, for its limit or for what all clients share, that it is given
   * nothing further before it has read.
   */
  get isFull(): boolean {
    const bytes = this.#served.waitingBytes;
    return bytes > this.#maxBytes || (bytes > CLIENT_SMALL_BODY_BYTES && !this.#mayHave(0));
  }

  /** Begins an answer with pages. */
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

  /** Sends an answer; the body must not change any more. */
  write({ type, requestId }: Pick<FrameHeader, 'type' | 'requestId'>, status: Status, body: AnswerBody): void {
    const socket = this.#socket;
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
    this.#served.wrote();
  }
}
