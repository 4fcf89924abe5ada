/** What the tests of the addon do in another thread or another process. The first argument says what. */
import { isMainThread, parentPort } from 'node:worker_threads';
import type { NativeAddon } from '../../src/native/contract.js';
import { loadNative } from '../../src/native/loader.js';

const MIB = 1024 * 1024;
const LENGTH = 64 * MIB;

const { addon, reason } = loadNative();
const [what, argument] = process.argv.slice(2);

/** Copies the first half of new memory to the second, a page of 1 MiB at a time. */
function copyOnce(native: NativeAddon): Promise<Uint32Array> {
  const { addr } = native.memoryAllocate(LENGTH, 0);
  // Held by the views alone, which go with the thread.
  held.push(...native.memoryViews(addr, LENGTH));
  native.memoryFree(addr);
  const half = LENGTH / 2;
  const pages = half / MIB;
  const pieces = Float64Array.from({ length: pages * 3 }, (_, i) => {
    const at = addr + Math.floor(i / 3) * MIB;
    return [at + half, at, MIB][i % 3] as number;
  });
  return native.copyPages(pieces, new Uint32Array(pages).fill(1));
}
const held: ArrayBuffer[] = [];

const programs: Record<string, (native: NativeAddon) => void> = {
  copy(native) {
    void copyOnce(native).then(() => console.log('copied'));
  },

  'copy-forever'(native) {
    for (let i = 0; i < 8; i++) void copyOnce(native);
    parentPort?.postMessage('copying');
  },

  'exit-while-copying'(native) {
    for (let i = 0; i < 8; i++) void copyOnce(native);
    console.log('exit');
    process.exit(0);
  },

  'prefault-forever'(native) {
    const { addr } = native.memoryAllocate(512 * MIB, 0);
    void native.memoryPrefault(addr, 512 * MIB, 3);
    parentPort?.postMessage('pre-faulting');
  },

  'leave-memory'(native) {
    const { addr } = native.memoryAllocate(MIB, 0);
    held.push(...native.memoryViews(addr, MIB));
    parentPort?.postMessage(addr);
  },

  write(native) {
    const [buffer] = native.memoryViews(Number(argument), MIB) as [ArrayBuffer];
    new Uint8Array(buffer)[500] = 42;
  },
};

if (what === 'load') {
  console.log(JSON.stringify({ isLoaded: addon !== null, reason, isMainThread }));
} else {
  const program = programs[what as string];
  if (addon === null || program === undefined) throw new Error(`${what}: ${reason}`);
  program(addon);
}
