/** A carrier of one message after the other. */
export class Lane {
  bytesPerMs: number;
  #freeAtMs = 0;

  constructor(bytesPerS: number) {
    this.bytesPerMs = bytesPerS / 1000;
  }

  /** The time when bytes have passed that arrive whole at `atMs`, and not before. */
  pass(atMs: number, bytes: number): number {
    this.#freeAtMs = Math.max(atMs, this.#freeAtMs + bytes / this.bytesPerMs);
    return this.#freeAtMs;
  }

  /** The time when bytes have passed that are all there at `atMs`. */
  send(atMs: number, bytes: number): number {
    this.#freeAtMs = Math.max(atMs, this.#freeAtMs) + bytes / this.bytesPerMs;
    return this.#freeAtMs;
  }
}
