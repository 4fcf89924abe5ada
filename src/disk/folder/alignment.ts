import { assert } from '../../base/assert.js';
import { Semaphore } from '../../base/concurrency/mutex.js';
import { isStillRunning } from '../../base/environment/files.js';
import { DISK_ALIGNMENT_BYTES } from '../../base/limits.js';
import { addressOf, staysInPlace } from '../../memory/native-memory.js';
import { loadNative } from '../../native/addon/loader.js';

/** Disk space of `bytes`: the next multiple of DISK_ALIGNMENT_BYTES. */
export function alignedUp(bytes: number): number {
  return Math.ceil(bytes / DISK_ALIGNMENT_BYTES) * DISK_ALIGNMENT_BYTES;
}

/** Zeros that fill up a page on disk; they must not be modified. */
export const ZEROS = new Uint8Array(DISK_ALIGNMENT_BYTES);

/** Whether the system can write this memory to a file without a copy, even with direct I/O. */
export function isInPlace(view: Uint8Array): boolean {
  const { addon } = loadNative();
  if (addon === null || !staysInPlace(view) || view.length % DISK_ALIGNMENT_BYTES !== 0) return false;
  return addressOf(addon, view) % DISK_ALIGNMENT_BYTES === 0;
}

const WASM_PAGE_BYTES = 65_536;

/**
 * Buffers for direct I/O, in one WebAssembly memory, which is page-aligned with and without the addon. It is shared, so
 * that other threads can copy, and make the calls to the system. The system provides memory only for buffers that were
 * used, and the one used last is used next.
 */
export class AlignedBuffers {
  readonly #bufferBytes: number;
  readonly #count: number;
  readonly #semaphore: Semaphore;
  #memory: WebAssembly.Memory | undefined;

  /** `bufferBytes` must be a multiple of 64 KiB. */
  constructor({ bufferBytes, count }: { readonly bufferBytes: number; readonly count: number }) {
    assert(
      bufferBytes % WASM_PAGE_BYTES === 0,
      () => `aligned buffers: ${bufferBytes} bytes are not a multiple of 64 KiB`,
    );
    this.#bufferBytes = bufferBytes;
    this.#count = count;
    this.#semaphore = new Semaphore(count);
  }

  /**
   * Runs `work` as soon as a buffer is free. The buffer, with old content, belongs to `work` until its promise is
   * settled. If an overdue call to the system may still use a buffer, that buffer is given up, and so are the others of
   * its memory once their work has ended.
   */
  use<T>(work: (buffer: Uint8Array) => Promise<T>): Promise<T> {
    return this.#semaphore.use(async (permit) => {
      const buffer = this.#buffer(permit);
      try {
        return await work(buffer);
      } catch (error) {
        if (isStillRunning(error) && this.#memory?.buffer === buffer.buffer) this.#memory = undefined;
        throw error;
      }
    });
  }

  #buffer(slot: number): Uint8Array {
    const pages = (this.#bufferBytes * this.#count) / WASM_PAGE_BYTES;
    this.#memory ??= new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
    return new Uint8Array(this.#memory.buffer, slot * this.#bufferBytes, this.#bufferBytes);
  }

  /** Throws `InvariantError` unless each buffer is free or has one user. */
  verify(): void {
    this.#semaphore.verify();
  }
}
