import type { HostRegion } from '../../memory/host-region.js';
import { RegionPage } from '../../store/call/caller-page.js';
import { bulkHead, CRLF } from '../wire/resp-answers.js';
import { EMPTY_VALUE, isEmptyValue } from './resp-keys.js';

/** Place of one value in an answer. */
interface Cell {
  readonly start: number;
  /** Where the value begins. */
  readonly at: number;
  /** Length of the value as it was found; null: a miss. */
  readonly length: number | null;
  readonly end: number;
  /** Bytes of the answer before the value's own head. */
  readonly before: Uint8Array | undefined;
}

/**
 * The answers to consecutive reads, one behind the other in one piece of memory, so that values are received where they
 * are sent from:
 *
 *       before  $ length CR LF  value  CR LF     before  nil     …
 */
export class AnswerLayout {
  readonly #nil: Uint8Array;
  readonly #cells: Cell[] = [];
  #bytes = 0;
  #valueBytes = 0;

  /** `nil` is the answer for a missing value. */
  constructor(nil: Uint8Array) {
    this.#nil = nil;
  }

  get count(): number {
    return this.#cells.length;
  }

  /** Bytes of all answers. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Bytes of the values alone. */
  get valueBytes(): number {
    return this.#valueBytes;
  }

  /** Adds an answer with a value of this length; null: a miss. */
  add(length: number | null, before: Uint8Array | undefined): void {
    const start = this.#bytes;
    const head = length === null ? this.#nil.length : bulkHead(length).length;
    const at = start + (before?.length ?? 0) + head;
    const end = length === null ? at : at + length + CRLF.length;
    this.#cells.push({ start, at, length, end, before });
    this.#bytes = end;
    this.#valueBytes += length ?? 0;
  }

  /** Writes everything but the values. */
  write(memory: Buffer): void {
    for (const { start, length, end, before } of this.#cells) {
      if (before !== undefined) memory.set(before, start);
      const head = start + (before?.length ?? 0);
      if (length === null) {
        memory.set(this.#nil, head);
        continue;
      }
      memory.write(bulkHead(length), head, 'latin1');
      memory.set(CRLF, end - CRLF.length);
    }
  }

  /** The values that were found, by index, and their places in `region`, which has the memory of all answers. */
  values(region: HostRegion): { readonly indices: number[]; readonly pages: RegionPage[] } {
    const indices: number[] = [];
    const pages: RegionPage[] = [];
    for (const [i, { at, length }] of this.#cells.entries()) {
      if (length === null) continue;
      indices.push(i);
      pages.push(new RegionPage(region, region.start + at, length));
    }
    return { indices, pages };
  }

  /**
   * Returns the pieces to send, and for each answer whether it has a value. `lengths` has the length of each value that
   * was read, null for a miss. A value that is longer than its place, and all answers after it, are left out.
   */
  pieces(
    memory: Buffer,
    lengths: ReadonlyMap<number, number | null>,
  ): { readonly pieces: Buffer[]; readonly hits: boolean[] } {
    const pieces: Buffer[] = [];
    const hits: boolean[] = [];
    let from = 0;
    let to = 0;
    for (const [i, cell] of this.#cells.entries()) {
      const length = lengths.get(i) ?? null;
      if (length !== null && length > (cell.length as number)) break;
      hits.push(length !== null);
      const value = length === null ? undefined : memory.subarray(cell.at, cell.at + length);
      const isEmpty = value?.length === EMPTY_VALUE.length && isEmptyValue(value);
      if (length === cell.length && !isEmpty) {
        to = cell.end;
        continue;
      }
      if (to > from) pieces.push(memory.subarray(from, to));
      pieces.push(this.#other(cell, isEmpty ? value?.subarray(0, 0) : value));
      from = cell.end;
      to = cell.end;
    }
    if (to > from) pieces.push(memory.subarray(from, to));
    return { pieces, hits };
  }

  /** The answer with another value than the one that was found. */
  #other({ before = new Uint8Array() }: Cell, value: Uint8Array | undefined): Buffer {
    if (value === undefined) return Buffer.concat([before, this.#nil]);
    return Buffer.concat([before, Buffer.from(bulkHead(value.length)), value, CRLF]);
  }
}
