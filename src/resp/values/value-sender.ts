import type { ByteBudget } from '../../base/concurrency/byte-budget.js';
import type { Clock } from '../../base/environment/clock.js';
import {
  RESP_DEADLINE_MS,
  RESP_READ_TARGET_BYTES,
  RESP_SERVED_MIN_BYTES,
  RESP_SLICE_BYTES,
} from '../../base/limits.js';
import { HostRegion } from '../../memory/host-region.js';
import { holdInPlace } from '../../memory/native-memory.js';
import type { FoundPages } from '../../store/found-pages.js';
import type { StoredPages } from '../../store/namespace/namespace-pages.js';
import { bulkHead } from '../wire/resp-answers.js';
import { AnswerLayout } from './answer-layout.js';
import type { RespOutput, ServedPart } from './resp-output.js';
import type { ValueMemory } from './value-memory.js';

/** One value to send. */
export interface ValueRead {
  /** The key in the store. */
  readonly key: string;
  /** Bytes of the answer before the value. */
  readonly head?: Uint8Array | undefined;
  /** Called once, before the value is sent. */
  readonly onDone: (isHit: boolean) => void;
}

/** Destination of values that are read. */
export interface ValueSink {
  readonly output: RespOutput;
  /** The answer for a missing value. */
  readonly nil: Uint8Array;
  readonly signal: AbortSignal;
}

/** Memory for answers that are put together, and the budget that counts it. */
export interface AnswerMemory {
  readonly memory: ValueMemory;
  readonly budget: ByteBudget;
}

/** Reads of one call. */
interface Sending {
  readonly reads: readonly ValueRead[];
  /** Lengths of the values in this node's pool when the call began. */
  readonly lengths: readonly (number | null)[];
  readonly sink: ValueSink;
  /** The latest values that were looked up: the reads from `start` to before `end`. */
  run?: { readonly start: number; readonly end: number; readonly found: FoundPages } | undefined;
}

/** Values that are ready to be sent, up to before the read `end`. */
interface Ready {
  readonly end: number;
  /** Whether the values have to be prepared again, because another client sets one of them. */
  readonly isGone: boolean;
  /** Sends the values. Resolves when their memory is released. */
  send(): Promise<unknown>;
  /** Releases the memory of values that are not sent. */
  drop(): void;
}

interface TakenMemory {
  readonly bytes: Buffer;
  readonly giveBack: () => void;
}

const POOL = '';

/**
 * Sends values in the order of the reads. Large values of this node's pool are sent directly from there. All others are
 * looked up together and read into answers. While some values are being sent, the next ones are prepared.
 */
export class ValueSender {
  readonly #pages: StoredPages;
  readonly #memory: AnswerMemory;
  readonly #clock: Pick<Clock, 'yield'>;
  /** Resolves at the turn of the last answer that took memory of the budget. */
  #turn: Promise<void> = Promise.resolve();

  constructor(pages: StoredPages, memory: AnswerMemory, clock: Pick<Clock, 'yield'>) {
    this.#pages = pages;
    this.#memory = memory;
    this.#clock = clock;
  }

  /** Sends values, or nil for missing ones. Stops early when the connection is closed. */
  async send(reads: readonly ValueRead[], sink: ValueSink): Promise<void> {
    const sending: Sending = { reads, sink, lengths: this.#pages.lengthsHere(reads.map(({ key }) => key)) };
    let before: Promise<unknown> = Promise.resolve();
    try {
      for (let at = 0; at < reads.length; ) {
        const ready = await this.#prepare(sending, at);
        await before;
        if (!(await sink.output.room())) {
          ready?.drop();
          return;
        }
        if (ready === undefined || ready.isGone) {
          ready?.drop();
          continue;
        }
        before = ready.send();
        // A failure is passed on when the values are awaited.
        before.catch(() => {});
        at = ready.end;
      }
    } finally {
      await before;
    }
  }

  /** Prepares the values from `start` on; undefined: they changed meanwhile, and are to be prepared again. */
  async #prepare(sending: Sending, start: number): Promise<Ready | undefined> {
    const { reads, lengths, sink } = sending;
    if (sending.run === undefined || start >= sending.run.end) {
      let end = start + 1;
      if (isLarge(lengths[start])) {
        const served = await this.#serve(sending, start);
        if (served !== undefined) return served;
      } else {
        while (end < reads.length && !isLarge(lengths[end])) end++;
      }
      const keys = reads.slice(start, end).map(({ key }) => key);
      sending.run = { start, end, found: await this.#pages.find(keys, optionsOf(sink)) };
    }
    const ready = await this.#read(sending, sending.run, start);
    if (ready === undefined) sending.run = undefined;
    return ready;
  }

  /**
   * Holds large values of the pool from `start` on: one, or several that fit in a slice; undefined if the first cannot
   * be held.
   */
  async #serve({ reads, lengths, sink }: Sending, start: number): Promise<Ready | undefined> {
    const keys = servedKeys(reads, lengths, start);
    const served = await this.#pages.serve(keys, POOL);
    const parts: ServedPart[] = [];
    const drop = (): void => {
      for (const { page } of parts) page.release();
    };
    let isGone = false;
    for (const [i, page] of served.entries()) {
      // Values behind one that cannot be held, or that has another length now, are read in another part.
      const isNext = parts.length === i && (i === 0 || page?.length === lengths[start + i]);
      if (page === null || !isNext) {
        page?.release();
        continue;
      }
      const { head } = reads[start + i] as ValueRead;
      const bulk = Buffer.from(bulkHead(page.length));
      parts.push({ head: head === undefined ? bulk : Buffer.concat([head, bulk]), page });
      // Nobody waits for values that are not being sent yet.
      page.onWanted = () => {
        isGone = true;
        drop();
      };
      if (page.isWanted) page.onWanted();
    }
    const [first] = parts;
    if (first === undefined) return undefined;
    const end = start + parts.length;
    return {
      end,
      get isGone() {
        return isGone;
      },
      send: () => {
        for (let i = start; i < end; i++) reads[i]?.onDone(true);
        return parts.length === 1 ? sink.output.sendServed(first.head, first.page) : sink.output.sendTogether(parts);
      },
      drop,
    };
  }

