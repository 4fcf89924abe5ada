import { ArgumentError } from '../../base/errors.js';

/** Bytes of a cell; a segment of the memory is a multiple of it. */
export const CELL_BYTES = 128;
/** Number that stands for no cell; cell 0 is the header. */
export const NO_CELL = 0;

/** Kinds of used cells; 0: the cell is free, or is being written. */
export const HEAD = 0x4d435048;
export const REST = 0x4d435052;

/** Number of 32-bit words in a cell. */
export const CELL_WORDS = CELL_BYTES / 4;
/** First characters of an index. */
const MAGIC = 'meshcache pool\n\0';
/** Version of the format that POOL_FILE.md describes. */
export const FORMAT_VERSION = 1;
/** Words of the header after the magic. */
const VERSION_AT = 4;
const COUNT_AT = 5;
const SALT_AT = 6;
const HASH_AT = 7;
/** First cell that has never been used, nor has any after it; not covered by the hash. */
const USED_AT = 8;
/**
 * Position, in units of 8 bytes, of the last start at which all pages were known to be good; not covered by the hash.
 */
const START_AT = 5;
/** Number of cells by which the number at USED_AT grows. */
const USED_STEP_CELLS = 4096;

/**
 * State of an index. `empty`: never used; `ours`: valid; `other-version`: of another format version; `damaged`: its
 * header is damaged; `foreign`: of another program.
 */
export type CellsState = 'empty' | 'ours' | 'other-version' | 'damaged' | 'foreign';

/** Size of the index relative to its pool, and its minimum size. */
const INDEX_FRACTION = 1 / 32;
const INDEX_MIN_BYTES = 2 ** 20;

/** Bytes of the index of a pool of this size: two cells for each 8 KiB. */
export function poolIndexBytes(capacityBytes: number): number {
  return Math.max(INDEX_MIN_BYTES, Math.ceil((capacityBytes * INDEX_FRACTION) / CELL_BYTES) * CELL_BYTES);
}

/** Determines the state of an index from the first bytes of its file. */
export function readState(bytes: Uint8Array): CellsState {
  const start = new Uint8Array(2 * CELL_BYTES);
  start.set(bytes.subarray(0, CELL_BYTES));
  return new Cells([start]).state();
}

/** One segment of cells: the same memory as 32-bit words, as numbers and as bytes. */
export interface CellSegment {
  readonly words: Uint32Array;
  readonly doubles: Float64Array;
  readonly bytes: Buffer;
}

/**
 * The memory of a pool's index as cells of CELL_BYTES, the first of which is the header. If the process stops, the
 * memory holds the result of all stores up to some point, in the order of the code.
 *
 *       0   magic (16 bytes)                  header
 *       16  version u32 | cells u32 | salt u32 | hash u32 | cells that were ever used u32
 *       40  last start that knew all pages to be good f64
 */
export class Cells {
  readonly count: number;
  /** Random number of this index, so that records of other indexes are invalid here. */
  salt = 0;
  readonly #segments: readonly CellSegment[];
  readonly #perSegment: number;

