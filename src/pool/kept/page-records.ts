import { assert, assertEqual, reduced } from '../../base/assert.js';
import { isVersion } from '../../base/concurrency/hybrid-clock.js';
import { KEY_MAX_BYTES, KEY_PREFIX_BYTES } from '../../base/limits.js';
import type { PublishedPage, RestoredPage } from '../slots/placement.js';
import { CELL_BYTES, type Cells, HEAD, hashWords, NO_CELL, REST } from './cells.js';

/** Positions of a head's fields, in 32-bit words. */
const KIND_AT = 0;
const NEXT_AT = 1;
const HASH_AT = 2;
const ORDER_AT = 3;
const FLAGS_AT = 4;
const KEY_BYTES_AT = 5;
const LENGTH_AT = 6;
const CHECKSUM_AT = 7;
const SET_BY_AT = 18;
/** Positions of a head's numbers, in units of 8 bytes. */
const OFFSET_AT = 4;
const STAMP_AT = 5;
const TAIL_AT = 6;
const VERSION_AT = 7;
const EXPIRES_AT = 8;
/** Byte position of the key in a head and in a further cell. */
const HEAD_KEY_AT = 76;
const REST_KEY_AT = 8;
const HEAD_KEY_BYTES = CELL_BYTES - HEAD_KEY_AT;
const REST_KEY_BYTES = CELL_BYTES - REST_KEY_AT;

/** Flags: the page is a named entry; the key is stored with 16 bits per character. */
const NAMED = 1;
const WIDE = 2;
/** Longest key of a record: the longest text with its prefix, 16 bits a character. */
const KEPT_KEY_MAX_BYTES = 2 * (KEY_MAX_BYTES + KEY_PREFIX_BYTES);
const NARROW = /^[\0-\u00ff]*$/;

/** A page as found in an existing index. */
export interface FoundRecord extends Required<RestoredPage> {
  readonly stamp: number;
  readonly tail: number;
  /** The cell of its head. */
  readonly cell: number;
  /** Later pages have larger numbers. */
  readonly order: number;
}

/** Result of searching an index. */
export interface FoundRecords {
  /** The records, earliest in the order of use first. */
  readonly records: FoundRecord[];
  /** Heads whose checksum is wrong, or whose cells do not belong to them. */
  readonly damagedCount: number;
}

/**
 * The records of one pool's pages, in memory that outlives the process (`POOL_FILE.md`). A record is written after its
 * page is complete and has its stamp, and destroyed after that stamp and before the range is reused. So after a crash
 * at any moment, either a page is found with all its bytes, or no page: the record's hash is wrong, or the stamp in the
 * pool differs from the one that the record names.
 *
 *       head     kind | next | hash | order | flags | key bytes | length | checksum (u32 each)
 *       32       offset | stamp | tail | version | expires (f64 each)
 *       72       set by (u32)
 *       76       the first 52 bytes of the key
 *       further  kind | next (u32 each) | 120 bytes of the key
 *
 * Accounting: `#cellOf` of a slot is the head of its page's record; NO_CELL: it has none. Each cell except the header
 * is in exactly one record, or free.
 */
export class PageRecords {
  readonly #cells: Cells;
  #cellOf = new Uint32Array(1024);
  #freeCell = NO_CELL;
  #freeCount = 0;
  /** First cell that this process has never used, nor any after it. */
  #unusedFrom = 1;
  #order = 0;
  #count = 0;
  /** Published pages without a record, because the index is full or their key is too long. */
  unrecordedCount = 0;

  /** Call {@link find} and {@link settle} first; for an index that was emptied, only {@link settle}. */
  constructor(cells: Cells) {
    this.#cells = cells;
  }

  /** Number of records. */
  get count(): number {
    return this.#count;
  }

