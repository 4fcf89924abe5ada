import { execFile } from 'node:child_process';
import {
  closeSync,
  existsSync,
  fstatSync,
  ftruncateSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import { deflate } from 'node:zlib';
import test, { type ExecutionContext } from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import { crc32 } from '../../src/memory/checksum.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { PageCopies } from '../../src/memory/page-copies.js';
import { DescriptorListener, type DescriptorRecord } from '../../src/native/unix-sockets.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { addon, serialWithAddon, suffix } from '../_support/native/addon.js';
import { noPython, PythonProcess } from '../_support/native/python-process.js';
import { content, PATIENCE_MS, until } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const run = promisify(execFile);
const MIB = 2 ** 20;
const PROGRAM = new URL('./native-addon-program.js', import.meta.url);
const withPython = noPython === '' ? serialWithAddon : test.serial.skip;
const pythonSuffix = noPython === '' ? suffix : ` (skipped: ${noPython})`;
const withoutAddon = unless(addon === null ? '' : 'it is about a node without the addon');

/** A file with these bytes, in a folder of its own that goes with the test. */
function file(t: ExecutionContext, bytes: Uint8Array): string {
  const folder = mkdtempSync('/dev/shm/meshcache-mapped-');
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, 'client-memory');
  writeFileSync(path, bytes);
  return path;
}

/** The whole file as a region that is freed with the test. */
function map(t: ExecutionContext, path: string, writable = true): HostRegion {
  const region = HostRegion.map(openSync(path, writable ? 'r+' : 'r'), statSync(path).size, { writable });
  t.teardown(() => region.free());
  return region;
}

/** Whether the process has the file mapped, or open. */
function hasFile(path: string): boolean {
  if (readFileSync('/proc/self/maps', 'utf8').includes(path)) return true;
  return readdirSync('/proc/self/fd').some((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).includes(path);
    } catch {
      return false;
    }
  });
}

function bytesOf(path: string): Uint8Array {
  return new Uint8Array(readFileSync(path));
}

function isOpen(fd: number): boolean {
  return inodeOf(fd) !== undefined;
}

/** The file that is open there; undefined: none is. */
function inodeOf(fd: number): number | undefined {
  try {
    return fstatSync(fd).ino;
  } catch {
    return undefined;
  }
}

/** What prints bytes that differ takes minutes for these. */
function same(a: Uint8Array, b: Uint8Array): boolean {
  return Buffer.compare(a, b) === 0;
}

function isZero(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0);
}

serialWithAddon(`mapped region: both sides see what the other writes${suffix}`, (t) => {
  const path = file(t, content(1, 3 * MIB));
  const length = 3 * MIB - 100;
  const region = HostRegion.map(openSync(path, 'r+'), length, { writable: true });
  t.like(region, {
    length,
    isMapped: true,
    isNative: true,
    isShared: true,
    isWritable: true,
    isWrapped: false,
    fd: -1,
  });
  t.true(same(region.bytes(), content(1, 3 * MIB).subarray(0, length)));
  region.bytes(5000, 1000).set(content(2, 1000));
  t.true(same(bytesOf(path).subarray(5000, 6000), content(2, 1000)));
  const other = openSync(path, 'r+');
  writeSync(other, content(3, 1000), 0, 1000, 2 * MIB);
  closeSync(other);
  t.true(same(region.bytes(2 * MIB, 1000), content(3, 1000)));
  t.false(region.isDamaged());
  region.free();
  t.false(region.isDamaged());
});

