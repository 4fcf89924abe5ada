import { closeSync, existsSync, fstatSync, ftruncateSync, openSync, readFileSync, readSync } from 'node:fs';
import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';
import { MEMORY_HUGE_PAGES, MEMORY_SHARED } from '../../src/native/addon/contract.js';
// One after the other: memory of another test may come to lie where some has just been given back.
import { addon, serialWithAddon, suffix } from '../_support/native/addon.js';
import { until } from '../_support/support.js';

const MIB = 1024 * 1024;
const HUGE_PAGE_BYTES = 2 * MIB;
const PROGRAM = new URL('./native-addon-program.js', import.meta.url);

/** Garbage collection when it is asked for: what JavaScript holds goes at no certain time otherwise. */
setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** The line of the mapping that has the address, as the kernel tells it; undefined: nothing is mapped there. */
function mappingAt(addr: number): string | undefined {
  return readFileSync('/proc/self/maps', 'utf8')
    .split('\n')
    .find((line) => {
      const [start, end] = (line.split(' ', 1)[0] as string).split('-').map((text) => Number.parseInt(text, 16));
      return (start as number) <= addr && addr < (end as number);
    });
}

function viewOf(addr: number): Uint8Array {
  const [buffer] = addon.memoryViews(addr, 1024 * MIB) as [SharedArrayBuffer];
  return new Uint8Array(buffer);
}

async function isUnmapped(addr: number): Promise<boolean> {
  await until(() => {
    collectGarbage();
    return mappingAt(addr) === undefined;
  });
  return true;
}

serialWithAddon(`memory: aligned, zeroed, of the length asked for, with every combination of flags${suffix}`, (t) => {
  for (const flags of [0, MEMORY_HUGE_PAGES, MEMORY_SHARED, MEMORY_HUGE_PAGES | MEMORY_SHARED]) {
    for (const length of [1, 4096, 5000, 2 * MIB, 5 * MIB + 3]) {
      const { addr, pageBytes, fd } = addon.memoryAllocate(length, flags);
      t.true(pageBytes === 4096 || pageBytes === HUGE_PAGE_BYTES, `${pageBytes}`);
      t.is(addr % pageBytes, 0);
      t.is(fd >= 0, (flags & MEMORY_SHARED) !== 0);
      const view = viewOf(addr);
      t.is(view.length, length);
      t.is(addon.addressOf(view), addr);
      t.true(view.every((byte) => byte === 0));
      view.fill(1);
      addon.memoryFree(addr);
    }
  }
});

serialWithAddon(`memory: huge pages, where the system has none to give, begin where it may make some${suffix}`, (t) => {
  const free = Number(/HugePages_Free:\s+(\d+)/.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1] ?? 0);
  const { addr, pageBytes } = addon.memoryAllocate(8 * MIB, MEMORY_HUGE_PAGES);
  t.is(addr % HUGE_PAGE_BYTES, 0);
  if (free < 4) t.is(pageBytes, 4096);
  t.log(`pages of ${pageBytes} bytes with ${free} huge pages free`);
  addon.memoryFree(addr);
});

serialWithAddon(`memory: the views are segments, in order, without gaps${suffix}`, (t) => {
  const { addr } = addon.memoryAllocate(10_000, 0);
  const views = addon.memoryViews(addr, 4096).map((buffer) => new Uint8Array(buffer));
  t.deepEqual(
    views.map((view) => [addon.addressOf(view) - addr, view.length]),
    [
      [0, 4096],
      [4096, 4096],
      [8192, 1808],
    ],
  );
  addon.memoryFree(addr);
});

serialWithAddon(
  `memory: views of a terabyte do not count as memory that garbage collection could give back${suffix}`,
  (t) => {
    const before = getHeapStatistics().external_memory;
    const { addr } = addon.memoryAllocate(2 ** 40, MEMORY_SHARED);
    const buffers = addon.memoryViews(addr, 2 ** 31);
    t.is(buffers.length, 512);
    t.true(getHeapStatistics().external_memory - before < 2 ** 31);
    addon.memoryFree(addr);
  },
);

serialWithAddon(`memory: a view can be sent to another thread, and holds the memory there${suffix}`, async (t) => {
  const { addr } = addon.memoryAllocate(MIB, 0);
  const worker = new Worker(PROGRAM, { argv: ['write-sent'], workerData: addon.memoryViews(addr, MIB)[0] });
  addon.memoryFree(addr);
  const written = await new Promise((resolve) => worker.once('message', resolve));
  t.is(written, 42);
  await worker.terminate();
  t.true(await isUnmapped(addr));
});

