import { isUtf8 } from 'node:buffer';
import { isVersion } from '../../base/concurrency/hybrid-clock.js';
import { ArgumentError, DiskError } from '../../base/errors.js';
import { JOURNAL_BLOCK_MAX_BYTES, KEY_MAX_BYTES, KEY_PREFIX_BYTES } from '../../base/limits.js';
import { crc32 } from '../../memory/checksum.js';
import type { EntryKind } from '../../types.js';

/** One page of the disk index. */
export interface IndexEntry {
  readonly key: string;
  /** Offset of the page in the page file in bytes, below 2^48. */
  readonly offset: number;
  readonly length: number;
  /** CRC-32 of the page. */
  readonly checksum: number;
  /** Version of the page, below 2^53 (see `PageOrigin`); 0: unknown. */
  readonly version?: number;
  readonly kind?: EntryKind;
  /** Version from which on the page is expired (see `PageOrigin`); 0, the default: never. */
  readonly expires?: number;
  /** Origin of a copy (see `PageOrigin`); 0, the default: the page is not a copy. */
  readonly setBy?: number;
}

/** An existing journal cannot be used: its header, store or version does not match, or it is damaged before its end. */
export class JournalDamage extends DiskError {}

/** Version of the format that FORMAT.md describes. */
export const FORMAT_VERSION = 3;
/** An earlier version that can be read as well: its records are valid in this version. */
const FORMAT_VERSION_BEFORE = 2;
export const HEADER_BYTES = 32;
export const BLOCK_HEADER_BYTES = 12;
/** The first characters of every journal. */
export const JOURNAL_MAGIC = 'MCIX';
const STORE_ID = /^[0-9a-f]{32}$/;

const PUT = 1;
const REMOVE = 2;
const USE = 3;
/** Length of a PUT without its key. */
const PUT_FIXED_BYTES = 28;
/** Bytes that a PUT has between its flags and its key if the page expires. */
const EXPIRY_BYTES = 8;
/** Bytes that a PUT has before its key if the page is a copy. */
const SET_BY_BYTES = 4;
/** Flag of a PUT: the page is a named entry. */
const NAMED = 1;
/** Flag of a PUT: the page expires. */
const EXPIRES = 2;
/** Flag of a PUT: the page is a copy. */
const COPIED = 4;
const FLAGS_MAX = NAMED | EXPIRES | COPIED;
/** Length of a REMOVE without its key. */
const REMOVE_FIXED_BYTES = 5;
/** Length of a USE. */
const USE_BYTES = 7;
const RECORD_KEY_MAX_BYTES = KEY_MAX_BYTES + KEY_PREFIX_BYTES;
const FIRST_BLOCK_BYTES = 4096;

/** Most bytes of the journal for a page with this key. */
export function putRecordBytes(key: string): number {
  return PUT_FIXED_BYTES + EXPIRY_BYTES + SET_BY_BYTES + Buffer.byteLength(key);
}

/** Bytes of a PUT before its key. */
function putFixedBytes(flags: number): number {
  return PUT_FIXED_BYTES + ((flags & EXPIRES) === 0 ? 0 : EXPIRY_BYTES) + ((flags & COPIED) === 0 ? 0 : SET_BY_BYTES);
}

/** Encodes a header. Throws `ArgumentError` unless `storeId` is 32 lower-case hexadecimal characters. */
export function encodeHeader(storeId: string): Buffer {
  if (!STORE_ID.test(storeId))
    throw new ArgumentError(`a store id has 32 lower-case hexadecimal characters, got ${JSON.stringify(storeId)}`);
  const header = Buffer.alloc(HEADER_BYTES);
  header.write(JOURNAL_MAGIC, 0, 'latin1');
  header.writeUInt32LE(FORMAT_VERSION, 4);
  header.write(storeId, 8, 'hex');
  header.writeUInt32LE(crc32(header.subarray(0, 28)), 28);
  return header;
}

/**
 * Returns the version in a header. Throws `JournalDamage` unless it is that of a journal of this store and of a known
 * version.
 */
export function checkHeader(header: Buffer, storeId: string): number {
  if (header.length < HEADER_BYTES || header.toString('latin1', 0, 4) !== JOURNAL_MAGIC)
    throw new JournalDamage('the index is no journal of meshcache, or its first bytes are damaged');
  const version = header.readUInt32LE(4);
  if (version !== FORMAT_VERSION && version !== FORMAT_VERSION_BEFORE)
    throw new JournalDamage(
      `the index has format version ${version}, this program reads ${FORMAT_VERSION_BEFORE} and ${FORMAT_VERSION}`,
    );
  if (header.readUInt32LE(28) !== crc32(header.subarray(0, 28)))
    throw new JournalDamage('the header of the index is damaged');
  const owner = header.toString('hex', 8, 24);
  if (owner !== storeId) throw new JournalDamage(`the index belongs to store ${owner}, not to ${storeId}`);
  return version;
}

