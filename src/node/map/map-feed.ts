import type { Clock } from '../../base/environment/clock.js';
import { ProtocolError } from '../../base/errors.js';
import {
  MAP_ANSWER_MAX_PAGES,
  MAP_BATCH_MS,
  MAP_CHANGES_MAX_COUNT,
  MAP_FOLLOWERS_MAX_COUNT,
  MAP_IDLE_MS,
  MAP_KEPT_MAX_BATCHES,
  MAP_KEPT_MAX_MARKS,
} from '../../base/limits.js';
import { concatWords } from '../../core/binding/key-batch.js';
import { MARK_WORDS, type PageMark, pageMarks } from '../../core/map/page-map.js';
import { asFields } from '../../directory/messages/wire.js';
import type { RpcServer } from '../../rpc/server.js';
import { type MapAnswer, type MapQuestion, mapAnswerFields, readMapQuestion } from './map-messages.js';

/** The pages of a node as its map feed tells them. */
export interface MarkedPages {
  /** A number that distinguishes this start of the node from others. */
  start(): number;
  marksOf(keys: readonly string[]): PageMark[];
  /** Keys of all pages, slice by slice; pages that come or go meanwhile may be left out. */
  keysInSlices(): Iterable<readonly string[]>;
}

/** A list of all pages that a follower is being told. */
interface Listing {
  readonly list: number;
  readonly slices: Iterator<readonly string[]>;
  /** What happens from here on is not in the list. */
  readonly from: number;
  askedMs: number;
}

interface Batch {
  readonly sequence: number;
  readonly marks: Uint32Array;
}

/**
 * Tells other nodes which pages this one has, for their maps of the cluster: `map.next`, see MAP.md beside this file.
 * What changes is gathered for MAP_BATCH_MS and kept as marks, at most MAP_KEPT_MAX_MARKS in MAP_KEPT_MAX_BATCHES; a
 * follower that falls behind further is told all pages again. While nobody has asked for MAP_IDLE_MS, nothing is kept,
 * and {@link note} costs nothing.
 */
export class MapFeed {
  readonly #pages: MarkedPages;
  readonly #clock: Clock;
  readonly #changed = new Set<string>();
  #batches: Batch[] = [];
  #keptCount = 0;
  /** Sequence number of the last batch; all batches after `#keptAfter` are kept. */
  #last = 0;
  #keptAfter = 0;
  readonly #listings = new Map<string, Listing>();
  readonly #waiting = new Set<() => void>();
  #isRecording = false;
  #askedMs = 0;
  #cancelBatch: (() => void) | undefined;
  #cancelIdle: (() => void) | undefined;
  #isClosed = false;

  constructor(pages: MarkedPages, clock: Clock) {
    this.#pages = pages;
    this.#clock = clock;
  }

