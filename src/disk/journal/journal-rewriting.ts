import type { Files } from '../../base/environment/files.js';
import { DiskError } from '../../base/errors.js';
import { JournalFile } from './journal-file.js';
import { BLOCK_HEADER_BYTES, HEADER_BYTES, type IndexEntry, putRecordBytes, RecordWriter } from './journal-format.js';

/** The pages of a store at one moment. */
export interface Snapshot {
  readonly count: number;
  /**
   * Keys of a slice of pages, the next victim first. In place of a page that has left since, there is undefined or the
   * key of another page.
   */
  keysAt(from: number, to: number): readonly (string | undefined)[];
  /** The present entry of each key; null: the page has left since. */
  entriesOf(keys: readonly string[]): (IndexEntry | null)[];
}

/** No pages. */
export const EMPTY_SNAPSHOT: Snapshot = { count: 0, keysAt: () => [], entriesOf: () => [] };
/** Keys that are written between two turns of the event loop. */
const SLICE_KEYS = 512;
/** Characters of keys that are written between two turns of the event loop. */
const SLICE_CHARACTERS = 128 * 1024;

/**
 * A journal that replaces another one. It has the pages of a snapshot that were not put again since, then the blocks
 * that were written to the old journal since the snapshot began.
 */
export class JournalRewriting {
  readonly #path: string;
  readonly #storeId: string;
  readonly #snapshot: Snapshot;
  readonly #files: Files;
  readonly #blocks: Uint8Array[] = [];
  #maxBytes: number;
  /** Keys put since the snapshot; their places may be those of pages of the snapshot that have left. */
  readonly #putSince = new Set<string>();
  #file: JournalFile | undefined;
  #isStopped = false;

  /** `liveBytes` is the size of the records of the snapshot's pages. */
  constructor(
    path: string,
    {
      storeId,
      snapshot,
      liveBytes,
      files,
    }: {
      readonly storeId: string;
      readonly snapshot: Snapshot;
      readonly liveBytes: number;
      readonly files: Files;
    },
  ) {
    this.#path = path;
    this.#storeId = storeId;
    this.#snapshot = snapshot;
    this.#files = files;
    this.#maxBytes = rewrittenBytes(liveBytes);
  }

  /** Largest size of the finished file. */
  get maxBytes(): number {
    return this.#maxBytes;
  }

  /** Present size of the file. */
  get bytes(): number {
    return this.#file?.bytes ?? 0;
  }

  /** Notes that a page was put since the snapshot, so that the blocks will have it. */
  put(key: string): void {
    this.#putSince.add(key);
  }

  /** Adds a block that belongs after the snapshot. */
  add(block: Uint8Array): void {
    this.#blocks.push(block);
    this.#maxBytes += block.length;
  }

  /** Stops: {@link write} rejects soon. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Writes and syncs the snapshot and the blocks added so far. Rejects with the system's error. */
  async write(): Promise<void> {
    await this.#files.rm(this.#path, { force: true });
    this.#file = await JournalFile.create(this.#path, this.#storeId, this.#files);
    const { count } = this.#snapshot;
    for (let start = 0; start < count; ) {
      const slice = shortened(this.#snapshot.keysAt(start, Math.min(count, start + SLICE_KEYS)));
      start += slice.length;
      const keys = slice.filter((key) => key !== undefined && !this.#putSince.has(key)) as string[];
      const records = new RecordWriter(Number.POSITIVE_INFINITY);
      for (const entry of this.#snapshot.entriesOf(keys)) if (entry !== null) records.put(entry);
      for (const block of records.take()) await this.#append(block);
    }
    await this.#appendBlocks();
    await this.#file.sync();
  }

  /**
   * Replaces the file at `path`, whose last block must have been added. Returns the new file, which then belongs to the
   * caller.
   */
  async replace(path: string): Promise<JournalFile> {
    await this.#appendBlocks();
    await this.#files.rename(this.#path, path);
    return this.#file as JournalFile;
  }

  /** Deletes the unfinished file. */
  async discard(): Promise<void> {
    await this.#file?.close();
    await this.#files.rm(this.#path, { force: true });
  }

  async #appendBlocks(): Promise<void> {
    for (let block = this.#blocks.shift(); block !== undefined; block = this.#blocks.shift()) await this.#append(block);
  }

  async #append(block: Uint8Array): Promise<void> {
    const file = this.#file as JournalFile;
    if (this.#isStopped) throw new DiskError('the rewriting of the index was stopped');
    if (file.bytes + block.length > this.#maxBytes)
      throw new DiskError(
        `the index has more pages than the journal knows: they take more than ${this.#maxBytes} bytes`,
      );
    await file.append(block);
  }
}

/** Largest size of a new journal whose records take `liveBytes`: a block has at least SLICE_KEYS of them. */
export function rewrittenBytes(liveBytes: number): number {
  return HEADER_BYTES + BLOCK_HEADER_BYTES + Math.ceil(liveBytes * 1.01);
}

/** The first keys with SLICE_CHARACTERS in all; at least one. */
function shortened(keys: readonly (string | undefined)[]): readonly (string | undefined)[] {
  let end = 0;
  for (let characters = 0; end < keys.length && characters < SLICE_CHARACTERS; end++)
    characters += keys[end]?.length ?? 0;
  return end < keys.length ? keys.slice(0, end) : keys;
}

/** Counts the pages of a snapshot, and the size of their records. */
export function counted({ count, keysAt }: Snapshot): { readonly entries: number; readonly liveBytes: number } {
  let liveBytes = 0;
  for (const key of keysAt(0, count)) liveBytes += key === undefined ? 0 : putRecordBytes(key);
  return { entries: count, liveBytes };
}
