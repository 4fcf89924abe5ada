import type { ByteBudget } from '../../base/concurrency/byte-budget.js';
import type { Sharer } from '../../base/concurrency/shares.js';
import type { Clock } from '../../base/environment/clock.js';
import {
  CLIENT_SET_STEP_KEYS,
  RESP_DEADLINE_MS,
  RESP_READ_TARGET_BYTES,
  RESP_SERVED_MIN_BYTES,
  RESP_SLICE_BYTES,
} from '../../base/limits.js';
import { holdInPlace } from '../../memory/native-memory.js';
import type { CallTime } from '../../store/call/call-options.js';
import type { CallerPage } from '../../store/call/caller-page.js';
import { inKeySteps, KeyStepSize } from '../../store/call/key-steps.js';
import type { StoredPages } from '../../store/namespace/namespace-pages.js';
import { bulkHead, CRLF } from '../wire/resp-answers.js';
import { ArgumentKeys, EMPTY_VALUE, isEmptyValue, storeKeyOf } from './resp-keys.js';
import type { RespOutput, ServedPart } from './resp-output.js';

/** One value to send. */
export interface ValueRead {
  /** The key in the store. */
  readonly key: string;
  /** Bytes of the answer before the value. */
  readonly head?: Uint8Array | undefined;
  /** Called once, before the next value is sent. */
  readonly onDone: (isHit: boolean) => void;
}

