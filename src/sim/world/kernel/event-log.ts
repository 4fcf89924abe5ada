const OFFSET_LOW = 0x84222325;
const OFFSET_HIGH = 0xcbf29ce4;
const PRIME_LOW = 0x01b3;

/**
 * A running hash of all events and, if wanted, a line of text for each. Two runs with the same hash did the same. The
 * hash is 64-bit FNV-1a over 32-bit words, in integers, so that it is equal on every machine.
 */
export class EventLog {
  #low = OFFSET_LOW;
  #high = OFFSET_HIGH;
  #eventsCount = 0;
  readonly #kinds = new Map<string, number>();
  readonly #time = new Float64Array(1);
  readonly #timeWords = new Uint32Array(this.#time.buffer);
  readonly #onLine: ((line: string) => void) | undefined;

  /** `onLine` is called with each event as text. */
  constructor(onLine?: (line: string) => void) {
    this.#onLine = onLine;
  }

  get eventsCount(): number {
    return this.#eventsCount;
  }

  /** Hash of everything so far: 16 hexadecimal digits. */
  get hash(): string {
    const [high, low] = [this.#high >>> 0, this.#low >>> 0];
    return high.toString(16).padStart(8, '0') + low.toString(16).padStart(8, '0');
  }

  /** Adds an event; `owner` is 0 for the world itself. */
  event(atMs: number, kind: string, owner: number, detail: number): void {
    this.#eventsCount++;
    this.#time[0] = atMs;
    this.#word(this.#timeWords[0] as number);
    this.#word(this.#timeWords[1] as number);
    this.#word(this.#kindNumber(kind));
    this.#word(owner);
    this.#word(detail | 0);
    this.#onLine?.(`${atMs.toFixed(6)} ${kind} ${owner} ${detail}`);
  }

  /** Adds the length and a sample of the first `length` bytes to the latest event. */
  bytes(bytes: Uint8Array, length = bytes.length): void {
    this.#word(length);
    const step = Math.max(1, (length >>> 3) | 0);
    for (let at = 0; at < length; at += step) this.#word(bytes[at] as number);
  }

  #kindNumber(kind: string): number {
    const known = this.#kinds.get(kind);
    if (known !== undefined) return known;
    // A hash of the letters does not depend on the order in which kinds occur: two parts of a program may swap.
    let sum = 0;
    for (let i = 0; i < kind.length; i++) sum = Math.imul(sum ^ kind.charCodeAt(i), 0x01000193);
    this.#kinds.set(kind, sum);
    return sum;
  }

  /** Multiplies the 64-bit hash by 2^40 + 0x1b3, in words of 32 bits. */
  #word(word: number): void {
    const low = (this.#low ^ word) >>> 0;
    const high = this.#high;
    const product = (low & 0xffff) * PRIME_LOW;
    const upper = (low >>> 16) * PRIME_LOW + (product >>> 16);
    this.#low = ((upper & 0xffff) << 16) | (product & 0xffff);
    this.#high = (Math.imul(high, PRIME_LOW) + (upper >>> 16) + (low << 8)) | 0;
  }
}