  /** Bytes of the index that are free. */
  get freeBytes(): number {
    return (this.#freeCount + this.#cells.count - this.#unusedFrom) * CELL_BYTES;
  }

  /**
   * Searches an index of this format. `isThere`: whether the pool has that page's stamp in its place. The caller must
   * {@link adopt} the records that it uses, then call {@link settle}, which frees all other cells.
   */
  find(isThere: (record: FoundRecord) => boolean): FoundRecords {
    const byKey = new Map<string, FoundRecord>();
    let damagedCount = 0;
    for (let cell = 1, end = this.#cells.usedEnd; cell < end; cell++) {
      if (this.#cells.word(cell, KIND_AT) !== HEAD) continue;
      const record = this.#read(cell);
      if (record === null) damagedCount++;
      if (record === null || !isThere(record)) continue;
      const other = byKey.get(record.key);
      // A crash while a record was being replaced has left both.
      if (other === undefined || isLater(record, other)) byKey.set(record.key, record);
    }
    const records = [...byKey.values()].sort((a, b) => a.order - b.order);
    return { records, damagedCount };
  }

  /** Assigns the record to the page in this slot. */
  adopt(slot: number, { cell }: FoundRecord): void {
    this.#setCell(slot, cell);
    this.#count++;
  }

  /** Frees all cells not in an adopted record, and numbers the records in this order of use. */
  settle(order: Iterable<number>): void {
    const used = new Uint8Array(this.#cells.usedEnd);
    for (const head of this.#cellOf) {
      for (let cell = head; cell !== NO_CELL; cell = this.#cells.word(cell, NEXT_AT)) used[cell] = 1;
    }
    this.#freeCell = NO_CELL;
    this.#freeCount = 0;
    let last = used.length - 1;
    while (last > 0 && used[last] === 0) {
      if (this.#cells.word(last, KIND_AT) !== 0) this.#cells.setWord(last, KIND_AT, 0);
      last--;
    }
    for (let cell = last; cell > 0; cell--) if (used[cell] === 0) this.#free(cell);
    this.#unusedFrom = last + 1;
    this.writeOrder(order);
    this.#cells.writeCount();
  }

  /** Records the order in which the pages of these slots are used, the next victim first. */
  writeOrder(slots: Iterable<number>): void {
    let order = 0;
    for (const slot of slots) {
      const cell = this.#cellOf[slot] ?? NO_CELL;
      if (cell !== NO_CELL) this.#cells.setWord(cell, ORDER_AT, ++order);
    }
    this.#order = Math.max(order, 0);
  }

  /** Records a page that is complete and has its stamp. An existing record is replaced. */
  put(
    slot: number,
    key: string,
    page: PublishedPage,
    { stamp, tail }: { readonly stamp: number; readonly tail: number },
  ): void {
    const before = this.#cellOf[slot] ?? NO_CELL;
    const head = this.#write(key, page, stamp, tail);
    if (head === NO_CELL) this.unrecordedCount++;
    else this.#count++;
    // If there is no room for the new record, the page has none: the old one could declare expired or outdated content
    // good.
    if (before !== NO_CELL) this.#destroy(before);
    this.#setCell(slot, head);
  }

  /** Whether the page in this slot has a record. */
  has(slot: number): boolean {
    return (this.#cellOf[slot] ?? NO_CELL) !== NO_CELL;
  }

  /** Destroys the record of a slot; harmless if it has none. */
  drop(slot: number): void {
    const cell = this.#cellOf[slot] ?? NO_CELL;
    if (cell === NO_CELL) return;
    this.#cellOf[slot] = NO_CELL;
    this.#destroy(cell);
  }

  #destroy(head: number): void {
    this.#cells.setWord(head, KIND_AT, 0);
    for (let cell = head; cell !== NO_CELL; ) {
      const next = this.#cells.word(cell, NEXT_AT);
      this.#free(cell);
      cell = next;
    }
    this.#count = reduced('page records: count', this.#count, 1);
  }

  #write(key: string, page: PublishedPage, stamp: number, tail: number): number {
    const isWide = !NARROW.test(key);
    const keyBytes = isWide ? 2 * key.length : key.length;
    const restCount = Math.ceil(Math.max(0, keyBytes - HEAD_KEY_BYTES) / REST_KEY_BYTES);
    if (keyBytes > KEPT_KEY_MAX_BYTES || this.freeBytes < (restCount + 1) * CELL_BYTES) return NO_CELL;
    const head = this.#take();
    const { words, doubles } = this.#cells.segmentOf(head);
    const at = this.#cells.wordOf(head);
    words[at + FLAGS_AT] = (page.kind === 'named' ? NAMED : 0) | (isWide ? WIDE : 0);
    words[at + KEY_BYTES_AT] = keyBytes;
    words[at + LENGTH_AT] = page.length;
    words[at + CHECKSUM_AT] = page.checksum;
    words[at + SET_BY_AT] = page.setBy;
    words[at + ORDER_AT] = ++this.#order;
    doubles[at / 2 + OFFSET_AT] = page.offset;
    doubles[at / 2 + STAMP_AT] = stamp;
    doubles[at / 2 + TAIL_AT] = tail;
    doubles[at / 2 + VERSION_AT] = page.version;
    doubles[at / 2 + EXPIRES_AT] = page.expires;
    this.#writeKey(head, key, isWide, keyBytes);
    words[at + HASH_AT] = this.#hashOf(head, keyBytes);
    this.#cells.setWord(head, KIND_AT, HEAD);
    return head;
  }

  /** Writes the key into the head and as many further cells as needed. */
  #writeKey(head: number, key: string, isWide: boolean, keyBytes: number): void {
    const width = isWide ? 2 : 1;
    let cell = head;
    for (let from = 0, startAt = HEAD_KEY_AT; ; startAt = REST_KEY_AT) {
      const length = Math.min(keyBytes - from, CELL_BYTES - startAt);
      const { bytes } = this.#cells.segmentOf(cell);
      const at = 4 * this.#cells.wordOf(cell) + startAt;
      const part = length === keyBytes ? key : key.slice(from / width, (from + length) / width);
      bytes.write(part, at, length, isWide ? 'utf16le' : 'latin1');
      from += length;
      const next = from < keyBytes ? this.#take() : NO_CELL;
      this.#cells.setWord(cell, NEXT_AT, next);
      if (next === NO_CELL) return;
      this.#cells.setWord(next, KIND_AT, REST);
      cell = next;
    }
  }

  /** Hash of everything in a record except its order of use. */
  #hashOf(head: number, keyBytes: number): number {
    const { words } = this.#cells.segmentOf(head);
    const at = this.#cells.wordOf(head);
    const inHead = Math.min(keyBytes, HEAD_KEY_BYTES);
    let next = words[at + NEXT_AT] as number;
    let hash = hashWords(this.#cells.salt ^ next, words, at + FLAGS_AT, at + Math.ceil((HEAD_KEY_AT + inHead) / 4));
    for (let left = keyBytes - inHead; left > 0; left -= REST_KEY_BYTES) {
      const from = this.#cells.wordOf(next);
      const end = from + Math.ceil((REST_KEY_AT + Math.min(left, REST_KEY_BYTES)) / 4);
      const rest = this.#cells.segmentOf(next).words;
      hash = hashWords(hash, rest, from + NEXT_AT, end);
      next = rest[from + NEXT_AT] as number;
    }
    return hash;
  }

  /** Reads the record at a head; null if it is damaged. */
  #read(head: number): FoundRecord | null {
    const { words, doubles } = this.#cells.segmentOf(head);
    const at = this.#cells.wordOf(head);
    const word = (index: number): number => words[at + index] as number;
    const number = (index: number): number => doubles[at / 2 + index] as number;
    const keyBytes = word(KEY_BYTES_AT);
    const isWide = (word(FLAGS_AT) & WIDE) !== 0;
    if (keyBytes > KEPT_KEY_MAX_BYTES || (isWide && keyBytes % 2 !== 0) || !this.#hasCells(head, keyBytes)) return null;
    if (word(HASH_AT) !== this.#hashOf(head, keyBytes)) return null;
    if (![OFFSET_AT, STAMP_AT, TAIL_AT, VERSION_AT, EXPIRES_AT].every((index) => isVersion(number(index)))) return null;
    return {
      key: this.#readKey(head, isWide, keyBytes),
      offset: number(OFFSET_AT),
      length: word(LENGTH_AT),
      checksum: word(CHECKSUM_AT),
      version: number(VERSION_AT),
      kind: (word(FLAGS_AT) & NAMED) !== 0 ? 'named' : 'computed',
      setBy: word(SET_BY_AT),
      expires: number(EXPIRES_AT),
      stamp: number(STAMP_AT),
      tail: number(TAIL_AT),
      cell: head,
      order: word(ORDER_AT),
    };
  }

  /** Whether the head has exactly as many further cells as its key takes. */
  #hasCells(head: number, keyBytes: number): boolean {
    let left = keyBytes - HEAD_KEY_BYTES;
    let cell = this.#cells.word(head, NEXT_AT);
    for (; left > 0; left -= REST_KEY_BYTES) {
      if (cell === NO_CELL || cell >= this.#cells.usedEnd || this.#cells.word(cell, KIND_AT) !== REST) return false;
      cell = this.#cells.word(cell, NEXT_AT);
    }
    return cell === NO_CELL;
  }

  #readKey(head: number, isWide: boolean, keyBytes: number): string {
    const parts: string[] = [];
    let left = keyBytes;
    for (let cell = head, startAt = HEAD_KEY_AT; ; startAt = REST_KEY_AT) {
      const { bytes } = this.#cells.segmentOf(cell);
      const at = 4 * this.#cells.wordOf(cell) + startAt;
      const length = Math.min(left, CELL_BYTES - startAt);
      parts.push(bytes.toString(isWide ? 'utf16le' : 'latin1', at, at + length));
      left -= length;
      if (left === 0) return parts.join('');
      cell = this.#cells.word(cell, NEXT_AT);
    }
  }

  #take(): number {
    if (this.#freeCell === NO_CELL) {
      this.#cells.use(this.#unusedFrom);
      return this.#unusedFrom++;
    }
    const cell = this.#freeCell;
    this.#freeCell = this.#cells.word(cell, NEXT_AT);
    this.#freeCount = reduced('page records: free count', this.#freeCount, 1);
    return cell;
  }

  #free(cell: number): void {
    this.#cells.setWord(cell, KIND_AT, 0);
    this.#cells.setWord(cell, NEXT_AT, this.#freeCell);
    this.#freeCell = cell;
    this.#freeCount++;
  }

  #setCell(slot: number, cell: number): void {
    if (slot >= this.#cellOf.length) {
      if (cell === NO_CELL) return;
      const grown = new Uint32Array(Math.max(slot + 1, 2 * this.#cellOf.length));
      grown.set(this.#cellOf);
      this.#cellOf = grown;
    }
    this.#cellOf[slot] = cell;
  }

  /**
   * Throws `InvariantError` unless the accounting of this class holds, and each recorded page of `pages` has its own
   * record.
   */
  verify(pages: Iterable<readonly [key: string, page: PublishedPage]>): void {
    const seen = new Set<number>();
    const take = (cell: number, what: string): void => {
      assert(
        cell > 0 && cell < this.#cells.count && !seen.has(cell),
        () => `page records: cell ${cell} of ${what} is taken`,
      );
      seen.add(cell);
    };
    let count = 0;
    for (const [key, page] of pages) {
      const head = this.#cellOf[page.slot] ?? NO_CELL;
      if (head === NO_CELL) continue;
      count++;
      const record = this.#read(head);
      const isOwn = record?.key === key && record.offset === page.offset && record.checksum === page.checksum;
      assert(
        isOwn && record.setBy === page.setBy,
        () => `page records: the record of ${JSON.stringify(key)} is another one`,
      );
      assertEqual(`page records: version of ${JSON.stringify(key)}`, record?.version ?? -1, page.version);
      for (let cell = head; cell !== NO_CELL; cell = this.#cells.word(cell, NEXT_AT)) take(cell, JSON.stringify(key));
    }
    assertEqual('page records: of pages that are here', this.#count, count);
    for (let cell = this.#freeCell; cell !== NO_CELL; cell = this.#cells.word(cell, NEXT_AT))
      take(cell, 'the free ones');
    assertEqual('page records: cells in use', seen.size, this.#unusedFrom - 1);
  }
}

function isLater(record: FoundRecord, other: FoundRecord): boolean {
  return record.version > other.version || (record.version === other.version && record.order > other.order);
}
