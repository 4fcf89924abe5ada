import type { PageCopies } from '../../../src/memory/page-copies.js';
import type { CopyThreads } from '../../../src/pool/copy-threads.js';

interface HeldCopy {
  readonly copies: PageCopies;
  readonly resolve: (sums: Uint32Array) => void;
  readonly reject: (error: Error) => void;
}

/** Copy threads that do everything they are given as late as possible: when the test tells them to. */
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

  /** Makes the oldest copy, and lets who waits for it go on. */
  async finish(): Promise<void> {
    const copy = this.#held.shift();
    copy?.resolve(copy.copies.run());
    await settled();
  }

  async fail(error: Error): Promise<void> {
    this.#held.shift()?.reject(error);
    await settled();
  }

  /** Until there is nothing more to copy. */
  async finishAll(): Promise<void> {
    await settled();
    while (this.#held.length > 0) await this.finish();
  }
}

/** Whatever can go on without a copy has gone on. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
