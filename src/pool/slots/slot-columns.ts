import { assert } from '../../base/assert.js';
import type { EntryKind } from '../../types.js';
import { ExpiryHeap } from './expiry-heap.js';
import type { PageOrigin } from './page-origin.js';

/** Flag bits of a slot. */
const NAMED = 1;

/**
 * Checksums and origins of the pages of an index by slot, column by column. A slot without a page keeps the checksum
 * and version of its last page.
 */
export class SlotColumns {
  /** The slots whose pages expire. */
  readonly expiring = new ExpiryHeap();
  #checksums = new Uint32Array(1024);
  #versions = new Float64Array(1024);
  #flags = new Uint8Array(1024);
  /** Origins of copies; no memory before the first one. */
  #setters = new Uint32Array(0);

  /** Checksum of the page that has, or last had, this slot. */
  checksumOf(slot: number): number | undefined {
    return this.#checksums[slot];
  }

  versionOf(slot: number): number {
    return this.#versions[slot] as number;
  }

  kindOf(slot: number): EntryKind {
    return ((this.#flags[slot] as number) & NAMED) !== 0 ? 'named' : 'computed';
  }

  /** Whether there may be a copy with this origin; 0: with any. */
  hasCopiesOf(origin: number): boolean {
    return origin === 0 ? this.#setters.length > 0 : this.#setters.includes(origin);
  }

  /** Called when a slot has no page any more. */
  freed(slot: number): void {
    this.expiring.set(slot, 0);
    this.#setOrigin(slot, 0);
  }

  /** The origin of the copy in this slot; 0: the page is none. */
  setByAt(slot: number): number {
    return this.#setters[slot] ?? 0;
  }

  set(slot: number, checksum: number, { version, kind, expires, setBy }: PageOrigin): void {
    if (slot >= this.#checksums.length) this.#grow(Math.max(slot + 1, this.#checksums.length * 2));
    this.#checksums[slot] = checksum;
    this.#versions[slot] = version;
    this.#flags[slot] = kind === 'named' ? NAMED : 0;
    this.expiring.set(slot, expires);
    this.#setOrigin(slot, setBy);
  }

  #setOrigin(slot: number, setBy: number): void {
    if (slot >= this.#setters.length) {
      if (setBy === 0) return;
      const setters = new Uint32Array(this.#checksums.length);
      setters.set(this.#setters);
      this.#setters = setters;
    }
    this.#setters[slot] = setBy;
  }

  #grow(slots: number): void {
    const [checksums, versions, flags] = [new Uint32Array(slots), new Float64Array(slots), new Uint8Array(slots)];
    checksums.set(this.#checksums);
    versions.set(this.#versions);
    flags.set(this.#flags);
    [this.#checksums, this.#versions, this.#flags] = [checksums, versions, flags];
  }

  /** Throws `InvariantError` unless the slot has its place in every column. */
  verifySlot(slot: number): void {
    const columns = Math.min(this.#checksums.length, this.#versions.length, this.#flags.length);
    assert(slot < columns, () => `slot columns: slot ${slot} of ${columns}`);
  }
}