serialWithAddon(`memory: stays for as long as there is a view of it, and goes with the last${suffix}`, async (t) => {
  const { addr } = addon.memoryAllocate(3 * MIB, 0);
  let views: Uint8Array[] | null = [viewOf(addr), viewOf(addr)];
  (views[0] as Uint8Array)[12_345] = 77;
  addon.memoryFree(addr);
  collectGarbage();
  t.is((views[1] as Uint8Array)[12_345], 77, 'both see the same memory, and it is still there');
  t.throws(() => addon.memoryViews(addr, MIB), { message: /no memory at this address/ });
  views = null;
  t.true(await isUnmapped(addr));
});

serialWithAddon(`memory: without a view it goes when it is freed${suffix}`, (t) => {
  const { addr } = addon.memoryAllocate(3 * MIB, 0);
  t.not(mappingAt(addr), undefined);
  addon.memoryFree(addr);
  t.is(mappingAt(addr), undefined);
});

/** Nanoseconds of a processor that this thread has used. */
function threadNs(): number {
  return Number(readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ', 1)[0]);
}

for (const [what, flags] of [
  ['memory of its own', 0],
  ['memory that others share', MEMORY_SHARED],
] as const) {
  serialWithAddon(`memory: a large one goes back on another thread, ${what}${suffix}`, async (t) => {
    const { addr } = addon.memoryAllocate(512 * MIB, flags);
    await addon.memoryPrefault(addr, 512 * MIB, 2);
    const before = threadNs();
    addon.memoryFree(addr);
    // On this thread it takes 15 ms and more of processor time.
    t.true(threadNs() - before < 5_000_000, `${threadNs() - before} ns`);
    t.true(await isUnmapped(addr));
  });
}

serialWithAddon(
  `memory: a descriptor that is closed already is not closed once more when its number is another file’s${suffix}`,
  async (t) => {
    // Cause: what had no status was closed on another thread, some time later.
    const first = openSync('/dev/null', 'r');
    closeSync(first);
    addon.closeReceived(first);
    const next = openSync('/dev/null', 'r');
    await new Promise((resolve) => setTimeout(resolve, 100));
    t.notThrows(() => fstatSync(next));
    closeSync(next);
  },
);

serialWithAddon(`memory: the last descriptor of a large file is closed on another thread${suffix}`, async (t) => {
  const { addr, fd } = addon.memoryAllocate(512 * MIB, MEMORY_SHARED);
  await addon.memoryPrefault(addr, 512 * MIB, 2);
  const last = openSync(`/proc/self/fd/${fd}`, 'r');
  addon.memoryFree(addr);
  t.true(await isUnmapped(addr));
  const before = threadNs();
  addon.closeReceived(last);
  t.true(threadNs() - before < 5_000_000, `${threadNs() - before} ns`);
  await until(() => !existsSync(`/proc/self/fd/${last}`));
  addon.closeReceived(last);
});

serialWithAddon(`memory: another process can open what is shared, and nobody can cut it short${suffix}`, (t) => {
  const { addr, fd } = addon.memoryAllocate(2 * MIB, MEMORY_SHARED);
  viewOf(addr).set([1, 2, 3], 1000);
  const other = openSync(`/proc/${process.pid}/fd/${fd}`, 'r+');
  const bytes = new Uint8Array(3);
  readSync(other, bytes, 0, 3, 1000);
  t.deepEqual([...bytes], [1, 2, 3]);
  t.throws(() => ftruncateSync(other, 0), { code: 'EPERM' });
  t.is(fstatSync(other).size, 2 * MIB);
  closeSync(other);
  addon.memoryFree(addr);
});

serialWithAddon(`memory: other threads see it, and its end does not depend on theirs${suffix}`, async (t) => {
  const { addr } = addon.memoryAllocate(MIB, 0);
  const view = viewOf(addr);
  const worker = new Worker(PROGRAM, { argv: ['write', String(addr)] });
  t.is(await new Promise((resolve) => worker.once('exit', resolve)), 0);
  t.is(view[500], 42);
  t.not(mappingAt(addr), undefined);
  addon.memoryFree(addr);
  t.is(view[500], 42);
});

serialWithAddon(`memory: what a thread has not freed goes with the thread${suffix}`, async (t) => {
  const worker = new Worker(PROGRAM, { argv: ['leave-memory'] });
  const ended = new Promise((resolve) => worker.once('exit', resolve));
  const addr = await new Promise<number>((resolve) => worker.once('message', resolve));
  await ended;
  t.true(await isUnmapped(addr));
  t.throws(() => addon.memoryViews(addr, MIB), { message: /no memory/ });
});

/** Bytes that the system has provided of the mapping that has the address. */
function residentBytes(addr: number): number {
  const entries = readFileSync('/proc/self/smaps', 'utf8').split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m);
  const line = mappingAt(addr) as string;
  const entry = entries.find((text) => text.startsWith(line)) as string;
  return Number(/^Rss:\s+(\d+)/m.exec(entry)?.[1]) * 1024;
}

