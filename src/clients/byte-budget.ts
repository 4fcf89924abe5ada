/** Bytes that several users share: who wants more than is left waits, first come, first served. */
export class ByteBudget {
  #leftBytes: number;
  readonly #waiting: { readonly bytes: number; readonly grant: () => void }[] = [];

  constructor(bytes: number) {
    this.#leftBytes = bytes;
  }

  /** Calls `grant`, at once or later. Returns what takes the wish back, or gives the bytes back; harmless when called again. */
  take(bytes: number, grant: () => void): () => void {
    let state: 'waiting' | 'granted' | 'over' = 'waiting';
    const entry = {
      bytes,
      grant: () => {
        state = 'granted';
        grant();
      },
    };
    const giveBack = (): void => {
      if (state === 'granted') this.#leftBytes += bytes;
      else if (state === 'waiting') this.#waiting.splice(this.#waiting.indexOf(entry), 1);
      state = 'over';
      this.#grantNext();
    };
    this.#waiting.push(entry);
    this.#grantNext();
    return giveBack;
  }

  #grantNext(): void {
    for (
      let first = this.#waiting[0];
      first !== undefined && first.bytes <= this.#leftBytes;
      first = this.#waiting[0]
    ) {
      this.#waiting.shift();
      this.#leftBytes -= first.bytes;
      first.grant();
    }
  }
}
