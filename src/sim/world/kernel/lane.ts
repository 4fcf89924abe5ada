/** Something that carries one message after the other. */
export class Lane {
  bytesPerMs: number;
  #freeAtMs = 0;

  constructor(bytesPerS: number) {
    this.bytesPerMs = bytesPerS / 1000;
  }

  /** When bytes that come whole at `atMs`, and not before, are through. */
  pass(atMs: number, bytes: number): number {
    this.#freeAtMs = Math.max(atMs, this.#freeAtMs + bytes / this.bytesPerMs);
    return this.#freeAtMs;
  }

  /** When bytes that are all there at `atMs` are through. */
  send(atMs: number, bytes: number): number {
    this.#freeAtMs = Math.max(atMs, this.#freeAtMs) + bytes / this.bytesPerMs;
    return this.#freeAtMs;
  }
}
