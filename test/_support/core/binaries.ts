import { readFileSync } from 'node:fs';
import { Core } from '../../../src/core/index.js';

/** Both builds of the module; tests of the core run on each where they can. */
export const BINARIES = ['meshcache.wasm', 'meshcache.debug.wasm'] as const;

export function readBinary(name: (typeof BINARIES)[number]): WebAssembly.Module {
  return new WebAssembly.Module(readFileSync(new URL(`../wasm/${name}`, import.meta.url)));
}

/** A new core: no test sees another one's memory. */
export function freshCore(name: (typeof BINARIES)[number] = 'meshcache.wasm'): Core {
  return new Core(new WebAssembly.Instance(readBinary(name)));
}

/** Hashes by the exports of the module, for tests of the exports themselves. */
export function hashesOf(core: Core, bytes: Uint8Array, seed = 0n): { xxh64: string; xxh3: string } {
  const { area, exports } = core;
  const hash = (): string => {
    const result = area.u8.slice(area.results, area.results + 16);
    return Array.from(result, (byte) => byte.toString(16).padStart(2, '0')).join('');
  };
  area.layOut(1, 16, bytes.length);
  area.u8.set(bytes, area.keys);
  area.u32[area.lengths >>> 2] = bytes.length;
  exports.digestBatch(area.keys, area.lengths, 1, area.results);
  const xxh3 = hash();
  exports.hashBatch(area.keys, area.lengths, 1, Number(seed & 0xffffffffn), Number(seed >> 32n), area.results);
  const littleEndian = hash().slice(0, 16);
  const xxh64 = (littleEndian.match(/../g) ?? []).reverse().join('');
  return { xxh64, xxh3 };
}
