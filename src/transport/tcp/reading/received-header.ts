import { READ_REQUEST_MAX_OPS } from '../../../base/limits.js';
import type { FrameTags } from '../../../memory/frame-tags.js';
import { HEADER_PART, RESPONSE_HEADER_BYTES, taggedHeaderBytes } from '../protocol/protocol.js';

/** Most bytes received at once when a header is due: the header, and some bytes after it, which are copied. */
export const HEADER_RECEIVE_BYTES = RESPONSE_HEADER_BYTES + 4096;

/**
 * Collects what precedes a payload from the pieces in which it arrives: parts of the opening, then the header of each
 * answer, with its tags if frames have them.
 */
export class ReceivedHeader {
  #bytes = Buffer.alloc(RESPONSE_HEADER_BYTES);
  #filledBytes = 0;
  #tags: FrameTags | undefined;

  /** Checks the tags of answers; undefined if answers have no tags. */
  get tags(): FrameTags | undefined {
    return this.#tags;
  }

  /** Called when the opening is over; headers of answers follow. */
  open(tags: FrameTags | undefined): void {
    this.#tags = tags;
    if (tags !== undefined) this.#bytes = Buffer.alloc(taggedHeaderBytes(READ_REQUEST_MAX_OPS));
  }

  /** Length of the header of an answer with `opCount` operations, including its tags. */
  lengthFor(opCount: number): number {
    return this.#tags === undefined ? RESPONSE_HEADER_BYTES : taggedHeaderBytes(opCount);
  }

  /** Takes bytes until `wantedBytes` are collected, as far as there are any; returns their number. */
  take(bytes: Uint8Array, { from, to, wantedBytes }: { from: number; to: number; wantedBytes: number }): number {
    const count = Math.min(to - from, wantedBytes - this.#filledBytes);
    this.#bytes.set(bytes.subarray(from, from + count), this.#filledBytes);
    this.#filledBytes += count;
    return count;
  }

  /**
   * Returns the bytes once all `wantedBytes` have arrived, and starts over; undefined while some are missing. The
   * returned bytes stay valid until more are taken.
   */
  whole(wantedBytes: number): Buffer | undefined {
    if (this.#filledBytes < wantedBytes) return undefined;
    this.#filledBytes = 0;
    return this.#bytes.subarray(0, wantedBytes);
  }

  /** Whether the header of an answer has a correct tag, or needs none. The tag also covers the tags of the payload. */
  isTagged(header: Buffer): boolean {
    if (this.#tags === undefined) return true;
    this.#tags.begin();
    return this.#tags.isTagged(HEADER_PART, header);
  }
}