withPython(`mapped region: a memfd of another process, which then cuts it short${pythonSuffix}`, async (t) => {
  const records: DescriptorRecord[] = [];
  const path = `${file(t, new Uint8Array(0))}.fds`;
  const options = { mode: 0o600, recordBytes: 8, connectionsMaxCount: 4, timeoutMs: PATIENCE_MS };
  const listener = DescriptorListener.listen({ ...options, path, onRecord: (record) => records.push(record) });
  t.teardown(() => listener.close());
  const python = PythonProcess.start(
    t,
    `
fd = os.memfd_create('client-memory')
os.ftruncate(fd, 1 << 20)
memory = mmap.mmap(fd, 1 << 20)
memory[1000:1004] = b'from'
peer = send(sys.argv[1], struct.pack('<Q', 1 << 20), [fd])
answer(peer)
say(memory[2000:2004].decode())
input()
os.ftruncate(fd, 0)
say('cut short')
input()
`,
    path,
  );
  await until(() => records.length === 1);
  const { record, fd, reply } = records[0] as DescriptorRecord;
  const length = Number(Buffer.from(record).readBigUInt64LE());
  const region = HostRegion.map(fd, length, { writable: true });
  t.teardown(() => region.free());
  t.is(Buffer.from(region.bytes(1000, 4)).toString(), 'from');
  region.bytes(2000, 4).set(Buffer.from('back'));
  reply(new Uint8Array(1));
  t.is(await python.line(), 'back');
  t.false(region.isDamaged());
  python.tell();
  t.is(await python.line(), 'cut short');
  t.true(region.isDamaged());
  t.true(isZero(region.bytes()));
  region.bytes().fill(7);
  region.free();
  t.false(hasFile('client-memory'));
  python.tell();
  t.is(await python.ended(), 0);
});

serialWithAddon(`mapped region: for reading only${suffix}`, async (t) => {
  const path = file(t, content(1, 10_000));
  const region = map(t, path, false);
  t.false(region.isWritable);
  t.true(same(region.bytes(), content(1, 10_000)));
  await t.throwsAsync(region.prefault(), { code: 'ERR_ARGUMENT', message: /reading only/ });
  await t.throwsAsync(addon.memoryPrefault(region.start, 10_000, 2), { message: /Permission denied/ });
  const writable = map(t, path);
  await writable.prefault();
  writable.bytes(0, 1)[0] = 99;
  t.is(region.bytes()[0], 99);
  truncateSync(path, 100);
  t.true(isZero(region.bytes(4096)));
  t.true(region.isDamaged());
});

serialWithAddon(`mapped region: what cannot be mapped is refused, and its descriptor closed${suffix}`, async (t) => {
  const path = file(t, content(1, 5000));
  const cases: [flags: string, length: number, writable: boolean, message: RegExp, path?: string][] = [
    ['r+', 5001, true, /has 5000 bytes, which is less than the length of 5001/],
    ['r', 5000, true, /not open for reading and writing/],
    ['a', 5000, false, /not open for reading/],
    ['r', 1, false, /not in memory/, '/dev/null'],
    ['r', 1, false, /not in memory/, process.execPath],
    ['r', 0, false, /length must be/],
    ['r', -1, false, /length must be/],
    ['r', 1.5, false, /length must be/],
    ['r', 2 ** 47, false, /length must be/],
    ['r', 5000, 1 as never, /writable must be true or false, got 1/],
  ];
  for (const [flags, length, writable, message, other = path] of cases) {
    const fd = openSync(other, flags);
    const opened = inodeOf(fd);
    t.throws(() => HostRegion.map(fd, length, { writable }), { code: 'ERR_ARGUMENT', message });
    // A file that is not in memory may take long to close: that is done on a thread. Its number may be another file's
    // then.
    await until(() => inodeOf(fd) !== opened);
  }
  const closed = openSync(path, 'r');
  closeSync(closed);
  for (const fd of [closed, -1, 0.5, 2 ** 31, '3', undefined]) {
    t.throws(() => HostRegion.map(fd as number, 1, { writable: false }), {
      code: 'ERR_ARGUMENT',
      message: /descriptor/,
    });
  }
  const another = openSync(path, 'r');
  t.throws(() => HostRegion.map(another, 1, undefined as never), { code: 'ERR_ARGUMENT', message: /writable/ });
  t.false(isOpen(another));
});

withoutAddon('mapped region: without the addon there is none, and the descriptor is closed', (t) => {
  const fd = openSync(file(t, content(1, 5000)), 'r');
  t.throws(() => HostRegion.map(fd, 5000, { writable: false }), { code: 'ERR_ARGUMENT', message: /native addon/ });
  t.false(isOpen(fd));
  t.is(HostRegion.wrap(new Uint8Array(5)).fd, -1);
});

