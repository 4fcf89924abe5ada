import type { Core } from '../binding/core.js';
import { PoolAllocator } from '../pool/pool-allocator.js';
import type { PlacementSettings } from './placement-options.js';

/**
 * The disk tier behind the pool of a simulated node. As on a real node, it evicts by the policy of the pool, a use in
 * the pool counts as one on the disk, and pages that are read from it do not enter the pool.
 */
export class PlacementDisk {
  readonly #allocator: PoolAllocator;
  readonly #settings: PlacementSettings;
  readonly #keys = new Set<string>();
  /** Pages of which callers have said that they are never asked for again. */
  readonly #never = new Set<string>();
  #written = 0;

  constructor(settings: PlacementSettings, core: Core) {
    const { diskPages, pageBytes, policy } = settings;
    this.#settings = settings;
    this.#allocator = new PoolAllocator({ core, capacityBytes: diskPages * pageBytes, policy });
  }

  /** Pages that were written so far. */
  get written(): number {
    return this.#written;
  }

  has(key: string): boolean {
    return this.#keys.has(key);
  }

  /** Called with the pages of a read call, in order. */
  read(keys: readonly string[], isContinued: boolean): void {
    for (const key of keys) this.#never.delete(key);
    this.#allocator.touchBatch(keys, { continues: isContinued });
  }

  /** Called with the pages of a call that sets them, in order, and with those that have left the pool for them. */
  set(keys: readonly string[], evicted: ReadonlySet<string>, nowMs: number): void {
    for (const key of keys) this.#never.delete(key);
    const isWritten = this.#settings.diskWrite === 'wait';
    const leaving = isWritten ? [] : [...evicted].filter((key) => !this.#never.has(key));
    this.#write(leaving, nowMs);
    for (const key of evicted) this.#never.delete(key);
    if (isWritten) this.#write(keys, nowMs);
    this.#allocator.touchBatch(keys, { continues: true });
  }

  /** Notes that the caller never asks for these pages again. */
  end(keys: readonly string[]): void {
    for (const key of keys) this.#never.add(key);
  }

  verify(): void {
    this.#allocator.verify();
  }

  free(): void {
    this.#allocator.free();
  }

  #write(keys: readonly string[], nowMs: number): void {
    for (const key of keys) {
      if (this.#keys.has(key)) continue;
      const { offsets, evicted } = this.#allocator.publishBatch([key], this.#settings.pageBytes, nowMs);
      this.#written++;
      for (const gone of evicted) this.#keys.delete(gone);
      if ((offsets[0] as number) >= 0) this.#keys.add(key);
    }
  }
}
