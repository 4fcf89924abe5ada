import { SEGMENT_MAX_BYTES } from '../base/limits.js';
import type { NativeAddon } from '../native/addon/contract.js';

/**
 * Start addresses of buffers, remembered because asking the addon costs more than copying a small page. A buffer never
 * moves.
 */
const baseAddresses = new WeakMap<ArrayBufferLike, number>();

/**
 * Returns views, one per segment, of the memory that the addon has allocated or mapped at `addr`. They keep the memory
 * alive. Throws if there is no such memory.
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

/**
 * Buffers that nobody can transfer for now: they have not been handed out yet, or are lent by an owner who leaves them
 * alone.
 */
const heldInPlace = new WeakSet<ArrayBufferLike>();

/**
 * Declares that nobody transfers the memory of these views until the returned function is called, so that other threads
 * may use it until then. The caller must have created the memory itself and must not hand it out earlier.
 */
export function holdInPlace(views: readonly Uint8Array[]): () => void {
  for (const { buffer } of views) heldInPlace.add(buffer);
  return () => {
    for (const { buffer } of views) heldInPlace.delete(buffer);
  };
}

/**
 * Whether the memory stays while the view is held: it cannot be transferred to another owner who might free it, or at
 * least not for now.
 */
export function staysInPlace(view: Uint8Array): boolean {
  return view.buffer instanceof SharedArrayBuffer || heldInPlace.has(view.buffer);
}
