/** The largest single piece of memory that was asked for by length, in bytes. */
export class AllocationWatch {
  #largestBytes = 0;
  #undo: (() => void)[] = [];

  get largestBytes(): number {
    return this.#largestBytes;
  }

  reset(): void {
    this.#largestBytes = 0;
  }

  /**
   * Until {@link remove}, every call of the constructors and functions that take a length is looked at, in this thread.
   */
  install(): void {
    for (const name of ['alloc', 'allocUnsafe', 'allocUnsafeSlow'] as const) {
      const original = Buffer[name] as (bytes: number, ...rest: never[]) => Buffer;
      this.#replace(Buffer, name, (bytes: number, ...rest: never[]) => {
        this.#asked(bytes, 1);
        return original.call(Buffer, bytes, ...rest);
      });
    }
    const widths = {
      ArrayBuffer: 1,
      SharedArrayBuffer: 1,
      Uint8Array: 1,
      Uint32Array: 4,
      Float64Array: 8,
      BigUint64Array: 8,
      Array: 8,
    };
    for (const [name, width] of Object.entries(widths)) {
      const original = globalThis[name as keyof typeof widths] as unknown as new (...args: unknown[]) => object;
      const watched: typeof original = new Proxy(original, {
        construct: (target, args: unknown[], newTarget) => {
          if (typeof args[0] === 'number') this.#asked(args[0], width);
          return Reflect.construct(target, args, newTarget === watched ? target : newTarget) as object;
        },
      });
      this.#replace(globalThis, name, watched);
    }
  }

  remove(): void {
    for (const undo of this.#undo.splice(0).reverse()) undo();
  }

  #asked(count: number, width: number): void {
    if (count * width > this.#largestBytes) this.#largestBytes = count * width;
  }

  #replace(holder: object, name: string, value: unknown): void {
    const before = Object.getOwnPropertyDescriptor(holder, name) as PropertyDescriptor;
    Object.defineProperty(holder, name, { ...before, value });
    this.#undo.push(() => Object.defineProperty(holder, name, before));
  }
}
