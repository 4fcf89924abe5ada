import { assert } from '../../base/assert.js';
import { Semaphore } from './semaphore.js';

const WASM_PAGE_BYTES = 65_536;

/**
 * Buffers for direct I/O. They lie in one WebAssembly memory, which begins at a page of the system, with the addon and without; shared,
 * so that other threads can copy. The system gives memory to what has been touched only, and the
 * buffer used last is used next.
 */
export class AlignedBuffers {
  readonly #bufferBytes: number;
  readonly #count: number;
  readonly #semaphore: Semaphore;
  #memory: WebAssembly.Memory | undefined;

  /** `bufferBytes`: a multiple of 64 KiB. */
  constructor({ bufferBytes, count }: { readonly bufferBytes: number; readonly count: number }) {
    assert(
      bufferBytes % WASM_PAGE_BYTES === 0,
      () => `aligned buffers: ${bufferBytes} bytes are not a multiple of 64 KiB`,
    );
    this.#bufferBytes = bufferBytes;
    this.#count = count;
    this.#semaphore = new Semaphore(count);
  }

  /** Runs `work` as soon as a buffer is free, which it has until its promise is settled; what is in it is old. */
  use<T>(work: (buffer: Uint8Array) => Promise<T>): Promise<T> {
    return this.#semaphore.use((permit) => work(this.#buffer(permit)));
  }

  #buffer(slot: number): Uint8Array {
    const pages = (this.#bufferBytes * this.#count) / WASM_PAGE_BYTES;
    this.#memory ??= new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
    return new Uint8Array(this.#memory.buffer, slot * this.#bufferBytes, this.#bufferBytes);
  }

  /** Throws `InvariantError` unless each buffer is free or in the hands of one user. */
  verify(): void {
    this.#semaphore.verify();
  }
}
