import type { Files } from '../../base/environment/files.js';
import { DiskError } from '../../base/errors.js';
import { JournalFile } from './journal-file.js';
import { BLOCK_HEADER_BYTES, HEADER_BYTES, type IndexEntry, RecordWriter } from './journal-format.js';

/** The pages of a store at a moment. */
export interface Snapshot {
  readonly count: number;
  /** Keys of some of them, next victim first; undefined or another page's where one has gone since. */
  keysAt(from: number, to: number): readonly (string | undefined)[];
  /** One element a key, as it is when this is called; null: gone since. */
  entriesOf(keys: readonly string[]): (IndexEntry | null)[];
}

/** Keys, and characters of keys, that are looked up and written between two turns of the event loop. */
const SLICE_KEYS = 512;
const SLICE_CHARACTERS = 128 * 1024;

/**
 * A journal that takes another one's place: the pages of a snapshot that have not been put anew since, then the blocks that were
 * written to the other one since the snapshot was begun.
 */
export class JournalRewriting {
  readonly #path: string;
  readonly #storeId: string;
  readonly #snapshot: Snapshot;
  readonly #files: Files;
  readonly #blocks: Uint8Array[] = [];
  #maxBytes: number;
  /** Their slots may be those of pages of the snapshot that have gone. */
  readonly #putSince = new Set<string>();
  #file: JournalFile | undefined;
  #isStopped = false;

  /** `liveBytes`: what the records of the snapshot's pages take. */
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

  /** What it takes in the end, at most. */
  get maxBytes(): number {
    return this.#maxBytes;
  }

  /** What it takes now. */
  get bytes(): number {
    return this.#file?.bytes ?? 0;
  }

  /** A page has been put since the snapshot: the blocks will have it. */
  put(key: string): void {
    this.#putSince.add(key);
  }

  /** A block that belongs behind the snapshot. */
  add(block: Uint8Array): void {
    this.#blocks.push(block);
    this.#maxBytes += block.length;
  }

  /** {@link write} rejects soon. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Writes and syncs what there is up to now. Rejects with the system's error. */
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

  /** Takes the place of `path`, whose last block must have been added. Returns the file, which is the caller's. */
  async replace(path: string): Promise<JournalFile> {
    await this.#appendBlocks();
    await this.#files.rename(this.#path, path);
    return this.#file as JournalFile;
  }

  /** Leaves nothing behind. */
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
      throw new DiskError(`the index has more pages than it was told of: they take more than ${this.#maxBytes} bytes`);
    await file.append(block);
  }
}

/** What a new journal takes whose pages' records take `liveBytes`, at most: a block has at least SLICE_KEYS of them. */
export function rewrittenBytes(liveBytes: number): number {
  return HEADER_BYTES + BLOCK_HEADER_BYTES + Math.ceil(liveBytes * 1.01);
}

/** As many from the first on as have SLICE_CHARACTERS together; at least one. */
function shortened(keys: readonly (string | undefined)[]): readonly (string | undefined)[] {
  let end = 0;
  for (let characters = 0; end < keys.length && characters < SLICE_CHARACTERS; end++)
    characters += keys[end]?.length ?? 0;
  return end < keys.length ? keys.slice(0, end) : keys;
}
