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
  /** Whether bytes are valid only while they are added; those that wait are copied. */
  readonly areLent?: boolean;
  /** Takes the next bytes. Must not throw. */
  readonly receive: (bytes: Buffer) => void;
  /** Called when {@link Arrivals.isWaiting} has changed. */
  readonly onWaiting: () => void;
}

/**
 * Bytes that have arrived on a client's connection. They are processed when it is the client's turn, in pieces of at
 * most RECEIVING_PIECE_BYTES, because they may contain thousands of small requests. While bytes wait, nothing more
 * should be read from the socket.
 */
export class Arrivals {
  readonly #parts: ArrivalsParts;
  #chunks: { readonly bytes: Buffer; readonly sentAfterMs: number }[] = [];
  /** Whether a piece is to be processed, now or later. */
  #isTaking = false;
  #isWaiting = false;
  #sentAfterMs = 0;

  constructor(parts: ArrivalsParts) {
    this.#parts = parts;
  }

  get isWaiting(): boolean {
    return this.#isWaiting;
  }

  /** Earliest time at which the bytes being processed can have been sent, according to `PauseWatch`. */
  get sentAfterMs(): number {
    return this.#sentAfterMs;
  }

  /** Takes bytes from the socket; they are processed at once or when it is the client's turn. */
  add(bytes: Buffer): void {
    this.#chunks.push({ bytes, sentAfterMs: this.#parts.pauses.sentAfterMs() });
    if (this.#isTaking) {
      this.#keepLast();
      return;
    }
    this.#isTaking = true;
    this.#takeNext();
    this.#setWaiting(this.#isTaking);
    if (this.#isTaking) this.#keepLast();
  }

  /** Copies the latest bytes, if they are valid only now. */
  #keepLast(): void {
    const last = this.#chunks.at(-1);
    if (this.#parts.areLent && last !== undefined) {
      this.#chunks[this.#chunks.length - 1] = { ...last, bytes: Buffer.from(last.bytes) };
    }
  }

  /** Drops the waiting bytes. */
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

/** The sizes of a message that is being received. */
interface ReceivedPart {
  /** Bytes for which there is room. */
  readonly roomBytes: number;
  /** Bytes of the whole message. */
  readonly wholeBytes: number;
}

/**
 * Returns how many bytes of room to allocate when there is too little for the first `bytes` bytes of a message. The
 * room grows with the bytes that arrive, because a message may end early. Growing copies all bytes so far at once,
 * which takes long for many; above RECEIVING_WHOLE_MIN_BYTES there is therefore room for the whole message. The system
 * provides memory for such a large room only where bytes are written.
 */
export function roomFor(bytes: number, { roomBytes, wholeBytes }: ReceivedPart): number {
  if (bytes > RECEIVING_WHOLE_MIN_BYTES) return wholeBytes;
  return Math.min(wholeBytes, Math.max(bytes, RECEIVING_GROWN_MIN_BYTES, RECEIVING_GROWTH_FACTOR * roomBytes));
}