/** Length of the body after a block's header; undefined: the header is damaged. */
export function bodyLength(header: Buffer): number | undefined {
  if (header.readUInt32LE(8) !== crc32(header.subarray(0, 8))) return undefined;
  const length = header.readUInt32LE(0);
  return length > 0 && length <= JOURNAL_BLOCK_MAX_BYTES ? length : undefined;
}

export function isBodyWhole(header: Buffer, body: Buffer): boolean {
  return header.readUInt32LE(4) === crc32(body);
}

/** Collects records into blocks. */
export class RecordWriter {
  readonly #targetBytes: number;
  readonly #full: Buffer[] = [];
  #block: Buffer = Buffer.alloc(0);
  #end = 0;
  #fullBytes = 0;

  /** A block has at most `targetBytes` unless a single record takes more. */
  constructor(targetBytes: number) {
    this.#targetBytes = Math.min(targetBytes, BLOCK_HEADER_BYTES + JOURNAL_BLOCK_MAX_BYTES);
  }

  /** Total length of the blocks that {@link take} would return. */
  get bytes(): number {
    return this.#fullBytes + this.#end;
  }

  /** Records a PUT. Throws `ArgumentError`, and records nothing, if the key is not well-formed Unicode or too long. */
  put({ key, offset, length, checksum, version = 0, kind, expires = 0, setBy = 0 }: IndexEntry): void {
    const flags = (kind === 'named' ? NAMED : 0) | (expires === 0 ? 0 : EXPIRES) | (setBy === 0 ? 0 : COPIED);
    const fixedBytes = putFixedBytes(flags);
    const at = this.#keyRecord(PUT, key, fixedBytes);
    this.#block.writeUIntLE(offset, at + 5, 6);
    this.#block.writeUInt32LE(length, at + 11);
    this.#block.writeUInt32LE(checksum, at + 15);
    this.#block.writeDoubleLE(version, at + 19);
    this.#block[at + 27] = flags;
    if (expires !== 0) this.#block.writeDoubleLE(expires, at + PUT_FIXED_BYTES);
    if (setBy !== 0) this.#block.writeUInt32LE(setBy, at + fixedBytes - SET_BY_BYTES);
  }

  /** Records a REMOVE. Throws the same errors as {@link put}. */
  remove(key: string): void {
    this.#keyRecord(REMOVE, key, REMOVE_FIXED_BYTES);
  }

  use(offset: number): void {
    const at = this.#reserve(USE_BYTES);
    this.#block[at] = USE;
    this.#block.writeUIntLE(offset, at + 1, 6);
  }

  /** Takes everything recorded since the last call as blocks, which then belong to the caller. */
  take(): Buffer[] {
    this.#seal();
    this.#fullBytes = 0;
    return this.#full.splice(0);
  }

  /** Writes kind, length of the key, and the key after the fixed part; returns the start of the record. */
  #keyRecord(kind: number, key: string, fixedBytes: number): number {
    if (!key.isWellFormed()) throw new ArgumentError(`key is not well-formed Unicode: ${JSON.stringify(key)}`);
    const keyBytes = Buffer.byteLength(key);
    if (keyBytes > RECORD_KEY_MAX_BYTES)
      throw new ArgumentError(`a key of ${keyBytes} bytes, ${RECORD_KEY_MAX_BYTES} are allowed`);
    const at = this.#reserve(fixedBytes + keyBytes);
    this.#block[at] = kind;
    this.#block.writeUInt32LE(keyBytes, at + 1);
    this.#block.write(key, at + fixedBytes, keyBytes, 'utf8');
    return at;
  }

  /** Reserves space for a record; returns its start in the block. */
  #reserve(bytes: number): number {
    if (this.#end > 0 && this.#end + bytes > this.#targetBytes) this.#seal();
    const at = this.#end === 0 ? BLOCK_HEADER_BYTES : this.#end;
    if (at + bytes > this.#block.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(at + bytes, this.#block.length * 2, FIRST_BLOCK_BYTES));
      this.#block.copy(larger, 0, 0, this.#end);
      this.#block = larger;
    }
    this.#end = at + bytes;
    return at;
  }

  #seal(): void {
    if (this.#end === 0) return;
    const block = this.#block.subarray(0, this.#end);
    block.writeUInt32LE(this.#end - BLOCK_HEADER_BYTES, 0);
    block.writeUInt32LE(crc32(block.subarray(BLOCK_HEADER_BYTES)), 4);
    block.writeUInt32LE(crc32(block.subarray(0, 8)), 8);
    this.#full.push(block);
    this.#fullBytes += this.#end;
    this.#block = Buffer.alloc(0);
    this.#end = 0;
  }
}