/** Destination of values that are read. */
export interface ValueSink {
  readonly output: RespOutput;
  /** The answer for a missing value. */
  readonly nil: Uint8Array;
  readonly signal: AbortSignal;
}

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
  readonly #budget: ByteBudget;
  readonly #clock: Pick<Clock, 'yield'>;
  /** Resolves at the turn of the last requested large copy. */
  #turn: Promise<void> = Promise.resolve();

  /** `budget` is memory for values that are copied, because they cannot be sent directly from their memory. */
  constructor(pages: StoredPages, budget: ByteBudget, clock: Pick<Clock, 'yield'>) {
    this.#pages = pages;
    this.#budget = budget;
    this.#clock = clock;
  }

  /** Sends values, or nil for missing ones. Stops early when the connection is closed. */
  async send(reads: readonly ValueRead[], sink: ValueSink): Promise<void> {
    const lengths = this.#pages.lengthsHere(reads.map(({ key }) => key));
    for (let at = 0; at < reads.length; ) {
      if (!(await sink.output.room())) return;
      const length = lengths[at] ?? null;
      if (length !== null && length >= RESP_SERVED_MIN_BYTES) {
        at = await this.#sendLarge(reads, { lengths, start: at }, sink);
        continue;
      }
      const end = endOfRun(lengths, at);
      const some = reads.slice(at, end);
      const isSent = length !== null && (await this.#sendLocal(some, lengths.slice(at, end) as number[], sink));
      if (!isSent) await this.#sendCopies(some, sink);
      at = end;
    }
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
    const { copies, nextBytes } = await this.#pages.getFirstCopies([key], {
      pool: POOL,
      signal,
      timeoutMs: RESP_DEADLINE_MS,
      maxBytes: EMPTY_VALUE.length,
    });
    const [copy] = copies;
    if (copy === undefined) return nextBytes;
    return copy === null ? null : isEmptyValue(copy) ? 0 : copy.length;
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

  /** Sends large values from the pool: one, or several that fit in a slice. Resolves with the position after them. */
  async #sendLarge(
    reads: readonly ValueRead[],
    { lengths, start }: { readonly lengths: readonly (number | null)[]; readonly start: number },
    sink: ValueSink,
  ): Promise<number> {
    const parts = await this.#serve(reads, { lengths, start });
    const [first] = parts;
    if (first === undefined) {
      await this.#sendCopies([reads[start] as ValueRead], sink);
      return start + 1;
    }
    if (parts.length === 1) await sink.output.sendServed(first.head, first.page);
    else await sink.output.sendTogether(parts);
    return start + parts.length;
  }

  /** Holds large values from `start` on: one, or several that fit in a slice; none if the first cannot be held. */
  async #serve(
    reads: readonly ValueRead[],
    { lengths, start }: { readonly lengths: readonly (number | null)[]; readonly start: number },
  ): Promise<ServedPart[]> {
    const parts: ServedPart[] = [];
    let bytes = 0;
    try {
      for (let at = start; at < reads.length && bytes <= RESP_SLICE_BYTES; at++) {
        const length = lengths[at] ?? 0;
        const isFitting = length >= RESP_SERVED_MIN_BYTES && bytes + length <= 2 * RESP_SLICE_BYTES;
        const { key, head, onDone } = reads[at] as ValueRead;
        const page = isFitting || at === start ? await this.#pages.serve(key, POOL) : null;
        if (page === null) break;
        const bulk = Buffer.from(bulkHead(page.length));
        parts.push({ head: head === undefined ? bulk : Buffer.concat([head, bulk]), page });
        bytes += page.length;
        onDone(true);
      }
      return parts;
    } catch (error) {
      for (const { page } of parts) page.release();
      throw error;
    }
  }

  /**
   * Copies small values from the pool straight into their answer. Resolves with false, and sends nothing, if one of
   * them has changed in the meantime.
   */
  async #sendLocal(reads: readonly ValueRead[], lengths: readonly number[], sink: ValueSink): Promise<boolean> {
    const heads = reads.map(({ head }, i) => {
      const bulk = Buffer.from(bulkHead(lengths[i] as number));
      return head === undefined ? bulk : Buffer.concat([head, bulk]);
    });
    let bytes = 0;
    for (let i = 0; i < reads.length; i++) bytes += (heads[i] as Buffer).length + (lengths[i] as number) + CRLF.length;
    const answer = Buffer.allocUnsafe(bytes);
    const targets: Uint8Array[] = [];
    let at = 0;
    for (const [i, head] of heads.entries()) {
      at += head.copy(answer, at);
      targets.push(answer.subarray(at, at + (lengths[i] as number)));
      at += lengths[i] as number;
      at += CRLF.copy(answer, at);
    }
    const keys = reads.map(({ key }) => key);
    const isRead = await this.#pages.get(keys, targets.map(pageOf), {
      pool: POOL,
      signal: sink.signal,
      timeoutMs: RESP_DEADLINE_MS,
    });
    // An empty value needs another head.
    if (isRead.includes(false) || targets.some(isEmptyValue)) return false;
    for (const { onDone } of reads) onDone(true);
    sink.output.add(answer);
    return true;
  }

  /** Reads copies of values, wherever they are, and sends them. */
  async #sendCopies(reads: readonly ValueRead[], sink: ValueSink): Promise<void> {
    const { output, signal } = sink;
    for (let at = 0; at < reads.length; ) {
      if (!(await output.room())) return;
      const left = reads.slice(at);
      const { copies } = await this.#pages.getFirstCopies(
        left.map(({ key }) => key),
        { pool: POOL, signal, timeoutMs: RESP_DEADLINE_MS, maxBytes: RESP_READ_TARGET_BYTES },
      );
      for (const [i, copy] of copies.entries()) addCopy(left[i] as ValueRead, copy, sink);
      at += copies.length;
      if (copies.length > 0) continue;
      await this.#sendLargeCopy(left[0] as ValueRead, sink);
      at++;
    }
  }

  async #sendLargeCopy(read: ValueRead, sink: ValueSink): Promise<void> {
    const copy = await this.#copyOf(read.key, sink);
    if (copy === null) {
      addCopy(read, null, sink);
      return;
    }
    try {
      if (copy.value.length < RESP_SERVED_MIN_BYTES) {
        addCopy(read, copy.value, sink);
        return;
      }
      if (read.head !== undefined) sink.output.add(read.head);
      read.onDone(true);
      await sink.output.sendValue(bulkHead(copy.value.length), copy.value);
    } finally {
      copy.giveBack();
    }
  }

  /** Reads a copy of any length into memory of the budget; null if it is a miss. */
  async #copyOf(
    key: string,
    { signal, output }: ValueSink,
  ): Promise<{ readonly value: Uint8Array; readonly giveBack: () => void } | null> {
    const options = { pool: POOL, signal, timeoutMs: RESP_DEADLINE_MS };
    for (let maxBytes = RESP_READ_TARGET_BYTES; !signal.aborted; ) {
      const giveBack = await this.#granted(maxBytes, output.sharer, signal);
      await this.#nextTurn();
      if (signal.aborted) {
        giveBack();
        return null;
      }
      let value: Uint8Array | undefined;
      try {
        const { copies, nextBytes } = await this.#pages.getFirstCopies([key], { ...options, maxBytes });
        if (copies[0] === null) return null;
        value = copies[0];
        // The value has been replaced by a longer one in the meantime.
        maxBytes = nextBytes;
      } finally {
        if (value === undefined) giveBack();
      }
      if (value !== undefined) return { value, giveBack };
    }
    return null;
  }

  /**
   * Waits for a turn of the event loop in which no other large copy begins. Connections that end pass on their memory
   * all at once, perhaps to connections that have ended as well.
   */
  #nextTurn(): Promise<void> {
    this.#turn = this.#turn.then(() => this.#clock.yield());
    return this.#turn;
  }

  /** Waits for memory of the budget. Resolves with a function that releases it. A closed connection does not wait. */
  #granted(bytes: number, sharer: Sharer, signal: AbortSignal): Promise<() => void> {
    return new Promise((resolve) => {
      let giveBack = (): void => {};
      const end = (): void => {
        signal.removeEventListener('abort', withdraw);
        resolve(() => giveBack());
      };
      const withdraw = (): void => {
        giveBack();
        end();
      };
      signal.addEventListener('abort', withdraw, { once: true });
      giveBack = this.#budget.take(sharer, bytes, end);
    });
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

/** Returns the end of the values from `start` on that are all small and in the pool, or all not in the pool. */
function endOfRun(lengths: readonly (number | null)[], start: number): number {
  const isHere = lengths[start] !== null;
  let bytes = 0;
  let end = start;
  for (; end < lengths.length; end++) {
    const length = lengths[end] ?? null;
    if ((length !== null) !== isHere) break;
    if (length !== null && (length >= RESP_SERVED_MIN_BYTES || bytes + length > RESP_READ_TARGET_BYTES)) break;
    bytes += length ?? 0;
  }
  return end;
}

function addCopy({ head, onDone }: ValueRead, copy: Uint8Array | null, { output, nil }: ValueSink): void {
  if (head !== undefined) output.add(head);
  onDone(copy !== null);
  if (copy === null) {
    output.add(nil);
    return;
  }
  const value = isEmptyValue(copy) ? copy.subarray(0, 0) : copy;
  output.add(Buffer.from(bulkHead(value.length)));
  output.add(value);
  output.add(CRLF);
}

/** Returns a page of bytes that no transport reads or writes. */
function pageOf(value: Uint8Array): CallerPage {
  const bytes = value.length === 0 ? EMPTY_VALUE : value;
  return { ranges: [], views: [bytes], length: bytes.length };
}
