import { assert, assertAtMost, assertEqual, reduced } from '../../base/assert.js';
import type { Clock } from '../../base/environment/clock.js';
import {
  HOLD_REQUEST_MAX_KEYS,
  HOT_READS_MAX_KEY_CHARACTERS,
  HOT_READS_MAX_KEYS,
  HOT_READS_MIN_COUNT,
  HOT_READS_WINDOW_MS,
} from '../../base/limits.js';
import type { HeldPages } from './held-pages.js';

interface KeyReads {
  /** Times of the last reads of the page, at most HOT_READS_MIN_COUNT, the earliest first. */
  readonly timesMs: number[];
  askedMs: number;
}

/**
 * Finds pages that this node often reads from other nodes, and copies them in the background.
 *
 * One request runs at a time, and the keys for the next one wait; a key that becomes hot while those are full is
 * requested at its next read. A key is requested at most once per HOT_READS_WINDOW_MS, so that a page that does not fit
 * is not transferred with every request. The least recently read pages are forgotten first. Each counted page takes the
 * length of its key and about 300 bytes.
 */
export class HotReads {
  readonly #held: Pick<HeldPages, 'bring' | 'mayCopy'>;
  readonly #clock: Clock;
  readonly #maxKeys: number;
  /** Keys of counted pages, the most recently read one last. */
  readonly #reads = new Map<string, KeyReads>();
  #keyCharacters = 0;
  /** Keys of the next request, at most HOLD_REQUEST_MAX_KEYS. */
  readonly #waiting = new Set<string>();
  #isAsking = false;

  /** `maxKeys`: number of pages whose reads are counted. */
  constructor(held: Pick<HeldPages, 'bring' | 'mayCopy'>, clock: Clock, maxKeys = HOT_READS_MAX_KEYS) {
    [this.#held, this.#clock, this.#maxKeys] = [held, clock, maxKeys];
  }

  /** Number of pages whose reads are counted. */
  get size(): number {
    return this.#reads.size;
  }

  /** Counts pages that have been read from other nodes. */
  read(keys: readonly string[]): void {
    const nowMs = this.#clock.nowMs();
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
    if (this.#waiting.size >= HOLD_REQUEST_MAX_KEYS || !this.#held.mayCopy) return;
    this.#waiting.add(key);
    reads.askedMs = nowMs;
  }

  #forgetEarliest(): void {
    for (const key of this.#reads.keys()) {
      if (this.#reads.size <= this.#maxKeys && this.#keyCharacters <= HOT_READS_MAX_KEY_CHARACTERS) return;
      this.#reads.delete(key);
      this.#keyCharacters = reduced('hot reads: key characters', this.#keyCharacters, key.length);
    }
  }

  async #ask(): Promise<void> {
    this.#isAsking = true;
    try {
      while (this.#waiting.size > 0 && this.#held.mayCopy) {
        const keys = [...this.#waiting];
        this.#waiting.clear();
        await this.#held.bring(keys, 'hot');
      }
    } finally {
      this.#waiting.clear();
      this.#isAsking = false;
    }
  }

  /** Throws `InvariantError` unless the characters of the keys are counted, and everything is within its limits. */
  verify(): void {
    let characters = 0;
    for (const [key, { timesMs }] of this.#reads) {
      characters += key.length;
      assertAtMost(`hot reads: reads of ${JSON.stringify(key)}`, timesMs.length, HOT_READS_MIN_COUNT);
    }
    assertEqual('hot reads: characters', this.#keyCharacters, characters);
    assertAtMost('hot reads: characters', characters, HOT_READS_MAX_KEY_CHARACTERS);
    assertAtMost('hot reads: keys', this.#reads.size, this.#maxKeys);
    assertAtMost('hot reads: keys that wait', this.#waiting.size, HOLD_REQUEST_MAX_KEYS);
    const isBusy = this.#waiting.size === 0 || this.#isAsking;
    assert(isBusy, () => `hot reads: ${this.#waiting.size} keys wait, and nothing is under way`);
  }
}
