import type { PauseWatch } from '../base/concurrency/pause-watch.js';
import type { Sharer } from '../base/concurrency/shares.js';
import type { WorkTurns } from '../base/concurrency/work-turns.js';
import {
  RECEIVING_GROWN_MIN_BYTES,
  RECEIVING_GROWTH_FACTOR,
  RECEIVING_PIECE_BYTES,
  RECEIVING_WHOLE_MIN_BYTES,
} from '../base/limits.js';

interface ArrivalsParts {
  readonly turns: WorkTurns;
  readonly sharer: Sharer;
  readonly pauses: Pick<PauseWatch, 'sentAfterMs'>;
  /** Takes the next bytes. Must not throw. */
  readonly receive: (bytes: Buffer) => void;
  /** Called when {@link Arrivals.isWaiting} has changed. */
  readonly onWaiting: () => void;
}

/**
 * What has come on a connection of a client. It is taken in pieces of at most RECEIVING_PIECE_BYTES, which may have
 * thousands of small requests, when it is the client's turn. While something waits nothing more should be read from the
 * socket.
 */
export class Arrivals {
  readonly #parts: ArrivalsParts;
  #chunks: { readonly bytes: Buffer; readonly sentAfterMs: number }[] = [];
  /** Whether a piece is to be taken, now or later. */
  #isTaking = false;
  #isWaiting = false;
  #sentAfterMs = 0;

  constructor(parts: ArrivalsParts) {
    this.#parts = parts;
  }

  get isWaiting(): boolean {
    return this.#isWaiting;
  }

  /** The earliest time at which what is being taken was sent, as `PauseWatch` knows it. */
  get sentAfterMs(): number {
    return this.#sentAfterMs;
  }

  /** Takes bytes from the socket, now or when it is the client's turn. */
  add(bytes: Buffer): void {
    this.#chunks.push({ bytes, sentAfterMs: this.#parts.pauses.sentAfterMs() });
    if (this.#isTaking) return;
    this.#isTaking = true;
    this.#takeNext();
    this.#setWaiting(this.#isTaking);
  }

  /** Drops what waits. */
  stop(): void {
    this.#chunks = [];
  }

  #takeNext(): void {
    this.#parts.turns.run(this.#parts.sharer, () => {
      this.#takePiece();
      if (this.#chunks.length > 0) {
        this.#takeNext();
        return;
      }
      this.#isTaking = false;
      this.#setWaiting(false);
    });
  }

  #setWaiting(isWaiting: boolean): void {
    if (this.#isWaiting === isWaiting) return;
    this.#isWaiting = isWaiting;
    this.#parts.onWaiting();
  }

  #takePiece(): void {
    const [chunk] = this.#chunks;
    if (chunk === undefined) return;
    const { bytes, sentAfterMs } = chunk;
    if (bytes.length <= RECEIVING_PIECE_BYTES) this.#chunks.shift();
    else this.#chunks[0] = { bytes: bytes.subarray(RECEIVING_PIECE_BYTES), sentAfterMs };
    this.#sentAfterMs = sentAfterMs;
    this.#parts.receive(bytes.subarray(0, RECEIVING_PIECE_BYTES));
  }
}

/** What there is of a message that is being received. */
interface ReceivedPart {
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
