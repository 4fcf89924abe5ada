import { decodeHeader, FRAME_HEADER_BYTES, type FrameHeader } from './messages.js';

export interface FrameReceiverParts {
  /** Throws for a header that cannot be right. */
  readonly check: (header: FrameHeader) => void;
  /** Told of a frame whose body has not come whole with its header; memory for it has been taken. */
  readonly onBegin: (header: FrameHeader) => void;
  /** `body` is the callee's. */
  readonly onFrame: (header: FrameHeader, body: Buffer) => void;
}

/** Makes frames of what comes from a socket in pieces of any size. */
export class FrameReceiver {
  readonly #parts: FrameReceiverParts;
  readonly #headerBytes = Buffer.alloc(FRAME_HEADER_BYTES);
  #filledBytes = 0;
  /** Of the frame whose body is coming. */
  #header: FrameHeader | undefined;
  #body = Buffer.alloc(0);
  #isStopped = false;

  constructor(parts: FrameReceiverParts) {
    this.#parts = parts;
  }

  /** Whether a frame has begun and not ended. */
  get isWithinFrame(): boolean {
    return this.#header !== undefined || this.#filledBytes > 0;
  }

  /** Takes what has come; throws what `check` throws. */
  receive(chunk: Buffer): void {
    for (let at = 0; at < chunk.length && !this.#isStopped; ) {
      at += this.#header === undefined ? this.#receiveHeader(chunk, at) : this.#receiveBody(chunk, at);
    }
  }

  /** Nothing is given out any more. */
  stop(): void {
    this.#isStopped = true;
    this.#header = undefined;
    this.#body = Buffer.alloc(0);
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
    // Most bodies come with their headers: what has come is the callee's, no copy is needed.
    if (restBytes >= header.bodyBytes) {
      this.#parts.onFrame(header, chunk.subarray(at + take, at + take + header.bodyBytes));
      return take + header.bodyBytes;
    }
    this.#header = header;
    this.#body = Buffer.allocUnsafeSlow(header.bodyBytes);
    this.#parts.onBegin(header);
    return take;
  }

  #receiveBody(chunk: Buffer, at: number): number {
    const header = this.#header as FrameHeader;
    const take = Math.min(header.bodyBytes - this.#filledBytes, chunk.length - at);
    chunk.copy(this.#body, this.#filledBytes, at, at + take);
    this.#filledBytes += take;
    if (this.#filledBytes < header.bodyBytes) return take;
    const body = this.#body;
    this.#filledBytes = 0;
    this.#header = undefined;
    this.#body = Buffer.alloc(0);
    this.#parts.onFrame(header, body);
    return take;
  }
}
