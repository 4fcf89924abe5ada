import { assert } from '../../base/assert.js';
import type { EntryKind } from '../../types.js';
import { ExpiryHeap } from './expiry-heap.js';
import type { PageOrigin } from './page-origin.js';

/** Flag bits of a slot. */
const NAMED = 1;
const COPY = 2;

/** Checksums and origins of the pages of an index by slot, column by column. A slot without a page keeps what its last page had. */
export class SlotColumns {
  /** The slots whose pages expire. */
  readonly expiring = new ExpiryHeap();
  #checksums = new Uint32Array(1024);
  #versions = new Float64Array(1024);
  #flags = new Uint8Array(1024);
  /** Digests of the nodes that have placed pages here; no memory before the first such page. */
  #takers = new Uint32Array(0);

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

  isCopyAt(slot: number): boolean {
    return ((this.#flags[slot] as number) & COPY) !== 0;
  }

  /** Digest of the node that has placed the page in this slot; 0: none has. */
  takenForAt(slot: number): number {
    return this.#takers[slot] ?? 0;
  }

  set(slot: number, checksum: number, { version, kind, isCopy, expires, takenFor = 0 }: PageOrigin): void {
    if (slot >= this.#checksums.length) this.#grow(Math.max(slot + 1, this.#checksums.length * 2));
    this.#checksums[slot] = checksum;
    this.#versions[slot] = version;
    this.#flags[slot] = (kind === 'named' ? NAMED : 0) | (isCopy ? COPY : 0);
    this.expiring.set(slot, expires);
    this.#setTaker(slot, takenFor);
  }

  #setTaker(slot: number, takenFor: number): void {
    if (slot >= this.#takers.length) {
      if (takenFor === 0) return;
      const takers = new Uint32Array(this.#checksums.length);
      takers.set(this.#takers);
      this.#takers = takers;
    }
    this.#takers[slot] = takenFor;
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