  attach(server: RpcServer): void {
    server.handle('map.next', async (params) => mapAnswerFields(await this.#answer(readMapQuestion(asFields(params)))));
  }

  /** Notes that these pages may have changed. */
  note(keys: readonly string[]): void {
    if (!this.#isRecording || keys.length === 0) return;
    for (const key of keys) this.#changed.add(key);
    if (this.#changed.size >= MAP_CHANGES_MAX_COUNT) this.#record();
    else this.#cancelBatch ??= this.#clock.after(MAP_BATCH_MS, () => this.#record());
  }

  /** Answers those who wait, and nobody any more. */
  close(): void {
    this.#isClosed = true;
    this.#stop();
    this.#wake();
  }

  async #answer({ follower, list, after, waitMs }: MapQuestion): Promise<MapAnswer> {
    if (this.#isClosed) throw new ProtocolError('map.next: this node is closing');
    this.#begin();
    return list === undefined ? this.#changesAfter(this.#sequenceOf(after), waitMs) : this.#nextOfList(follower, list);
  }

  async #changesAfter(at: number, waitMs: number): Promise<MapAnswer> {
    if (at === this.#last) await this.#change(waitMs);
    if (at < this.#keptAfter) return { isLost: true, marks: new Uint32Array(0) };
    const parts: Uint32Array[] = [];
    let [pages, reached] = [0, at];
    for (let i = this.#batches.length - (this.#last - at); i < this.#batches.length; i++) {
      const { sequence, marks } = this.#batches[i] as Batch;
      parts.push(marks);
      reached = sequence;
      pages += marks.length / MARK_WORDS;
      if (pages >= MAP_ANSWER_MAX_PAGES) break;
    }
    return { position: this.#positionOf(reached), marks: concatWords(parts) };
  }

  /** The next part of the list that a follower is being told; another number begins a new list. */
  #nextOfList(follower: string, list: number): MapAnswer {
    const nowMs = this.#clock.nowMs();
    for (const [id, { askedMs }] of this.#listings) if (nowMs - askedMs > MAP_IDLE_MS) this.#listings.delete(id);
    let listing = this.#listings.get(follower);
    if (listing?.list !== list) {
      this.#listings.delete(follower);
      if (this.#listings.size >= MAP_FOLLOWERS_MAX_COUNT) {
        throw new ProtocolError(`map.next: ${MAP_FOLLOWERS_MAX_COUNT} lists are being told; ask again later`);
      }
      const slices = this.#pages.keysInSlices()[Symbol.iterator]();
      listing = { list, slices, from: this.#last, askedMs: nowMs };
      this.#listings.set(follower, listing);
    }
    listing.askedMs = nowMs;
    const parts: Uint32Array[] = [];
    for (let pages = 0; pages < MAP_ANSWER_MAX_PAGES; ) {
      const { done, value: keys } = listing.slices.next();
      if (done === true) {
        this.#listings.delete(follower);
        return { position: this.#positionOf(listing.from), marks: concatWords(parts) };
      }
      parts.push(this.#marksOf(keys));
      pages += keys.length;
    }
    return { marks: concatWords(parts) };
  }

  /** Waits until something has changed, for this time at most. */
  async #change(waitMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const end = (): void => {
        cancel();
        this.#waiting.delete(end);
        resolve();
      };
      const cancel = this.#clock.after(waitMs, end);
      this.#waiting.add(end);
    });
  }

  #begin(): void {
    this.#askedMs = this.#clock.nowMs();
    if (this.#isRecording) return;
    this.#isRecording = true;
    const look = (): void => {
      if (this.#clock.nowMs() - this.#askedMs >= MAP_IDLE_MS) this.#stop();
      else this.#cancelIdle = this.#clock.after(MAP_IDLE_MS, look);
    };
    this.#cancelIdle = this.#clock.after(MAP_IDLE_MS, look);
  }

  #stop(): void {
    this.#isRecording = false;
    this.#cancelBatch?.();
    this.#cancelBatch = undefined;
    this.#cancelIdle?.();
    this.#changed.clear();
    this.#listings.clear();
    this.#batches = [];
    this.#keptCount = 0;
    // Nothing is recorded from now on, so no follower can go on from where it is.
    this.#last++;
    this.#keptAfter = this.#last;
  }

  #record(): void {
    this.#cancelBatch?.();
    this.#cancelBatch = undefined;
    const marks = this.#marksOf([...this.#changed]);
    this.#changed.clear();
    this.#batches.push({ sequence: ++this.#last, marks });
    this.#keptCount += marks.length / MARK_WORDS;
    let forgotten = 0;
    const isTooMuch = () =>
      this.#keptCount > MAP_KEPT_MAX_MARKS || this.#batches.length - forgotten > MAP_KEPT_MAX_BATCHES;
    for (; isTooMuch() && forgotten < this.#batches.length - 1; forgotten++) {
      const { sequence, marks: lost } = this.#batches[forgotten] as Batch;
      this.#keptCount -= lost.length / MARK_WORDS;
      this.#keptAfter = sequence;
    }
    if (forgotten > 0) this.#batches = this.#batches.slice(forgotten);
    this.#wake();
  }

  #wake(): void {
    for (const end of [...this.#waiting]) end();
  }

  #marksOf(keys: readonly string[]): Uint32Array {
    const marks = this.#pages.marksOf(keys);
    return pageMarks(keys, (i) => marks[i] as PageMark);
  }

  #positionOf(sequence: number): string {
    return `${this.#pages.start().toString(36)}.${sequence}`;
  }

  /** The sequence number of a position; -1: of another start of this node. */
  #sequenceOf(position: string): number {
    const [start, sequence] = position.split('.');
    const number = Number(sequence);
    const isOurs = start === this.#pages.start().toString(36) && Number.isInteger(number) && number <= this.#last;
    return isOurs ? number : -1;
  }
}
