import type { PageCopies } from '../../../src/memory/page-copies.js';
import type { CopyThreads } from '../../../src/pool/copy-threads.js';

interface HeldCopy {
  readonly copies: PageCopies;
  readonly resolve: (sums: Uint32Array) => void;
  readonly reject: (error: Error) => void;
}

/** Copy threads that do their work only when the test tells them to. */
export class HeldCopies implements CopyThreads {
  readonly #held: HeldCopy[] = [];

  get count(): number {
    return this.#held.length;
  }

  take(): boolean {
    return true;
  }

  copy(copies: PageCopies): Promise<Uint32Array> {
    return new Promise((resolve, reject) => this.#held.push({ copies, resolve, reject }));
  }

  /** Makes the oldest copy, and lets its waiter continue. */
  async finish(): Promise<void> {
    const copy = this.#held.shift();
    copy?.resolve(copy.copies.run());
    await settled();
  }

  async fail(error: Error): Promise<void> {
    this.#held.shift()?.reject(error);
    await settled();
  }

  /** Makes copies until there is nothing more to copy. */
  async finishAll(): Promise<void> {
    await settled();
    while (this.#held.length > 0) await this.finish();
  }
}

/** Resolves when everything that needs no copy has continued. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
