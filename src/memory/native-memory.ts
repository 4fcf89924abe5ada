import { SEGMENT_MAX_BYTES } from '../base/limits.js';
import type { NativeAddon } from '../native/addon/contract.js';

/**
 * Start addresses of buffers, remembered because asking the addon costs more than copying a small page. A buffer never
 * moves.
 */
const baseAddresses = new WeakMap<ArrayBufferLike, number>();

/**
 * Views, one for each segment, of the memory that the addon has allocated or mapped at `addr`. They keep the memory
 * alive. Throws when there is no such memory.
 */
export function nativeSegments(addon: NativeAddon, addr: number): Uint8Array[] {
  let start = addr;
  return addon.memoryViews(addr, SEGMENT_MAX_BYTES).map((buffer) => {
    baseAddresses.set(buffer, start);
    start += buffer.byteLength;
    return new Uint8Array(buffer);
  });
}

/** Address of the first byte of a view that is not empty. */
export function addressOf(addon: NativeAddon, view: Uint8Array): number {
  const base = baseAddresses.get(view.buffer);
  if (base !== undefined) return base + view.byteOffset;
  const addr = addon.addressOf(view);
  baseAddresses.set(view.buffer, addr - view.byteOffset);
  return addr;
}

/** Buffers that are nobody else's yet, or are lent for a while by somebody who leaves them alone. */
const heldInPlace = new WeakSet<ArrayBufferLike>();

/**
 * States that nobody transfers the memory of these views until the returned function is called: other threads may work
 * on it until then. The caller must have made the memory itself, and hand it out only afterwards.
 */
export function holdInPlace(views: readonly Uint8Array[]): () => void {
  for (const { buffer } of views) heldInPlace.add(buffer);
  return () => {
    for (const { buffer } of views) heldInPlace.delete(buffer);
  };
}

/**
 * Whether the memory stays for as long as the view is held: it cannot be transferred to another owner that may free it,
 * or is not for now.
 */
export function staysInPlace(view: Uint8Array): boolean {
  return view.buffer instanceof SharedArrayBuffer || heldInPlace.has(view.buffer);
}