  /** Reads values that were looked up, from `start` on; undefined: the first one is longer now. */
  async #read({ reads, sink }: Sending, run: NonNullable<Sending['run']>, start: number): Promise<Ready | undefined> {
    const layout = new AnswerLayout(sink.nil);
    for (let at = start; at < run.end; at++) {
      const length = run.found.lengthOf(at - run.start);
      if (layout.count > 0 && layout.valueBytes + (length ?? 0) > RESP_READ_TARGET_BYTES) break;
      layout.add(length, reads[at]?.head);
    }
    const isSmall = layout.bytes <= RESP_SERVED_MIN_BYTES;
    const memory = isSmall ? ownMemory(layout.bytes) : await this.#take(layout.bytes, sink);
    if (memory === undefined) return undefined;
    try {
      layout.write(memory.bytes);
      const read = await this.#readInto(memory.bytes, layout, { run, start, sink });
      const { pieces, hits } = layout.pieces(memory.bytes, read);
      if (hits.length === 0) {
        memory.giveBack();
        return undefined;
      }
      const { output } = sink;
      return {
        end: start + hits.length,
        isGone: false,
        send: async () => {
          for (const [i, isHit] of hits.entries()) reads[start + i]?.onDone(isHit);
          if (isSmall) for (const piece of pieces) output.add(piece);
          else await output.sendPieces(pieces).finally(memory.giveBack);
        },
        drop: memory.giveBack,
      };
    } catch (error) {
      memory.giveBack();
      throw error;
    }
  }

  /** Reads the values of the layout; the result has the length of each value, null for a miss, by its place. */
  async #readInto(
    memory: Buffer,
    layout: AnswerLayout,
    {
      run,
      start,
      sink,
    }: { readonly run: NonNullable<Sending['run']>; readonly start: number; readonly sink: ValueSink },
  ): Promise<ReadonlyMap<number, number | null>> {
    const region = HostRegion.wrap(memory);
    const release = holdInPlace([memory]);
    try {
      const { indices, pages } = layout.values(region);
      const shift = start - run.start;
      const lengths = await run.found.read(
        indices.map((i) => i + shift),
        pages,
        optionsOf(sink),
      );
      return new Map(indices.map((i, j) => [i, lengths[j] ?? null]));
    } finally {
      release();
      region.free();
    }
  }

  /** Waits for memory of the budget; undefined: the connection is closed. Throws if the system has none. */
  async #take(bytes: number, { output, signal }: ValueSink): Promise<TakenMemory | undefined> {
    const { memory } = this.#memory;
    const giveBack = await this.#granted(bytes, output, signal);
    await this.#nextTurn();
    const taken = signal.aborted ? undefined : memory.take(bytes);
    if (taken === undefined) {
      giveBack();
      if (signal.aborted) return undefined;
      throw new Error(`no memory for ${bytes} bytes of values`);
    }
    return {
      bytes: taken,
      giveBack: () => {
        memory.giveBack(taken);
        giveBack();
      },
    };
  }

  /**
   * Waits for a turn of the event loop in which no other large answer begins. Connections that end pass on their memory
   * all at once, perhaps to connections that have ended as well.
   */
  #nextTurn(): Promise<void> {
    this.#turn = this.#turn.then(() => this.#clock.yield());
    return this.#turn;
  }

  /** Waits for memory of the budget. Resolves with a function that releases it. A closed connection does not wait. */
  #granted(bytes: number, { sharer }: RespOutput, signal: AbortSignal): Promise<() => void> {
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
      giveBack = this.#memory.budget.take(sharer, bytes, end);
    });
  }
}

/** Keys of consecutive large values from `start` on: one, or several that fit in a slice. */
function servedKeys(reads: readonly ValueRead[], lengths: readonly (number | null)[], start: number): string[] {
  const keys: string[] = [];
  let bytes = 0;
  for (let at = start; at < reads.length; at++) {
    const length = lengths[at] ?? 0;
    if (at > start && !(isLarge(length) && bytes + length <= 2 * RESP_SLICE_BYTES)) break;
    keys.push((reads[at] as ValueRead).key);
    bytes += length;
  }
  return keys;
}

function isLarge(length: number | null | undefined): boolean {
  return (length ?? 0) >= RESP_SERVED_MIN_BYTES;
}

function optionsOf({ signal }: ValueSink) {
  return { pool: POOL, signal, timeoutMs: RESP_DEADLINE_MS };
}

/** Memory for a small answer, which is not reused. */
function ownMemory(bytes: number): TakenMemory {
  return { bytes: Buffer.allocUnsafe(bytes), giveBack: () => {} };
}