serialWithAddon(`memory: pre-faulting provides all of it and changes nothing${suffix}`, async (t) => {
  const length = 64 * MIB;
  for (const threads of [0, 1, 3]) {
    // Shared: the kernel makes one mapping of others that are neighbours.
    const { addr } = addon.memoryAllocate(length, MEMORY_SHARED);
    const view = viewOf(addr);
    view[5000] = 9;
    t.true(residentBytes(addr) < length);
    await addon.memoryPrefault(addr, length, threads);
    t.is(residentBytes(addr), length);
    t.is(view[5000], 9);
    t.is(view[length - 1], 0);
    addon.memoryFree(addr);
  }
});

serialWithAddon(
  `memory: memory that is not the addon's, of any alignment, can be pre-faulted too${suffix}`,
  async (t) => {
    const view = new Uint8Array(new SharedArrayBuffer(8 * MIB)).fill(3).subarray(17, 5 * MIB + 1);
    await addon.memoryPrefault(addon.addressOf(view), view.length, 2);
    t.true(view.every((byte) => byte === 3));
    await addon.memoryPrefault(addon.addressOf(view), 0, 2);
  },
);

serialWithAddon(`memory: freed while it is being pre-faulted it stays until that is done${suffix}`, async (t) => {
  const { addr } = addon.memoryAllocate(256 * MIB, 0);
  const prefault = addon.memoryPrefault(addr, 256 * MIB, 2);
  addon.memoryFree(addr);
  await t.notThrowsAsync(prefault);
  t.true(await isUnmapped(addr));
});

serialWithAddon(`memory: a thread may end while its memory is being pre-faulted${suffix}`, async (t) => {
  const worker = new Worker(PROGRAM, { argv: ['prefault-forever'] });
  await new Promise((resolve) => worker.once('message', resolve));
  await worker.terminate();
  t.pass();
});

serialWithAddon(`memory: what cannot be had is an error with the call and its errno${suffix}`, async (t) => {
  const ENOMEM = 12;
  const EINVAL = 22;
  const tooMuch = t.throws(() => addon.memoryAllocate(2 ** 45, 0));
  t.like(tooMuch, { call: 'mmap', errno: ENOMEM, device: '' });
  t.like(
    t.throws(() => addon.memoryAllocate(2 ** 47, MEMORY_HUGE_PAGES)),
    { call: 'mmap', errno: ENOMEM },
  );
  t.like(
    t.throws(() => addon.memoryAllocate(0, 0)),
    { call: 'mmap', errno: EINVAL },
  );
  const gone = addon.memoryAllocate(4096, 0).addr;
  addon.memoryFree(gone);
  t.like(
    t.throws(() => addon.memoryFree(gone)),
    { call: 'memoryFree', errno: EINVAL },
  );
  const nothing = await t.throwsAsync(addon.memoryPrefault(4096, 4096, 1));
  t.like(nothing, { call: 'madvise', errno: ENOMEM });
});

serialWithAddon(`memory: a wrong call throws${suffix}`, (t) => {
  const { addr } = addon.memoryAllocate(4096, 0);
  const any = addon as unknown as Record<string, (...args: unknown[]) => unknown>;
  for (const value of [undefined, null, '4096', -1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 60, 1n, {}]) {
    for (const name of ['memoryAllocate', 'memoryViews', 'memoryFree', 'memoryPrefault']) {
      t.throws(() => any[name]?.(value, 0, 0), { instanceOf: TypeError }, `${name}(${String(value)})`);
    }
    t.throws(() => addon.memoryViews(addr, value as number), { instanceOf: TypeError });
    t.throws(() => addon.addressOf(value as Uint8Array), { instanceOf: TypeError });
  }
  t.throws(() => addon.memoryViews(addr, 0), { instanceOf: TypeError });
  addon.memoryFree(addr);
});
