import type { Clock } from '../../base/environment/clock.js';
import { CLIENT_SET_STEP_KEYS, RESP_DEADLINE_MS } from '../../base/limits.js';
import { HostRegion } from '../../memory/host-region.js';
import { holdInPlace } from '../../memory/native-memory.js';
import type { CallTime } from '../../store/call/call-options.js';
import { type CallerPage, RegionPage } from '../../store/call/caller-page.js';
import { inKeySteps, KeyStepSize } from '../../store/call/key-steps.js';
import type { StoredPages } from '../../store/namespace/namespace-pages.js';
import { ArgumentKeys, EMPTY_VALUE, isEmptyValue, storeKeyOf } from './resp-keys.js';
import { type AnswerMemory, type ValueRead, ValueSender, type ValueSink } from './value-sender.js';

/** One value to set. */
export interface ValueWrite {
  /** The key as the client sent it. */
  readonly key: Buffer;
  /** The value; null if it was dropped on receipt. */
  readonly value: Uint8Array | null;
  /** Milliseconds until the value expires; undefined if it does not expire. */
  readonly expiresInMs?: number | undefined;
}

/** How a call with many keys is aborted, and how it lets others take their turn. */
export interface StepOptions {
  readonly signal: AbortSignal;
  /** Lets other clients take their turn between two steps; undefined if none needs it now. */
  readonly goOn: () => Promise<void> | undefined;
}

/** Time limits of a call that changes values. */
export interface ChangeOptions extends StepOptions {
  readonly time: CallTime;
}

const POOL = '';

/** The pages of the Redis door's namespace, by their store keys. Reads send the values in the order of the request. */
export class RespPages {
  readonly #pages: StoredPages;
  readonly #sender: ValueSender;

  /** `memory` is for values that cannot be sent directly from their memory. */
  constructor(pages: StoredPages, memory: AnswerMemory, clock: Pick<Clock, 'yield'>) {
    this.#pages = pages;
    this.#sender = new ValueSender(pages, memory, clock);
  }

  /** Sends values, or nil for missing ones. Stops early when the connection is closed. */
  send(reads: readonly ValueRead[], sink: ValueSink): Promise<void> {
    return this.#sender.send(reads, sink);
  }

