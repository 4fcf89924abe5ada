import { READ_REQUEST_MAX_OPS } from '../../../base/limits.js';
import type { FrameTags } from '../../../memory/frame-tags.js';
import { HEADER_PART, RESPONSE_HEADER_BYTES, taggedHeaderBytes } from '../protocol/protocol.js';

/** Size of one receipt when a header is due: the header and bytes after it, which are copied. */
export const HEADER_RECEIVE_BYTES = RESPONSE_HEADER_BYTES + 4096;

/**
 * What precedes a payload, collected from the pieces in which it arrives: parts of the opening, then the header of each
 * answer, with its tags if frames have them.
 */
export class ReceivedHeader {
  #bytes = Buffer.alloc(RESPONSE_HEADER_BYTES);
  #filledBytes = 0;
  #tags: FrameTags | undefined;

  /** Tags of the answers from now on; undefined: they have none. */
  get tags(): FrameTags | undefined {
    return this.#tags;
  }

  /** The opening is over, and headers of answers come. */
  open(tags: FrameTags | undefined): void {
    this.#tags = tags;
    if (tags !== undefined) this.#bytes = Buffer.alloc(taggedHeaderBytes(READ_REQUEST_MAX_OPS));
  }

  /** Length of the header of an answer with so many operations, its tags included. */
  lengthFor(opCount: number): number {
    return this.#tags === undefined ? RESPONSE_HEADER_BYTES : taggedHeaderBytes(opCount);
  }

  /** Takes as many bytes as are missing of `wantedBytes`; returns their number. */
  take(bytes: Uint8Array, { from, to, wantedBytes }: { from: number; to: number; wantedBytes: number }): number {
    const count = Math.min(to - from, wantedBytes - this.#filledBytes);
    this.#bytes.set(bytes.subarray(from, from + count), this.#filledBytes);
    this.#filledBytes += count;
    return count;
  }

  /**
   * The bytes once `wantedBytes` are there, and the next ones begin anew; undefined: some are missing. They stay until
   * more are taken.
   */
  whole(wantedBytes: number): Buffer | undefined {
    if (this.#filledBytes < wantedBytes) return undefined;
    this.#filledBytes = 0;
    return this.#bytes.subarray(0, wantedBytes);
  }

  /** Whether the header of an answer, with the tags of its payload, has its own tag, or needs none. */
  isTagged(header: Buffer): boolean {
    if (this.#tags === undefined) return true;
    this.#tags.begin();
    return this.#tags.isTagged(HEADER_PART, header);
  }
}