serialWithAddon(`mapped region: cut short while JavaScript reads and writes it${suffix}`, (t) => {
  const path = file(t, content(1, 4 * MIB));
  const [region, other] = [map(t, path), map(t, file(t, content(2, MIB)))];
  const fd = openSync(path, 'r+');
  const view = region.bytes();
  for (let pages = 1023; pages >= 0; pages--) {
    ftruncateSync(fd, pages * 4096);
    view[pages * 4096 + 5] = 1;
    if (view[pages * 4096 + 4095] !== 0) return t.fail(`page ${pages}`);
  }
  closeSync(fd);
  t.true(region.isDamaged());
  view.fill(9);
  t.true(view.every((byte) => byte === 9));
  t.is(statSync(path).size, 0);
  t.false(other.isDamaged());
  t.true(same(other.bytes(), content(2, MIB)));
});

serialWithAddon(`mapped region: cut short without anybody looking, it is damaged for good${suffix}`, (t) => {
  const path = file(t, content(1, 10_000));
  const region = map(t, path);
  truncateSync(path, 9_999);
  t.true(region.isDamaged());
  truncateSync(path, 10_000);
  t.true(region.isDamaged());
  region.free();
  t.true(region.isDamaged());
});

serialWithAddon(`mapped region: cut short while threads copy out of it and into it${suffix}`, async (t) => {
  const length = 32 * MIB;
  const other = map(t, file(t, content(5, length)));
  const target = HostRegion.allocate(length);
  t.teardown(() => target.free());
  for (const isSource of [true, false]) {
    const path = file(t, content(3, length));
    const region = map(t, path);
    const [from, to] = isSource ? [region, target] : [other, region];
    const copies = Array.from({ length: 8 }, () => {
      const pages = new PageCopies();
      for (let at = 0; at < length; at += MIB) pages.add([from.bytes(at, MIB)], [to.bytes(at, MIB)]);
      return pages.runOffThread();
    });
    for (let end = length; end > 0; end -= MIB) truncateSync(path, end - MIB);
    await Promise.all(copies);
    t.true(region.isDamaged());
    const again = new PageCopies();
    again.add([from.bytes()], [to.bytes()]);
    const [sum] = await again.runOffThread();
    t.is(sum, crc32(from.bytes(), 0));
    t.true(same(to.bytes(), from.bytes()), 'it is memory like any other afterwards');
  }
  t.true(same(other.bytes(), content(5, length)));
  t.false(other.isDamaged());
});

serialWithAddon(`mapped region: cut short under Node's own threads and other calls${suffix}`, async (t) => {
  const path = file(t, content(1, 2 * MIB));
  const region = map(t, path);
  truncateSync(path, MIB);
  t.is(crc32(region.bytes(MIB + 4096, 4096), 0), crc32(new Uint8Array(4096), 0));
  const half = map(t, path);
  truncateSync(path, 0);
  t.true((await promisify(deflate)(half.bytes())).length < 10_000, 'on a thread of Node’s pool');
  t.true(half.isDamaged());
  // A system call says that the memory is not there, and does no harm.
  const again = file(t, content(2, MIB));
  const third = map(t, again);
  truncateSync(again, 0);
  const zero = openSync('/dev/zero', 'r');
  t.throws(() => readSync(zero, third.bytes(), 0, MIB, null), { code: 'EFAULT' });
  closeSync(zero);
  t.true(third.isDamaged());
});

serialWithAddon(`mapped region: cut short in a worker${suffix}`, async (t) => {
  const path = file(t, content(1, 8192));
  const worker = new Worker(PROGRAM, { argv: ['map-cut-short', path], stdout: true });
  const ended = new Promise((resolve) => worker.once('exit', resolve));
  t.true(await new Promise((resolve) => worker.once('message', resolve)));
  t.is(await ended, 0);
  await until(() => !hasFile(path));
});

