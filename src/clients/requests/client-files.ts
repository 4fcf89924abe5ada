import { fstatSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { Status } from '../wire/messages.js';
import { RequestError } from '../wire/request-error.js';

/** A piece of a page that is moved by reading and writing a client's file. */
export interface FilePiece {
  readonly file: ClientFile;
  readonly offset: number;
  readonly view: Uint8Array;
}

/** Memory of a client as a file that this node has opened, for nodes that cannot map it. */
export class ClientFile {
  /** Bytes that the client has registered, from the start of the file. */
  readonly length: number;
  readonly #handle: FileHandle;
  #isLive = true;

  /** Opens `/proc/<pid>/fd/<fd>`. Throws {@link RequestError}. */
  static async open(
    { pid, fd }: { readonly pid: number; readonly fd: number },
    length: number,
    { isWritable }: { readonly isWritable: boolean },
  ): Promise<ClientFile> {
    const handle = await openDescriptor({ pid, fd }, isWritable);
    const file = new ClientFile(handle, length);
    if (!file.isDamaged()) return file;
    file.free();
    throw new RequestError(Status.badRequest, `the file has less than the ${length} bytes of its region`);
  }

  private constructor(handle: FileHandle, length: number) {
    this.#handle = handle;
    this.length = length;
  }

  get isLive(): boolean {
    return this.#isLive;
  }

  /** Whether the file has been closed or cut short. */
  isDamaged(): boolean {
    return !this.#isLive || fstatSync(this.#handle.fd).size < this.length;
  }

  /** Reads into `into`. Resolves with false if the file is too short. */
  async read(offset: number, into: Uint8Array): Promise<boolean> {
    for (let at = 0; at < into.length; ) {
      const { bytesRead } = await this.#handle.read(into, at, into.length - at, offset + at);
      if (bytesRead === 0) return false;
      at += bytesRead;
    }
    return true;
  }

  async write(offset: number, bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length; ) {
      const { bytesWritten } = await this.#handle.write(bytes, at, bytes.length - at, offset + at);
      at += bytesWritten;
    }
  }

  /** Closes the file. Reads and writes in progress are completed first. */
  free(): void {
    this.#isLive = false;
    this.#handle.close().catch(() => {});
  }
}

/** Opens again the file that a process has open as descriptor `fd`. Throws {@link RequestError}. */
export async function openDescriptor(
  { pid, fd }: { readonly pid: number; readonly fd: number },
  isWritable: boolean,
): Promise<FileHandle> {
  try {
    return await open(`/proc/${pid}/fd/${fd}`, isWritable ? 'r+' : 'r');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new RequestError(Status.unavailable, `descriptor ${fd} of process ${pid} cannot be opened: ${code}`);
  }
}
