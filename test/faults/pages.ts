import { closeSync, fstatSync, openSync, readSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { PageContent } from '../../src/cli/cluster/page-content.js';

/** The largest page of the workload; buffers have room for it. */
export const PAGE_MAX_BYTES = 64 * 1024;
/** Written by every node, always with the same bytes, as the pages of content hashes are. */
export const SHARED = 0xffff;
/** Overwritten by every node, with lengths by chance. */
export const NAMED = 0xfffe;
/** Keys of one node, and keys that all share or overwrite. */
export const OWN_KEYS_COUNT = 160;
export const SHARED_KEYS_COUNT = 48;
export const NAMED_KEYS_COUNT = 40;

/** Odd ones, too: they end within a word, a block, a packet. */
const LENGTHS_BYTES = [256, 1021, 4096, 4096, 16_384, 16_385, 40_000, PAGE_MAX_BYTES];
/** One key of so many has pages of another length with each version. */
const CHANGING_ONE_IN = 8;
/** From this index on named pages have the same length in all versions, and are small. */
export const FIXED_NAMED_FROM = 0x4000;
/** Lengths of named pages are at most this, and of small ones. */
const NAMED_MAX_BYTES = 12_000;
const FIXED_NAMED_MAX_BYTES = 4_000;
/** A version of a named page is that of its writer's log times this, plus the writer. */
const WRITERS_MAX_COUNT = 16;
/** In a log: what the index of a named key has on top. */
const NAMED_FLAG = 0x8000_0000;
const MAGIC = 0x6d636668;
const RECORD_BYTES = 8;
const HEADER_BYTES = 24;

/** A key of the workload: `writer` alone overwrites it, or it is {@link SHARED} or {@link NAMED}. */
export interface PageKey {
  readonly writer: number;
  readonly index: number;
}

export function keyText({ writer, index }: PageKey): string {
  if (writer === NAMED) return `named-${index}`;
  return writer === SHARED ? `shared-${index}` : `own-${writer}-${index}`;
}

/** The same as a number, for the {@link OrderLog}; undefined: its contents have no order, there is one. */
export function keyNumber({ writer, index }: PageKey): number | undefined {
  return writer === SHARED ? undefined : writer * 0x10000 + index;
}

/** {@link keyText} of a {@link keyNumber}. */
export function keyName(number: number): string {
  return keyText({ writer: Math.floor(number / 0x10000), index: number % 0x10000 });
}

/** Inverse of {@link keyText}; throws for others. */
export function parseKey(text: string): PageKey {
  const match = /^(?:(shared)|(named)|own-(\d+))-(\d+)$/.exec(text);
  if (match === null) throw new Error(`not a key of the workload: ${text}`);
  const writer = match[1] !== undefined ? SHARED : match[2] !== undefined ? NAMED : Number(match[3]);
  return { writer, index: Number(match[4]) };
}

/** Whether all versions have the same length, so that a page can be read without asking for it. */
export function hasFixedLength({ writer, index }: PageKey): boolean {
  if (writer === NAMED) return index >= FIXED_NAMED_FROM;
  return writer === SHARED || index % CHANGING_ONE_IN !== 0;
}

/** Of the page of this version, in bytes. */
export function lengthOf(key: PageKey, version: number): number {
  if (key.writer === NAMED) return namedLengthOf(key, version);
  const step = hasFixedLength(key) ? 0 : version;
  return LENGTHS_BYTES[(key.index * 5 + key.writer + step) % LENGTHS_BYTES.length] as number;
}

function namedLengthOf(key: PageKey, version: number): number {
  const isFixed = hasFixedLength(key);
  const step = isFixed ? 0 : version * 64;
  const chance = Math.imul(step + key.index + 1, 0x9e3779b1) >>> 0;
  return HEADER_BYTES + (chance % ((isFixed ? FIXED_NAMED_MAX_BYTES : NAMED_MAX_BYTES) - HEADER_BYTES));
}

/**
 * What was ever set under each key, by all nodes of one run, and the bytes of each page.
 *
 *     page     u32 magic, writer, index, version, length, seed; then words that follow from key, version and seed
 *     log      of one writer, in a file: at version * 8: u32 index, length; the index of a named key with bit 31
 *
 * A version is in its writer's log before it is set, and stays there when the writer is killed. So whoever reads a page
 * knows without asking whether these very bytes were ever set under its key.
 */
export class PageHistory {
  readonly #folder: string;
  readonly #seed: number;
  readonly #writer: number;
  readonly #content = new PageContent();
  readonly #expected = new Uint8Array(PAGE_MAX_BYTES + 4);
  readonly #record = new DataView(new ArrayBuffer(RECORD_BYTES));
  /** Logs by writer, open for as long as this process lives. */
  readonly #logs = new Map<number, number>();
  readonly #ownLog: number;
  #nextVersion: number;

  /** `writer`: the own node. Its versions go on where an earlier process of it has ended. */
  constructor(folder: string, options: { readonly seed: number; readonly writer: number }) {
    this.#folder = folder;
    this.#seed = options.seed;
    this.#writer = options.writer;
    this.#ownLog = openSync(this.#path(options.writer), 'a+');
    this.#nextVersion = Math.floor(fstatSync(this.#ownLog).size / RECORD_BYTES);
  }

  /**
   * A version that may be set under this key from now on: a new one of an own or named key, the only one of a shared
   * key.
   */
  begin(key: PageKey): number {
    const { writer } = key;
    if (writer === SHARED) return 0;
    if (writer !== this.#writer && writer !== NAMED) throw new Error(`${keyText(key)} is not this node's`);
    const logged = this.#nextVersion++;
    const version = writer === NAMED ? logged * WRITERS_MAX_COUNT + this.#writer : logged;
    this.#record.setUint32(0, loggedIndex(key), true);
    this.#record.setUint32(4, lengthOf(key, version), true);
    writeSync(this.#ownLog, this.#record);
    return version;
  }

  /** Writes the page into `target`, which has room for it; returns its length. */
  fill(target: Uint8Array, key: PageKey, version: number): number {
    const length = lengthOf(key, version);
    target.set(this.#page(key, version, length));
    return length;
  }

  /** Why `bytes` were never set under this key; undefined: they were. */
  problemOf(key: PageKey, bytes: Uint8Array): string | undefined {
    if (bytes.length > PAGE_MAX_BYTES) return `${bytes.length} bytes`;
    const header = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const version = bytes.length >= 16 ? header.getUint32(12, true) : 0;
    if (!this.#wasBegun(key, version, bytes.length)) {
      return `${bytes.length} bytes that say to be version ${version}, which was never set: ${hex(bytes)}`;
    }
    const expected = this.#page(key, version, bytes.length);
    if (Buffer.compare(bytes, expected) === 0) return undefined;
    const at = bytes.findIndex((byte, i) => byte !== expected[i]);
    const count = bytes.reduce((sum, byte, i) => sum + Number(byte !== expected[i]), 0);
    return `version ${version}: ${count} of ${bytes.length} bytes differ, from ${at} on: ${hex(bytes.subarray(at))}, not ${hex(expected.subarray(at))}`;
  }

  close(): void {
    closeSync(this.#ownLog);
    for (const log of this.#logs.values()) closeSync(log);
  }

  #wasBegun(key: PageKey, version: number, length: number): boolean {
    if (key.writer === SHARED) return version === 0 && length === lengthOf(key, 0);
    const isNamed = key.writer === NAMED;
    const writer = isNamed ? version % WRITERS_MAX_COUNT : key.writer;
    const logged = isNamed ? Math.floor(version / WRITERS_MAX_COUNT) : version;
    const read = readSync(this.#logOf(writer), this.#record, 0, RECORD_BYTES, logged * RECORD_BYTES);
    return (
      read === RECORD_BYTES &&
      this.#record.getUint32(0, true) === loggedIndex(key) &&
      this.#record.getUint32(4, true) === length
    );
  }

  /** Valid until the next call. */
  #page(key: PageKey, version: number, length: number): Uint8Array {
    const words = this.#expected.subarray(0, Math.ceil(length / 4) * 4);
    this.#content.fill(words, contentKey(key, version, this.#seed));
    const header = new DataView(words.buffer);
    [MAGIC, key.writer, key.index, version, length, this.#seed].forEach((value, i) => {
      header.setUint32(4 * i, value, true);
    });
    return words.subarray(0, length);
  }

  #logOf(writer: number): number {
    let log = this.#logs.get(writer);
    if (log === undefined) {
      log = openSync(this.#path(writer), 'a+');
      this.#logs.set(writer, log);
    }
    return log;
  }

  #path(writer: number): string {
    return join(this.#folder, `versions-${writer}`);
  }
}

function loggedIndex({ writer, index }: PageKey): number {
  return (writer === NAMED ? index | NAMED_FLAG : index) >>> 0;
}

/** The version that a right page says to be; pages are longer than that. */
export function versionOf(bytes: Uint8Array): number {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length).getUint32(12, true);
}

/** Versions of a key differ in every word, and so do the same versions of two keys but for chance. */
function contentKey({ writer, index }: PageKey, version: number, seed: number): string {
  const place = Math.imul(writer * 4096 + index + 1, 0x9e3779b1) ^ seed;
  return [place, version].map((word) => (word >>> 0).toString(16).padStart(8, '0')).join('');
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes.subarray(0, 24)).toString('hex');
}