serialWithAddon(`mapped region: cut short while a transport reads into it${suffix}`, async (t) => {
  const env = systemEnvironment({ log: silentLogger });
  const length = 16 * MIB;
  const owner = await TcpTransport.create({ host: '127.0.0.1', port: 0, env });
  const reader = await TcpTransport.create({ host: '127.0.0.1', port: 0, env });
  t.teardown(() => Promise.all([owner.close(), reader.close()]));
  const served = HostRegion.allocate(length);
  t.teardown(() => served.free());
  served.bytes().set(content(1, length));
  const mr = owner.registerMr(served.addr, length);
  const path = file(t, new Uint8Array(length));
  const [region, other] = [map(t, path), map(t, file(t, new Uint8Array(length)))];
  const read = (into: HostRegion, at: number, bytes: number) => ({
    remoteEndpoint: owner.localEndpoint(),
    remoteAddr: mr.addr + BigInt(at),
    rkey: mr.rkey,
    localAddr: into.addr + BigInt(at),
    length: bytes,
  });
  const pages = (into: HostRegion) => Array.from({ length: 16 }, (_, i) => read(into, i * MIB, MIB));
  t.true((await reader.batchRead(pages(region))).every(Boolean));
  t.true(same(bytesOf(path), content(1, length)));
  const [reading, beside] = [reader.batchRead(pages(region)), reader.batchRead(pages(other))];
  truncateSync(path, MIB);
  t.is((await reading).length, 16);
  await beside;
  t.true(region.isDamaged());
  // Small pages are gathered elsewhere first, and copied.
  await reader.batchRead(Array.from({ length: 100 }, (_, i) => read(region, 2 * MIB + i * 512, 512)));
  // Reads that failed on the way are done again by whoever wants them.
  await until(async () => (await reader.batchRead(pages(other))).every(Boolean));
  t.true(same(other.bytes(), content(1, length)));
  t.false(other.isDamaged());
});

serialWithAddon(`mapped region: freed, it leaves nothing of the file, though views are there still${suffix}`, (t) => {
  const path = file(t, content(1, MIB));
  const region = map(t, path);
  const view = region.bytes();
  const seen: number[] = [];
  region.onFree(() => seen.push(view[4321] as number));
  t.true(hasFile(path));
  region.free();
  t.deepEqual(seen, [content(1, MIB)[4321] as number], 'callbacks come before');
  t.false(hasFile(path));
  t.true(isZero(view));
  view.fill(5);
  t.true(view.every((byte) => byte === 5));
  t.true(same(bytesOf(path), content(1, MIB)));
  region.free();
});

serialWithAddon(`mapped region: freed while threads copy into it, it is let go at once${suffix}`, async (t) => {
  const path = file(t, new Uint8Array(16 * MIB));
  const region = map(t, path);
  const source = HostRegion.allocate(16 * MIB);
  t.teardown(() => source.free());
  const copies = Array.from({ length: 8 }, () => {
    const pages = new PageCopies();
    pages.add([source.bytes()], [region.bytes()]);
    return pages.runOffThread();
  });
  region.free();
  t.false(hasFile(path));
  await Promise.all(copies);
  t.pass();
});

serialWithAddon(
  `mapped region: what was allocated for others has a descriptor, and goes back at once${suffix}`,
  (t) => {
    const region = HostRegion.allocate(2 * MIB, { shared: true });
    const view = region.bytes();
    view.set([1, 2, 3]);
    const other = openSync(`/proc/self/fd/${region.fd}`, 'r+');
    t.false(region.isMapped);
    t.false(region.isDamaged());
    const { ino } = fstatSync(other);
    const isMapped = () => new RegExp(` ${ino} +/memfd:meshcache`).test(readFileSync('/proc/self/maps', 'utf8'));
    t.true(isMapped());
    const fd = region.fd;
    region.free();
    t.is(region.fd, -1);
    t.false(isOpen(fd));
    t.false(isMapped());
    t.true(isZero(view));
    view.fill(9);
    const bytes = new Uint8Array(4);
    readSync(other, bytes, 0, 4, 0);
    t.deepEqual([...bytes], [1, 2, 3, 0], 'who else has it keeps what was in it');
    closeSync(other);
    t.is(HostRegion.allocate(10).fd, -1);
  },
);

serialWithAddon(`mapped region: a SIGBUS of others goes to the handler that was there before${suffix}`, async (t) => {
  const path = file(t, content(1, 8192));
  const { stdout } = await run(process.execPath, [PROGRAM.pathname, 'bus-error', path]);
  t.is(stdout, 'read 0\nthe handler before\n');
  const another = file(t, content(1, 8192));
  const killed = await t.throwsAsync(run(process.execPath, [PROGRAM.pathname, 'bus-error-by-default', another]));
  t.like(killed, { signal: 'SIGBUS', stdout: 'read 0\n' });
  t.true(existsSync(another));
});