  /** `segments`: all but the last have the same length; all lengths are multiples of CELL_BYTES. */
  constructor(segments: readonly Uint8Array[]) {
    const perSegment = Math.floor((segments[0]?.length ?? 0) / CELL_BYTES);
    let count = 0;
    for (const segment of segments) count += Math.floor(segment.length / CELL_BYTES);
    if (count < 2) throw new ArgumentError(`pool index: needs at least ${2 * CELL_BYTES} bytes`);
    this.count = count;
    this.#perSegment = perSegment;
    this.#segments = segments.map(({ buffer, byteOffset, length }) => ({
      words: new Uint32Array(buffer, byteOffset, length >>> 2),
      doubles: new Float64Array(buffer, byteOffset, length >>> 3),
      bytes: Buffer.from(buffer, byteOffset, length),
    }));
  }

  /** Reads the header. */
  state(): CellsState {
    const { words, bytes } = this.segmentOf(0);
    if (words.subarray(0, HASH_AT + 1).every((word) => word === 0)) return 'empty';
    if (bytes.toString('latin1', 0, MAGIC.length) !== MAGIC) return 'foreign';
    if (words[VERSION_AT] !== FORMAT_VERSION) return 'other-version';
    if (words[HASH_AT] !== this.#headerHash()) return 'damaged';
    this.salt = words[SALT_AT] as number;
    return 'ours';
  }

  /** Number of cells according to the header; smaller than `count` if the memory has grown. */
  get headerCount(): number {
    return this.segmentOf(0).words[COUNT_AT] as number;
  }

  /** Cell from which on none has ever been used. */
  get usedEnd(): number {
    return Math.min(this.count, Math.max(1, this.segmentOf(0).words[USED_AT] as number));
  }

  /** The last start at which all pages were known to be good, see `digestOfStart`; 0: unknown. */
  get start(): number {
    const start = this.segmentOf(0).doubles[START_AT] as number;
    return Number.isSafeInteger(start) && start > 0 ? start : 0;
  }

  /** Notes such a start. */
  note(start: number): void {
    this.segmentOf(0).doubles[START_AT] = start;
  }

  /** Raises {@link usedEnd} above `cell`; to be called before the cell is used. */
  use(cell: number): void {
    if (cell >= this.usedEnd) Atomics.store(this.segmentOf(0).words, USED_AT, cell + USED_STEP_CELLS);
  }

  /** Empties the index: no cell is in use afterwards. `salt`: not 0. */
  begin(salt: number, state: CellsState): void {
    const { words, bytes } = this.segmentOf(0);
    // Earlier records have another salt, so they become invalid here.
    words[HASH_AT] = 0;
    for (let cell = 1; cell < this.count && state !== 'empty'; cell++) this.setWord(cell, 0, 0);
    words[USED_AT] = 0;
    this.note(0);
    bytes.write(MAGIC, 0, MAGIC.length, 'latin1');
    words[VERSION_AT] = FORMAT_VERSION;
    words[SALT_AT] = salt;
    this.salt = salt;
    this.writeCount();
  }

  /** Writes the current number of cells into the header. */
  writeCount(): void {
    const { words } = this.segmentOf(0);
    words[COUNT_AT] = this.count;
    Atomics.store(words, HASH_AT, this.#headerHash());
  }

  word(cell: number, at: number): number {
    return this.segmentOf(cell).words[this.wordOf(cell) + at] as number;
  }

  /** Stores a word after all earlier stores of the code. */
  setWord(cell: number, at: number, value: number): void {
    Atomics.store(this.segmentOf(cell).words, this.wordOf(cell) + at, value);
  }

  /** The segment that has the cell. */
  segmentOf(cell: number): CellSegment {
    return this.#segments[Math.floor(cell / this.#perSegment)] as CellSegment;
  }

  /** Position of the cell in its segment, in words. */
  wordOf(cell: number): number {
    return (cell % this.#perSegment) * CELL_WORDS;
  }

  #headerHash(): number {
    return hashWords(0x9e3779b9, this.segmentOf(0).words, 0, HASH_AT);
  }
}

/** Adds `words[from]` to `words[to - 1]` to a 32-bit hash. A change of any one word changes the result. */
export function hashWords(hash: number, words: Uint32Array, from: number, to: number): number {
  let h = hash | 0;
  for (let i = from; i < to; i++) {
    h = Math.imul(h ^ (words[i] as number), 0x85ebca6b);
    h = (h << 13) | (h >>> 19);
    h = (Math.imul(h, 5) + 0x1b873593) | 0;
  }
  h = Math.imul(h ^ (h >>> 16), 0xc2b2ae35);
  return (h ^ (h >>> 13)) >>> 0;
}