  /** Sets values; returns one result for each. If a key has two values, the later one wins. */
  async set(writes: readonly ValueWrite[], options: ChangeOptions): Promise<boolean[]> {
    const results = new Array<boolean>(writes.length).fill(false);
    for (let start = 0; start < writes.length; ) {
      if (writes.length > CLIENT_SET_STEP_KEYS) await options.goOn();
      const end = endOfWrites(writes, start);
      const kept: number[] = [];
      for (let i = start; i < end; i++) if (isKept((writes[i] as ValueWrite).value)) kept.push(i);
      const areSet = await this.#setStep(
        kept.map((i) => writes[i] as ValueWrite),
        options,
      );
      for (const [j, i] of kept.entries()) results[i] = areSet[j] === true;
      start = end;
    }
    return results;
  }

  /** Sets values that all have the same expiry. */
  async #setStep(writes: readonly ValueWrite[], { goOn: _, ...change }: ChangeOptions): Promise<readonly boolean[]> {
    if (writes.length === 0) return [];
    const values = writes.map(({ value }) => value as Uint8Array);
    const keys = writes.map(({ key }) => storeKeyOf(key));
    const expiresInMs = writes[0]?.expiresInMs;
    const options = { pool: POOL, isNamed: true, expiresInMs, ...change, timeoutMs: RESP_DEADLINE_MS };
    const release = holdInPlace(values);
    try {
      return await this.#pages.set(keys, values.map(pageOf), options);
    } finally {
      release();
    }
  }

  /** Returns the milliseconds until a value expires; Infinity if it does not expire; null if there is no value. */
  async remainingMs(key: string, signal: AbortSignal): Promise<number | null> {
    const [leftMs = null] = await this.#pages.remainingMs([key], { pool: POOL, signal, timeoutMs: RESP_DEADLINE_MS });
    return leftMs;
  }

  /** Returns for each key whether it has a value. */
  exists(keys: readonly Buffer[], { signal, goOn }: StepOptions): Promise<boolean[]> {
    const options = { pool: POOL, signal, timeoutMs: RESP_DEADLINE_MS };
    return inKeySteps(new ArgumentKeys(keys), { goOn }, (some) => this.#pages.exists(some, options));
  }

  /**
   * Deletes values. The result is 1 for each key that had a value, 0 for others and for repeated keys, and NaN if not
   * every node has confirmed the deletion.
   */
  delete(keys: readonly Buffer[], { goOn, ...change }: ChangeOptions): Promise<number[]> {
    const options = { pool: POOL, ...change, timeoutMs: RESP_DEADLINE_MS };
    return inKeySteps(new ArgumentKeys(keys), { goOn }, async (some) => {
      const distinct = [...new Set(some)];
      const existed = await this.#pages.exists(distinct, {
        pool: POOL,
        signal: change.signal,
        timeoutMs: RESP_DEADLINE_MS,
      });
      const deleted = await this.#pages.delete(distinct, options);
      const counts = new Map(distinct.map((key, i) => [key, deleted[i] === true ? Number(existed[i]) : Number.NaN]));
      return some.map((key) => {
        const count = counts.get(key) as number;
        if (count === 1) counts.set(key, 0);
        return count;
      });
    });
  }

  /** Returns the length of a value; null if there is none. */
  async lengthOf(key: string, signal: AbortSignal): Promise<number | null> {
    const [here = null] = this.#pages.lengthsHere([key]);
    if (here !== null && here !== EMPTY_VALUE.length) return here;
    // Only a value that may stand for the empty one is read; the directory knows the length of all others.
    const options = { pool: POOL, signal, timeoutMs: RESP_DEADLINE_MS };
    const found = await this.#pages.find([key], options);
    const length = found.lengthOf(0);
    if (length !== EMPTY_VALUE.length) return length;
    const value = new Uint8Array(length);
    const region = HostRegion.wrap(value);
    try {
      const [read = null] = await found.read([0], [new RegionPage(region, region.start, length)], options);
      return read === length && isEmptyValue(value) ? 0 : read;
    } finally {
      region.free();
    }
  }

  /** Counts the values that this node has in its pool and on its disk. */
  async count(signal: AbortSignal): Promise<number> {
    let count = 0;
    const slices = this.#pages.keysInSlices({ pool: POOL, signal, timeoutMs: RESP_DEADLINE_MS });
    for await (const keys of slices) count += keys.length;
    return count;
  }

  /** Drops all values that this node has. */
  clear(signal: AbortSignal): Promise<void> {
    return this.#pages.clear([], { signal, timeoutMs: RESP_DEADLINE_MS });
  }
}

/** Whether a value can be stored: it was not dropped, and it does not have the bytes that stand for the empty value. */
function isKept(value: Uint8Array | null): boolean {
  return value !== null && !isEmptyValue(value);
}

/**
 * Returns the end of the writes from `start` on that form one step: few, with short keys, and all with the same expiry.
 */
function endOfWrites(writes: readonly ValueWrite[], start: number): number {
  const { expiresInMs } = writes[start] as ValueWrite;
  const size = new KeyStepSize({ maxCount: CLIENT_SET_STEP_KEYS });
  let end = start;
  for (; end < writes.length; end++) {
    const next = writes[end] as ValueWrite;
    if (next.expiresInMs !== expiresInMs || size.add(next.key.length)) break;
  }
  return end;
}

/** Returns a page of bytes that no transport reads or writes. */
function pageOf(value: Uint8Array): CallerPage {
  const bytes = value.length === 0 ? EMPTY_VALUE : value;
  return { ranges: [], views: [bytes], length: bytes.length };
}
