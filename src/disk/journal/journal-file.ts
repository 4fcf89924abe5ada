import type { Clock } from '../../base/environment/clock.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Files, OpenFile, OpenOptions } from '../../base/environment/files.js';
import { nativeCalls } from '../../memory/native-files.js';
import {
  BLOCK_HEADER_BYTES,
  bodyLength,
  checkHeader,
  encodeHeader,
  FORMAT_VERSION,
  HEADER_BYTES,
  type IndexEntry,
  isBodyWhole,
  JournalDamage,
  Replay,
} from './journal-format.js';

const CHUNK_BYTES = 1 << 20;
/** Records that are applied between two checks of the time. */
const SLICE_RECORDS = 512;
const SLICE_MS = 3;
const NEW_FILE = { write: true, create: true, exclusive: true, mode: 0o600 } as const;

interface FoundJournal {
  readonly file: JournalFile;
  readonly entries: IndexEntry[];
  readonly liveBytes: number;
}

/** A file to which blocks are appended, one call at a time. Methods reject with the system's errors. */
export class JournalFile {
  readonly #file: OpenFile;
  readonly #calls = nativeCalls();
  #bytes: number;

  private constructor(file: OpenFile, bytes: number) {
    this.#file = file;
    this.#bytes = bytes;
  }

  /** Creates a file with only a header. The file must not exist yet. */
  static async create(path: string, storeId: string, files: Files): Promise<JournalFile> {
    const header = encodeHeader(storeId);
    const file = new JournalFile(await files.open(path, NEW_FILE), 0);
    try {
      await file.append(header);
    } catch (error) {
      await file.close();
      throw error;
    }
    return file;
  }

