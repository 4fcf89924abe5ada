import { decodeHeader, FRAME_HEADER_BYTES, type FrameHeader } from './messages.js';

export interface FrameReceiverParts {
  /** Throws for an invalid header. */
  readonly check: (header: FrameHeader) => void;
  /**
   * Called for a frame whose body has not arrived whole with its header. {@link FrameReceiver.begin} then takes memory
   * for it.
   */
  readonly onBegin: (header: FrameHeader) => void;
  /** Called with each frame; `body` belongs to the callee. */
  readonly onFrame: (header: FrameHeader, body: Buffer) => void;
}

const NOTHING = Buffer.alloc(0);

/** Builds frames from the pieces that come from a socket. */
export class FrameReceiver {
  readonly #parts: FrameReceiverParts;
  readonly #headerBytes = Buffer.alloc(FRAME_HEADER_BYTES);
  #filledBytes = 0;
  /** Header of the frame whose body is arriving. */
  #header: FrameHeader | undefined;
  /** Body that is arriving; undefined until there is memory for it. */
  #body: Buffer | undefined;
  /** Pieces of the body that came before there was memory. */
  #early: Buffer[] = [];
  #isStopped = false;

  constructor(parts: FrameReceiverParts) {
    this.#parts = parts;
  }

  /** Whether a frame has begun and not ended. */
  get isWithinFrame(): boolean {
    return this.#header !== undefined || this.#filledBytes > 0;
  }

  /** Processes a piece; throws what `check` throws. */
  receive(chunk: Buffer): void {
    for (let at = 0; at < chunk.length && !this.#isStopped; ) {
      at += this.#header === undefined ? this.#receiveHeader(chunk, at) : this.#receiveBody(chunk, at);
    }
  }

  /**
   * Takes memory for the announced body, inside of `onBegin` or later. Throws what `check` throws for the frames behind
   * it.
   */
  begin(): void {
    if (this.#header === undefined || this.#body !== undefined) return;
    this.#body = Buffer.allocUnsafeSlow(this.#header.bodyBytes);
    for (const chunk of this.#early.splice(0)) this.receive(chunk);
  }

  /** Stops handing out frames. */
  stop(): void {
    this.#isStopped = true;
    this.#header = undefined;
    this.#body = undefined;
    this.#early = [];
  }

  #receiveHeader(chunk: Buffer, at: number): number {
    const take = Math.min(FRAME_HEADER_BYTES - this.#filledBytes, chunk.length - at);
    chunk.copy(this.#headerBytes, this.#filledBytes, at, at + take);
    this.#filledBytes += take;
    if (this.#filledBytes < FRAME_HEADER_BYTES) return take;
    this.#filledBytes = 0;
    const header = decodeHeader(this.#headerBytes);
    this.#parts.check(header);
    const restBytes = chunk.length - at - take;
    // Most bodies come with their headers; the callee gets those bytes without a copy.
    if (restBytes >= header.bodyBytes) {
      const body = header.bodyBytes === 0 ? NOTHING : chunk.subarray(at + take, at + take + header.bodyBytes);
      this.#parts.onFrame(header, body);
      return take + header.bodyBytes;
    }
    this.#header = header;
    this.#parts.onBegin(header);
    return take;
  }

  #receiveBody(chunk: Buffer, at: number): number {
    const [header, body] = [this.#header as FrameHeader, this.#body];
    if (body === undefined) {
      this.#early.push(chunk.subarray(at));
      return chunk.length - at;
    }
    const take = Math.min(header.bodyBytes - this.#filledBytes, chunk.length - at);
    chunk.copy(body, this.#filledBytes, at, at + take);
    this.#filledBytes += take;
    if (this.#filledBytes < header.bodyBytes) return take;
    this.#filledBytes = 0;
    this.#header = undefined;
    this.#body = undefined;
    this.#parts.onFrame(header, body);
    return take;
  }
}
