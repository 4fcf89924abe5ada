import { isAll } from './bytes.js';

const LOOK_EVERY_MS = 20;

/**
 * Overwrites the memory and checks for that long whether another writer changes it; false if one does. The byte must
 * differ from the bytes that would be written.
 */
export async function staysUntouched(bytes: Uint8Array, options: { byte: number; forMs: number }): Promise<boolean> {
  bytes.fill(options.byte);
  const endMs = performance.now() + options.forMs;
  while (performance.now() < endMs) {
    if (!isAll(bytes, options.byte)) return false;
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
  return isAll(bytes, options.byte);
}