  /**
   * Opens an existing file and returns it with the pages that its records list, the least recently used first, and the
   * size of their records. An incomplete block at the end is cut off. Throws `JournalDamage` and leaves the file
   * unchanged if it cannot be used.
   */
  static async open(path: string, storeId: string, { files, clock }: Environment): Promise<FoundJournal> {
    const file = await files.open(path, { write: true });
    try {
      const { sizeBytes } = await file.status();
      const reader = new JournalReader(file, sizeBytes, clock);
      const { version, bytes } = await reader.read(storeId);
      if (bytes < sizeBytes) await file.truncate(bytes);
      // Appended records may be of this version. The new header keeps a program that knows only the earlier version
      // from misreading them.
      if (version !== FORMAT_VERSION) await writeHeader(file, storeId);
      const entries = await reader.entries();
      return { file: new JournalFile(file, bytes), entries, liveBytes: reader.liveBytes };
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Appends a block. If it rejects, the file is as before, as far as the system allows. */
  async append(block: Uint8Array): Promise<void> {
    try {
      for (let done = 0; done < block.length; ) {
        const rest = done === 0 ? block : block.subarray(done);
        done += await this.#file.write([rest], this.#bytes + done, this.#calls);
      }
    } catch (error) {
      await this.#file.truncate(this.#bytes).catch(() => {});
      throw error;
    }
    this.#bytes += block.length;
  }

  /** Resolves when all bytes are on the medium. */
  sync(): Promise<void> {
    return this.#file.datasync();
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}

/** Replaces the header, which is less than a sector, and waits until it is on the medium. */
async function writeHeader(file: OpenFile, storeId: string): Promise<void> {
  const header = encodeHeader(storeId);
  for (let done = 0; done < header.length; ) done += await file.write([header.subarray(done)], done);
  await file.datasync();
}

/** Reads a journal once, from the start. */
class JournalReader {
  readonly #replay = new Replay();
  readonly #file: OpenFile;
  readonly #fileBytes: number;
  readonly #clock: Clock;
  #chunk: Buffer = Buffer.allocUnsafeSlow(CHUNK_BYTES);
  #chunkStart = 0;
  #chunkBytes = 0;
  #sliceStartMs: number;

  constructor(file: OpenFile, fileBytes: number, clock: Clock) {
    this.#file = file;
    this.#fileBytes = fileBytes;
    this.#clock = clock;
    this.#sliceStartMs = clock.nowMs();
  }

  get liveBytes(): number {
    return this.#replay.liveBytes;
  }

  /** The entries that the records list, the least recently used first. */
  async entries(): Promise<IndexEntry[]> {
    const entries: IndexEntry[] = [];
    for (const entry of this.#replay.entries()) {
      entries.push(entry);
      if (entries.length % SLICE_RECORDS === 0 && this.#isSliceOver()) await this.#pause();
    }
    return entries;
  }

  /** Reads all blocks; returns the file's version and the end of the last complete block. */
  async read(storeId: string): Promise<{ readonly version: number; readonly bytes: number }> {
    const version = checkHeader(await this.#view(0, Math.min(HEADER_BYTES, this.#fileBytes)), storeId);
    return { version, bytes: await this.#readBlocks() };
  }

  async #readBlocks(): Promise<number> {
    let at = HEADER_BYTES;
    while (at + BLOCK_HEADER_BYTES <= this.#fileBytes) {
      const header = Buffer.from(await this.#view(at, BLOCK_HEADER_BYTES));
      const length = bodyLength(header);
      const end = at + BLOCK_HEADER_BYTES + (length ?? 0);
      if (end > this.#fileBytes) return at;
      const body = length === undefined ? undefined : await this.#view(at + BLOCK_HEADER_BYTES, length);
      if (body === undefined || !isBodyWhole(header, body)) {
        if (await this.#isZeroFrom(end)) return at;
        throw new JournalDamage(`the index is damaged at byte ${at} of ${this.#fileBytes}`);
      }
      await this.#applyAll(body);
      at = end;
    }
    return at;
  }

  async #applyAll(body: Buffer): Promise<void> {
    for (let at = 0; at < body.length; ) {
      at = this.#replay.apply(body, at, SLICE_RECORDS);
      if (this.#isSliceOver()) await this.#pause();
    }
  }

  async #isZeroFrom(start: number): Promise<boolean> {
    const zeros = Buffer.alloc(CHUNK_BYTES);
    for (let at = start; at < this.#fileBytes; at += CHUNK_BYTES) {
      const bytes = await this.#view(at, Math.min(CHUNK_BYTES, this.#fileBytes - at));
      if (!bytes.equals(zeros.subarray(0, bytes.length))) return false;
    }
    return true;
  }

  /** A view of existing bytes of the file, valid until the next call. */
  async #view(start: number, length: number): Promise<Buffer> {
    if (start < this.#chunkStart || start + length > this.#chunkStart + this.#chunkBytes) {
      if (length > this.#chunk.length) this.#chunk = Buffer.allocUnsafeSlow(length);
      this.#chunkStart = start;
      const wanted = Math.min(this.#chunk.length, this.#fileBytes - start);
      this.#chunkBytes = await this.#file.read([this.#chunk.subarray(0, wanted)], start);
      if (this.#chunkBytes < wanted) throw new JournalDamage('the index has become shorter while it was read');
      this.#sliceStartMs = this.#clock.nowMs();
    }
    return this.#chunk.subarray(start - this.#chunkStart, start - this.#chunkStart + length);
  }

  #isSliceOver(): boolean {
    return this.#clock.nowMs() - this.#sliceStartMs > SLICE_MS;
  }

  async #pause(): Promise<void> {
    await this.#clock.yield();
    this.#sliceStartMs = this.#clock.nowMs();
  }
}

/** Error codes of file systems that cannot flush directories. */
const CANNOT_FLUSH: ReadonlySet<string> = new Set(['EINVAL', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP']);

/**
 * Flushes the names of the files in a directory. File systems that cannot do that (CIFS, FUSE) write them when they
 * choose to.
 */
export async function flushNames(path: string, files: Files): Promise<void> {
  await flush(path, files, { directory: true }).catch((error: NodeJS.ErrnoException) => {
    if (!CANNOT_FLUSH.has(error.code ?? '')) throw error;
  });
}

/** Resolves when the content of the file, or the names in the directory, are on the medium. */
export async function flush(path: string, files: Files, options: OpenOptions): Promise<void> {
  const file = await files.open(path, options);
  try {
    await file.datasync();
  } finally {
    await file.close();
  }
}