/** The entries that result from a journal's records. */
export class Replay {
  /** Entries by offset in the order of use, the least recent first. */
  readonly #byOffset = new Map<number, IndexEntry>();
  readonly #offsets = new Map<string, number>();

  #liveBytes = 0;

  /** Most bytes of the PUT records of all entries. */
  get liveBytes(): number {
    return this.#liveBytes;
  }

  /** All entries, the least recently used first. */
  entries(): IterableIterator<IndexEntry> {
    return this.#byOffset.values();
  }

  /**
   * Applies at most `maxRecords` records of `body` from `start` on; returns the start of the next one. Throws
   * `JournalDamage` at an invalid record.
   */
  apply(body: Buffer, start: number, maxRecords: number): number {
    let at = start;
    for (let count = 0; at < body.length && count < maxRecords; count++) at = this.#applyOne(body, at);
    return at;
  }

  #applyOne(body: Buffer, at: number): number {
    switch (body[at]) {
      case PUT:
        return this.#applyPut(body, at);
      case REMOVE: {
        const end = endOfKey(body, at, REMOVE_FIXED_BYTES);
        this.#removeKey(body.toString('utf8', at + REMOVE_FIXED_BYTES, end));
        return end;
      }
      case USE: {
        const end = checkEnd(body, at, USE_BYTES);
        this.#use(body.readUIntLE(at + 1, 6));
        return end;
      }
      default:
        throw badRecord(body, at);
    }
  }

  #applyPut(body: Buffer, at: number): number {
    checkEnd(body, at, PUT_FIXED_BYTES);
    const flags = body[at + 27] as number;
    const fixedBytes = putFixedBytes(flags);
    const end = endOfKey(body, at, fixedBytes);
    const key = body.toString('utf8', at + fixedBytes, end);
    const version = body.readDoubleLE(at + 19);
    const expires = (flags & EXPIRES) === 0 ? 0 : body.readDoubleLE(at + PUT_FIXED_BYTES);
    const isExpiryRight = expires > 0 || (flags & EXPIRES) === 0;
    const setBy = (flags & COPIED) === 0 ? 0 : body.readUInt32LE(at + fixedBytes - SET_BY_BYTES);
    const isSetByRight = setBy > 0 || (flags & COPIED) === 0;
    if (flags > FLAGS_MAX || !isExpiryRight || !isSetByRight) throw badRecord(body, at);
    const kind: EntryKind = (flags & NAMED) !== 0 ? 'named' : 'computed';
    const offset = body.readUIntLE(at + 5, 6);
    const before = this.#byOffset.get(offset);
    if (before !== undefined) this.#removeKey(before.key);
    this.#removeKey(key);
    // A clock that was far ahead has led to such versions. No node takes such a page, but the others are good.
    if (!isVersion(version) || !isVersion(expires)) return end;
    const [length, checksum] = [body.readUInt32LE(at + 11), body.readUInt32LE(at + 15)];
    const origin = {
      ...(version > 0 || kind === 'named' ? { version, kind } : {}),
      ...(expires > 0 ? { expires } : {}),
      ...(setBy > 0 ? { setBy } : {}),
    };
    this.#byOffset.set(offset, { key, offset, length, checksum, ...origin });
    this.#offsets.set(key, offset);
    this.#liveBytes += putRecordBytes(key);
    return end;
  }

  #removeKey(key: string): void {
    const offset = this.#offsets.get(key);
    if (offset === undefined) return;
    this.#offsets.delete(key);
    this.#byOffset.delete(offset);
    this.#liveBytes -= putRecordBytes(key);
  }

  #use(offset: number): void {
    const entry = this.#byOffset.get(offset);
    if (entry === undefined) return;
    this.#byOffset.delete(offset);
    this.#byOffset.set(offset, entry);
  }
}

function endOfKey(body: Buffer, at: number, fixedBytes: number): number {
  checkEnd(body, at, fixedBytes);
  const keyBytes = body.readUInt32LE(at + 1);
  const end = checkEnd(body, at, fixedBytes + keyBytes);
  // Two different keys that are not UTF-8 could decode to the same text.
  if (keyBytes > RECORD_KEY_MAX_BYTES || !isUtf8(body.subarray(end - keyBytes, end))) throw badRecord(body, at);
  return end;
}

function checkEnd(body: Buffer, at: number, bytes: number): number {
  if (at + bytes > body.length) throw badRecord(body, at);
  return at + bytes;
}

function badRecord(body: Buffer, at: number): JournalDamage {
  return new JournalDamage(`the index has a record of kind ${body[at]} that is none of format ${FORMAT_VERSION}`);
}
