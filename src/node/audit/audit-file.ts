import { dirname } from 'node:path';
import { type Files, isWritableByAll, type OpenFile } from '../../base/environment/files.js';
import { ConfigError } from '../../base/errors.js';
import { distrustOfFolder } from '../../disk/folder/own-folder.js';

/** Nobody but the user of this process, and root, reads who has done what. */
const FILE_MODE = 0o600;
const LINE_FEED = 10;

interface Opened {
  readonly file: OpenFile;
  readonly identity: string;
  /** Whether what is there ends within a line, as after a crash on a full disk. */
  isWithinLine: boolean;
}

/**
 * The file of an audit log, to which lines are appended. When its path leads elsewhere or nowhere, because somebody has renamed or removed the file, a new one
 * is made there: that is all that programs need which rotate logs.
 */
export class AuditFile {
  readonly #path: string;
  readonly #files: Files;
  #opened: Opened;

  /**
   * Opens the file, and makes it and its folder if they are missing. Throws {@link ConfigError} unless this node can append to it, and nobody could have put it
   * there but the user of this process or root.
   */
  static async open(path: string, files: Files): Promise<AuditFile> {
    try {
      return new AuditFile(path, files, await opened(path, files));
    } catch (cause) {
      if (cause instanceof ConfigError) throw cause;
      throw refusal(
        `${path} cannot be opened: ${(cause as Error).message}; choose a path that this user may write`,
        cause,
      );
    }
  }

  private constructor(path: string, files: Files, first: Opened) {
    this.#path = path;
    this.#files = files;
    this.#opened = first;
  }

  /**
   * Appends lines from the offset `from` on, of which those before have been appended. Resolves with the offset up to which they are in the file now. If a new file
   * was made meanwhile, that begins with a whole line. Rejects with the error of the system, or why the file at the path cannot be used.
   */
  async append(lines: Buffer, from: number): Promise<number> {
    let start = from;
    if (await this.#hasMoved()) {
      const next = await opened(this.#path, this.#files);
      void this.#opened.file.close().catch(() => {});
      this.#opened = next;
      start = from === 0 ? 0 : lines.lastIndexOf(LINE_FEED, from - 1) + 1;
    }
    const { file, isWithinLine } = this.#opened;
    if (isWithinLine) await file.write([Buffer.of(LINE_FEED)], 0);
    this.#opened.isWithinLine = false;
    return start + (await file.write([lines.subarray(start)], 0));
  }

  close(): Promise<void> {
    return this.#opened.file.close();
  }

  async #hasMoved(): Promise<boolean> {
    try {
      return (await this.#files.status(this.#path)).identity !== this.#opened.identity;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return true;
      throw error;
    }
  }
}

async function opened(path: string, files: Files): Promise<Opened> {
  const folder = dirname(path);
  await files.mkdir(folder, { recursive: true });
  const distrust = distrustOfFolder(folder, await files.status(folder));
  if (distrust !== undefined) throw refusal(`${distrust.why}; choose a path in a folder of this user`);
  const file = await files.open(path, { write: true, create: true, append: true, mode: FILE_MODE });
  try {
    const status = await file.status();
    const { isFile, isForeign, identity, sizeBytes } = status;
    if (!isFile) throw refusal(`${path} is no file; choose another path`);
    if (isForeign || isWritableByAll(status)) {
      throw refusal(`${path} belongs to another user, or others may write to it; remove it, or choose another path`);
    }
    const last = Buffer.of(LINE_FEED);
    if (sizeBytes > 0) await file.read([last], sizeBytes - 1);
    return { file, identity, isWithinLine: last[0] !== LINE_FEED };
  } catch (error) {
    await file.close();
    throw error;
  }
}

function refusal(reason: string, cause?: unknown): ConfigError {
  return new ConfigError(`configuration key "audit_log_path": ${reason}`, { cause });
}
