/** A line that carries one message after the other. */
export class Lane {
  bytesPerMs: number;
  #freeAtMs = 0;

  constructor(bytesPerS: number) {
    this.bytesPerMs = bytesPerS / 1000;
  }

  /** The time when the bytes have passed. They stream in, and are complete at `atMs` at the earliest. */
  pass(atMs: number, bytes: number): number {
    this.#freeAtMs = Math.max(atMs, this.#freeAtMs + bytes / this.bytesPerMs);
    return this.#freeAtMs;
  }

  /** The time when the bytes have passed, all of which are there at `atMs`. */
  send(atMs: number, bytes: number): number {
    this.#freeAtMs = Math.max(atMs, this.#freeAtMs) + bytes / this.bytesPerMs;
    return this.#freeAtMs;
  }
}
