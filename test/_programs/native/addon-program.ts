/** What the tests of the addon do in another thread or another process. The first argument says what. */
import { openSync, truncateSync } from 'node:fs';
import { isMainThread, parentPort, workerData } from 'node:worker_threads';
import { HostRegion } from '../../../src/memory/host-region.js';
import type { NativeAddon } from '../../../src/native/addon/contract.js';
import { loadNative } from '../../../src/native/addon/loader.js';
import { DescriptorListener } from '../../../src/native/unix-sockets.js';

const MIB = 1024 * 1024;
const LENGTH = 64 * MIB;

const { addon, reason } = loadNative();
const [what, argument] = process.argv.slice(2);

/** Copies the first half of new memory to the second, a page of 1 MiB at a time. */
function copyOnce(native: NativeAddon): Promise<Uint32Array> {
  const { addr } = native.memoryAllocate(LENGTH, 0);
  // Only the views hold this memory, and they go with the thread.
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
const held: SharedArrayBuffer[] = [];

function listen(path: string): void {
  const options = { mode: 0o600, recordBytes: 8, connectionsMaxCount: 4, timeoutMs: 60_000 };
  DescriptorListener.listen({ ...options, path, onRecord() {} });
}

/** Reads bytes of a mapped file that no longer exist. Returns whether that was noticed. */
function mapAndCutShort(path: string): boolean {
  const region = HostRegion.map(openSync(path, 'r+'), 8192, { writable: true });
  truncateSync(path, 4096);
  const byte = region.bytes()[5000];
  region.bytes()[5000] = 1;
  console.log(`read ${byte}`);
  return region.isDamaged();
}

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

  listen() {
    listen(argument as string);
    console.log('listening');
  },

  'listen-and-stay'() {
    listen(argument as string);
    setInterval(() => {}, 60_000);
    parentPort?.postMessage('listening');
  },

  'bus-error'() {
    process.on('SIGBUS', () => {
      console.log('the handler before');
      process.exit(0);
    });
    mapAndCutShort(argument as string);
    process.kill(process.pid, 'SIGBUS');
    setInterval(() => {}, 60_000);
  },

  'bus-error-by-default'() {
    mapAndCutShort(argument as string);
    process.kill(process.pid, 'SIGBUS');
    setInterval(() => {}, 60_000);
  },

  'map-cut-short'() {
    parentPort?.postMessage(mapAndCutShort(argument as string));
  },

  'leave-memory'(native) {
    const { addr } = native.memoryAllocate(MIB, 0);
    held.push(...native.memoryViews(addr, MIB));
    parentPort?.postMessage(addr);
  },

  write(native) {
    const [buffer] = native.memoryViews(Number(argument), MIB) as [SharedArrayBuffer];
    new Uint8Array(buffer)[500] = 42;
  },

  'write-sent'() {
    const view = new Uint8Array(workerData as SharedArrayBuffer);
    view[500] = 42;
    parentPort?.postMessage(view[500]);
  },
};

if (what === 'load') {
  console.log(JSON.stringify({ isLoaded: addon !== null, reason, isMainThread }));
} else {
  const program = programs[what as string];
  if (addon === null || program === undefined) throw new Error(`${what}: ${reason}`);
  program(addon);
}
