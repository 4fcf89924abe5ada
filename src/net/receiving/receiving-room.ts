import { RECEIVING_GROWN_MIN_BYTES, RECEIVING_GROWTH_FACTOR, RECEIVING_WHOLE_MIN_BYTES } from '../../base/limits.js';

/** What there is of a message that is being received. */
export interface ReceivedPart {
  /** Bytes for which there is room. */
  readonly roomBytes: number;
  /** Bytes of the whole message. */
  readonly wholeBytes: number;
}

/**
 * Bytes of room that are to be made for the first `bytes` bytes of a message, when there is too little. The room grows
 * with what comes, as a message may end early. What has come is copied into it in one go: beyond
 * RECEIVING_WHOLE_MIN_BYTES that would take long, and there is room for the whole message. The system gives memory to
 * such a large room only where bytes are written.
 */
export function roomFor(bytes: number, { roomBytes, wholeBytes }: ReceivedPart): number {
  if (bytes > RECEIVING_WHOLE_MIN_BYTES) return wholeBytes;
  return Math.min(wholeBytes, Math.max(bytes, RECEIVING_GROWN_MIN_BYTES, RECEIVING_GROWTH_FACTOR * roomBytes));
}
