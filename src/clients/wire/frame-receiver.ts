import { CLIENT_SMALL_BODY_BYTES, RECEIVING_STEP_BYTES } from '../../base/limits.js';
import { roomFor } from '../../net/arrivals.js';
import { decodeHeader, FRAME_HEADER_BYTES, type FrameHeader } from './messages.js';

export interface FrameReceiverParts {
  /** Throws for an invalid header. */
  readonly check: (header: FrameHeader) => void;
  /** Called for a frame whose body has not arrived completely with its header. */
  readonly onBegin?: () => void;
  /**
   * Asks for memory for this many more bytes of a body above CLIENT_SMALL_BODY_BYTES, as they arrive. Returns false if
   * there is none yet; {@link FrameReceiver.resume} must be called when there is. Default: memory is always available.
   */
  readonly reserve?: (bytes: number) => boolean;
  /** Called with each frame; `body` belongs to the callee. */
  readonly onFrame: (header: FrameHeader, body: Buffer) => void;
}

const NOTHING = Buffer.alloc(0);

/**
 * Assembles frames from the pieces that a socket delivers. A body takes memory as its bytes arrive, not when a header
 * announces them.
 */
export class FrameReceiver {
  readonly #parts: FrameReceiverParts;
  readonly #headerBytes = Buffer.alloc(FRAME_HEADER_BYTES);
  #filledBytes = 0;
  /** Header of the frame whose body is arriving. */
  #header: FrameHeader | undefined;
  /** The part of the body that has arrived, and room for more. */
  #body = NOTHING;
  /** Bytes of the body for which memory has been reserved. */
  #reservedBytes = 0;
  /** Bytes for which memory was requested and is awaited; 0 if none. */
  #wantedBytes = 0;
  /** Pieces of the body that arrived before there was memory. */
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

  /** Continues when the requested memory is available. Throws what `check` throws for the frames after the body. */
  resume(): void {
    if (this.#wantedBytes === 0) return;
    this.#reservedBytes += this.#wantedBytes;
    this.#wantedBytes = 0;
    for (const chunk of this.#early.splice(0)) this.receive(chunk);
  }

  /** Stops passing on frames. */
  stop(): void {
    this.#isStopped = true;
    this.#header = undefined;
    this.#body = NOTHING;
    this.#wantedBytes = 0;
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
    // Most bodies arrive with their headers; the callee gets those bytes without a copy.
    if (restBytes >= header.bodyBytes) {
      const body = header.bodyBytes === 0 ? NOTHING : chunk.subarray(at + take, at + take + header.bodyBytes);
      this.#parts.onFrame(header, body);
      return take + header.bodyBytes;
    }
    this.#header = header;
    this.#reservedBytes = header.bodyBytes <= CLIENT_SMALL_BODY_BYTES ? header.bodyBytes : 0;
    this.#parts.onBegin?.();
    return take;
  }

  #receiveBody(chunk: Buffer, at: number): number {
    const header = this.#header as FrameHeader;
    const take = Math.min(header.bodyBytes - this.#filledBytes, chunk.length - at);
    if (!this.#hasMemory(header, this.#filledBytes + take)) {
      this.#early.push(chunk.subarray(at));
      return chunk.length - at;
    }
    chunk.copy(this.#body, this.#filledBytes, at, at + take);
    this.#filledBytes += take;
    if (this.#filledBytes < header.bodyBytes) return take;
    const body = this.#body.subarray(0, header.bodyBytes);
    this.#filledBytes = 0;
    this.#header = undefined;
    this.#body = NOTHING;
    this.#parts.onFrame(header, body);
    return take;
  }

  /** Makes room for the first `bytes` bytes of a body. Returns false if memory has to be awaited. */
  #hasMemory({ bodyBytes }: FrameHeader, bytes: number): boolean {
    if (this.#wantedBytes > 0) return false;
    if (bytes > this.#reservedBytes) {
      const wantedBytes = Math.min(bodyBytes, bytes + RECEIVING_STEP_BYTES) - this.#reservedBytes;
      if (this.#parts.reserve?.(wantedBytes) === false) {
        this.#wantedBytes = wantedBytes;
        return false;
      }
      this.#reservedBytes += wantedBytes;
    }
    if (this.#body.length < bytes) {
      const roomBytes = roomFor(bytes, { roomBytes: this.#body.length, wholeBytes: bodyBytes });
      const grown = Buffer.allocUnsafeSlow(roomBytes);
      this.#body.copy(grown, 0, 0, this.#filledBytes);
      this.#body = grown;
    }
    return true;
  }
}
