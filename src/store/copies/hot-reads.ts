import { assert, assertAtMost, assertEqual } from '../../base/assert.js';
import type { Clock } from '../../base/environment/clock.js';
import {
  COPY_REQUEST_MAX_KEYS,
  HOT_READS_MAX_KEY_CHARACTERS,
  HOT_READS_MAX_KEYS,
  HOT_READS_MIN_COUNT,
  HOT_READS_WINDOW_MS,
} from '../../base/limits.js';

export interface HotReadsParts {
  /** Copies pages of other nodes into the own pool. Never rejects. */
  readonly copy: (keys: readonly string[]) => Promise<unknown>;
  /** False: nothing is copied now. */
  readonly mayCopy: () => boolean;
  readonly clock: Clock;
  /** Pages whose reads are counted; default HOT_READS_MAX_KEYS. */
  readonly maxKeys?: number;
}

interface KeyReads {
  /** When it was read last, at most HOT_READS_MIN_COUNT times, the earliest first. */
  readonly timesMs: number[];
  askedMs: number;
}

/**
 * Finds the pages that this node reads often from other nodes, and has them copied, in the background.
 *
 * One request is under way at a time, and the keys of one more wait for its end; for what else becomes hot meanwhile the next read
 * asks. A key is asked for once in HOT_READS_WINDOW_MS, so that pages which do not fit are read once more in that time and not at
 * every turn. The counts of what was read longest ago are forgotten first: the key and about 300 bytes each.
 */
export class HotReads {
  readonly #parts: HotReadsParts;
  readonly #maxKeys: number;
  /** Those that were read last come last. */
  readonly #reads = new Map<string, KeyReads>();
  #keyCharacters = 0;
  /** At most COPY_REQUEST_MAX_KEYS. */
  readonly #waiting = new Set<string>();
  #isAsking = false;

  constructor(parts: HotReadsParts) {
    this.#parts = parts;
    this.#maxKeys = parts.maxKeys ?? HOT_READS_MAX_KEYS;
  }

  /** Pages whose reads are counted. */
  get size(): number {
    return this.#reads.size;
  }

  /** These pages have been read from other nodes. */
  read(keys: readonly string[]): void {
    const nowMs = this.#parts.clock.nowMs();
    for (const key of keys) this.#count(key, nowMs);
    this.#forgetEarliest();
    if (this.#waiting.size > 0 && !this.#isAsking) void this.#ask();
  }

  #count(key: string, nowMs: number): void {
    const reads = this.#reads.get(key) ?? { timesMs: [], askedMs: Number.NEGATIVE_INFINITY };
    if (!this.#reads.delete(key)) this.#keyCharacters += key.length;
    this.#reads.set(key, reads);
    const { timesMs } = reads;
    timesMs.push(nowMs);
    if (timesMs.length > HOT_READS_MIN_COUNT) timesMs.shift();
    const isOften = timesMs.length === HOT_READS_MIN_COUNT && nowMs - (timesMs[0] as number) <= HOT_READS_WINDOW_MS;
    if (!isOften || nowMs - reads.askedMs <= HOT_READS_WINDOW_MS) return;
    if (this.#waiting.size >= COPY_REQUEST_MAX_KEYS || !this.#parts.mayCopy()) return;
    this.#waiting.add(key);
    reads.askedMs = nowMs;
  }

  #forgetEarliest(): void {
    for (const key of this.#reads.keys()) {
      if (this.#reads.size <= this.#maxKeys && this.#keyCharacters <= HOT_READS_MAX_KEY_CHARACTERS) return;
      this.#reads.delete(key);
      this.#keyCharacters -= key.length;
    }
  }

  async #ask(): Promise<void> {
    this.#isAsking = true;
    try {
      while (this.#waiting.size > 0 && this.#parts.mayCopy()) {
        const keys = [...this.#waiting];
        this.#waiting.clear();
        await this.#parts.copy(keys);
      }
    } finally {
      this.#waiting.clear();
      this.#isAsking = false;
    }
  }

  /** Throws `InvariantError` unless the characters of the keys are counted, and all is within its limits. */
  verify(): void {
    let characters = 0;
    for (const [key, { timesMs }] of this.#reads) {
      characters += key.length;
      assertAtMost(`hot reads: reads of ${JSON.stringify(key)}`, timesMs.length, HOT_READS_MIN_COUNT);
    }
    assertEqual('hot reads: characters', this.#keyCharacters, characters);
    assertAtMost('hot reads: characters', characters, HOT_READS_MAX_KEY_CHARACTERS);
    assertAtMost('hot reads: keys', this.#reads.size, this.#maxKeys);
    assertAtMost('hot reads: keys that wait', this.#waiting.size, COPY_REQUEST_MAX_KEYS);
    const isBusy = this.#waiting.size === 0 || this.#isAsking;
    assert(isBusy, () => `hot reads: ${this.#waiting.size} keys wait, and nothing is under way`);
  }
}
