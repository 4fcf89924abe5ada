import { execFile, execFileSync } from 'node:child_process';
import { mkdirSync, statSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { open, readFile } from 'node:fs/promises';
import { constants } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import test, { type ExecutionContext } from 'ava';
import { type Logger, silentLogger } from '../../src/base/environment/log.js';
import { ClosedError, DiskError } from '../../src/base/errors.js';
import { PageFile } from '../../src/disk/folder/page-file.js';
import { crc32 } from '../../src/memory/checksum.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { PageCopies } from '../../src/memory/page-copies.js';
import type { PageBytes } from '../../src/pool/page-batch.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { systemThreads } from '../../src/system/system-threads.js';
import { makeReadOnly, mounted, mountSuffix, temporaryFolder, withMounts } from '../_support/disk/mounts.js';
import { type ExerciseResult, exercisePageFile } from '../_support/disk/page-file-exercise.js';
import { addon, serialWithAddon, suffix } from '../_support/native/addon.js';
import { lose } from '../_support/planted.js';
import { content } from '../_support/support.js';

const PROGRAM = fileURLToPath(new URL('./disk-page-file-program.js', import.meta.url));
const MIB = 2 ** 20;
const env = systemEnvironment({ log: silentLogger });

type Mode = 'auto' | 'direct' | 'buffered';

function page(bytes: Uint8Array): PageBytes {
  return { views: [bytes], length: bytes.length };
}

async function opened(t: ExecutionContext, capacityBytes = 4 * MIB, mode: Mode = 'auto'): Promise<PageFile> {
  const file = await PageFile.open(join(temporaryFolder(t), 'pages'), { capacityBytes, mode, env });
  t.teardown(() => file.close());
  return file;
}

async function runWithoutAddon<T>(
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<T & { hasAddon: boolean }> {
  const { stdout } = await promisify(execFile)(process.execPath, [PROGRAM, ...args], {
    env: { ...process.env, MESHCACHE_NATIVE: 'off', ...env },
  });
  return JSON.parse(stdout) as T & { hasAddon: boolean };
}

for (const mode of ['auto', 'buffered'] as const) {
  test(`page file: ${mode}: every page comes back, with its checksum, and nothing around it changes`, async (t) => {
    const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Date.now() >>> 0);
    t.log(`seed ${seed}`);
    const { failures, pages, mode: is } = await exercisePageFile(join(temporaryFolder(t), 'pages'), mode, seed);
    t.log(`${pages} pages, ${is}`);
    t.deepEqual(failures, []);
    t.is(pages, 48);
  });

  test(`page file: ${mode}: the same without the addon`, async (t) => {
    const seed = String(process.env.MESHCACHE_TEST_SEED ?? Date.now() >>> 0);
    t.log(`seed ${seed}`);
    const path = join(temporaryFolder(t), 'pages');
    const result = await runWithoutAddon<ExerciseResult>(['exercise', path, mode, seed]);
    t.false(result.hasAddon);
    t.deepEqual(result.failures, []);
    t.is(result.pages, 48);
  });
}

for (const type of ['ext4', 'ext2', 'tmpfs'] as const) {
  withMounts(`page file: on ${type}, with the addon and without${mountSuffix}`, async (t) => {
    const path = join(mounted(t, type, 80), 'pages');
    const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Date.now() >>> 0);
    t.log(`seed ${seed}`);
    const here = await exercisePageFile(path, 'auto', seed);
    t.log(here.mode);
    if (type !== 'tmpfs') t.is(here.mode, 'direct');
    t.deepEqual(here.failures, []);
    const without = await runWithoutAddon<ExerciseResult>(['exercise', path, 'auto', String(seed + 1)]);
    t.is(without.mode, here.mode);
    t.deepEqual(without.failures, []);
  });
}

test('page file: what is written lies at its offset, with zeros up to the next block', async (t) => {
  for (const mode of ['auto', 'buffered'] as const) {
    const path = join(temporaryFolder(t), 'pages');
    const file = await PageFile.open(path, { capacityBytes: MIB, mode, env });
    const region = HostRegion.allocate(16_384);
    t.teardown(() => region.free());
    region.bytes().fill(0xdd);
    await file.write(8192, page(region.bytes(0, 8192)));
    await file.write(8192, page(region.bytes(0, 4100)));
    await file.write(32_768, page(content(1, 1)));
    await file.sync();
    await file.close();
    const expected = new Uint8Array(MIB);
    expected.fill(0xdd, 8192, 8192 + 4100);
    expected.set(content(1, 1), 32_768);
    t.is(Buffer.compare(await readFile(path), expected), 0, mode);
    t.is(statSync(path).mode & 0o777, 0o600);
  }
});

test('page file: what was written is there when it is opened again, in another mode, shorter or longer', async (t) => {
  const path = join(temporaryFolder(t), 'pages');
  const bytes = content(7, 10_000);
  const steps: [number, Mode][] = [
    [MIB, 'auto'],
    [MIB, 'buffered'],
    [32_768, 'auto'],
    [2 * MIB, 'auto'],
  ];
  for (const [i, [capacityBytes, mode]] of steps.entries()) {
    const file = await PageFile.open(path, { capacityBytes, mode, env });
    if (i === 0) await file.write(4096, page(bytes));
    const target = new Uint8Array(10_000);
    t.is(await file.read(4096, page(target)), crc32(bytes));
    t.deepEqual(target, bytes);
    t.is(statSync(path).size, capacityBytes);
    t.true((await file.allocatedBytes()) <= capacityBytes);
    await file.close();
  }
});

for (const how of ['addon', 'program', 'sparse'] as const) {
  withMounts(`page file: space is reserved by: ${how}${mountSuffix}${how === 'addon' ? suffix : ''}`, async (t) => {
    const folder = mounted(t, 'ext4', 32);
    const path = join(folder, 'pages');
    const capacityBytes = 8 * MIB;
    let allocatedBytes: number;
    if (how === 'addon') {
      const file = await PageFile.open(path, { capacityBytes, env });
      allocatedBytes = await file.allocatedBytes();
      await file.close();
    } else {
      const args = ['open', path, String(capacityBytes)];
      const env = how === 'sparse' ? { PATH: folder } : {};
      allocatedBytes = (await runWithoutAddon<{ allocatedBytes: number }>(args, env)).allocatedBytes;
    }
    t.is(allocatedBytes, how === 'sparse' ? 0 : capacityBytes);
    t.is(statSync(path).size, capacityBytes);
  });
}

withMounts(
  `page file: on a file system that reserves nothing it is sparse, and says so once${mountSuffix}`,
  async (t) => {
    const folder = mounted(t, 'ext2', 16);
    const messages: string[] = [];
    const listening: Logger = { log: (level, message) => messages.push(`${level}: ${message}`) };
    await t.throwsAsync(PageFile.open(join(folder, 'pages'), { capacityBytes: 64 * MIB, env }), {
      instanceOf: DiskError,
      message: /needs 64 MiB more/,
    });
    const file = await PageFile.open(join(folder, 'pages'), {
      capacityBytes: 8 * MIB,
      env: { ...env, log: listening },
    });
    t.true((await file.allocatedBytes()) < 65_536);
    t.deepEqual(messages, ['info: disk tier: space cannot be reserved']);
    const region = HostRegion.allocate(MIB);
    t.teardown(() => region.free());
    await file.write(0, page(region.bytes()));
    writeFileSync(join(folder, 'other'), '');
    const other = await open(join(folder, 'other'), 'w');
    await t.throwsAsync(
      async () => {
        for (;;) await other.write(content(1, MIB));
      },
      { code: 'ENOSPC' },
    );
    await other.close();
    // In place, and through a buffer.
    await t.throwsAsync(file.write(4 * MIB, page(region.bytes())), { code: 'ENOSPC' });
    await t.throwsAsync(file.write(4 * MIB, page(content(1, MIB))), { code: 'ENOSPC' });
    await file.write(0, page(content(2, MIB)));
    t.is(await file.read(0, page(region.bytes())), crc32(content(2, MIB)));
    await file.close();
  },
);

for (const how of ['with', 'without'] as const) {
  withMounts(`page file: too little space, ${how} the addon: an error that says how much${mountSuffix}`, async (t) => {
    for (const type of ['tmpfs', 'ext4'] as const) {
      const folder = mounted(t, type, 4);
      const path = join(folder, 'pages');
      const open = (capacityBytes: number) =>
        how === 'with'
          ? PageFile.open(path, { capacityBytes, env }).then((file) => file.close())
          : runWithoutAddon(['open', path, String(capacityBytes)]);
      const error = await t.throwsAsync(async () => open(8 * MIB));
      t.regex(
        error.message,
        /mounted\/pages needs 8 MiB more on its file system, where [\d.]+ MiB are free: make room/,
      );
      if (how === 'with') t.true(error instanceof DiskError);
      t.is(statSync(path).size, 0);
      await open(2 * MIB);
      await t.throwsAsync(async () => open(16 * MIB), { message: /needs 14 MiB more/ });
      t.is(statSync(path).size, 2 * MIB);
    }
  });
}

withMounts(`page file: a read-only file system is an error that says so${mountSuffix}`, async (t) => {
  const folder = mounted(t, 'tmpfs', 4);
  const path = join(folder, 'pages');
  await (await PageFile.open(path, { capacityBytes: MIB, env })).close();
  await makeReadOnly(folder);
  const error = await t.throwsAsync(PageFile.open(path, { capacityBytes: MIB, env }), { instanceOf: DiskError });
  t.regex(error.message, /pages cannot be used: EROFS.*; its file system is read-only: mount it for writing/);
  t.is((error.cause as NodeJS.ErrnoException).code, 'EROFS');
});

test('page file: what is not a file, or in no folder, is refused with what to do', async (t) => {
  const folder = temporaryFolder(t);
  mkdirSync(join(folder, 'folder'));
  symlinkSync('loop', join(folder, 'loop'));
  const expected: [string, RegExp][] = [
    ['folder', /folder cannot be used: EISDIR.*; a directory is in its place/],
    ['missing/pages', /cannot be used: ENOENT.*; make its directory first/],
    ['loop', /cannot be used: ELOOP.*; see what the system says/],
  ];
  for (const [name, message] of expected) {
    await t.throwsAsync(PageFile.open(join(folder, name), { capacityBytes: 4096, env }), {
      instanceOf: DiskError,
      message,
    });
  }
  execFileSync('mkfifo', [join(folder, 'pipe')]);
  await t.throwsAsync(PageFile.open(join(folder, 'pipe'), { capacityBytes: 4096, env }), {
    instanceOf: DiskError,
    message: /pipe is not a file/,
  });
});

test('page file: a file that was cut by somebody else is an error where it ends, and what is before that is read', async (t) => {
  for (const mode of ['auto', 'buffered'] as const) {
    const path = join(temporaryFolder(t), 'pages');
    const file = await PageFile.open(path, { capacityBytes: 4 * MIB, mode, env });
    t.teardown(() => file.close());
    const bytes = content(3, MIB);
    await file.write(0, page(bytes));
    await file.write(MIB, page(bytes));
    const region = HostRegion.allocate(MIB);
    t.teardown(() => region.free());
    for (const end of [MIB + 8192, MIB + 5000, MIB, MIB - 1]) {
      truncateSync(path, end);
      for (const target of [new Uint8Array(MIB), region.bytes()]) await t.throwsAsync(file.read(MIB, page(target)));
      await t.throwsAsync(file.read(3 * MIB, page(new Uint8Array(10))), {
        instanceOf: DiskError,
        message: /the file ends at 3145728/,
      });
      if (end >= MIB) t.is(await file.read(0, page(region.bytes())), crc32(bytes));
    }
  }
});

test('page file: calls that were begun end before it is closed, later ones are refused', async (t) => {
  for (const mode of ['auto', 'buffered'] as const) {
    const file = await opened(t, 64 * MIB, mode);
    const bytes = content(5, MIB);
    const region = HostRegion.allocate(64 * MIB);
    t.teardown(() => region.free());
    region.bytes(0, MIB).set(bytes);
    const writes = Array.from({ length: 60 }, (_, i) =>
      file.write(i * MIB, page(i % 2 ? bytes : region.bytes(0, MIB))),
    );
    await Promise.all(writes);
    let isClosed = false;
    const reads = Array.from({ length: 60 }, async (_, i) => {
      const target = i % 2 ? new Uint8Array(MIB) : region.bytes(i * MIB, MIB);
      const checksum = await file.read(i * MIB, page(target));
      t.false(isClosed);
      return checksum;
    });
    const closed = file.close().then(() => {
      isClosed = true;
    });
    t.is(file.close(), file.close());
    await t.throwsAsync(file.read(0, page(bytes)), { instanceOf: ClosedError });
    await t.throwsAsync(file.write(0, page(bytes)), { instanceOf: ClosedError });
    await t.throwsAsync(file.sync(), { instanceOf: ClosedError });
    t.deepEqual(new Set(await Promise.all(reads)), new Set([crc32(bytes)]));
    await closed;
  }
});

test('page file: a page of several pieces is read to its end before the file is closed', async (t) => {
  for (const mode of ['auto', 'buffered'] as const) {
    const file = await opened(t, 16 * MIB, mode);
    const bytes = content(9, 15 * MIB + 77);
    await file.write(0, page(bytes));
    const reading = file.read(0, page(new Uint8Array(bytes.length)));
    await file.close();
    t.is(await reading, crc32(bytes));
  }
});

test('page file: memory freed while it is written stays until it has been', async (t) => {
  const file = await opened(t, 64 * MIB);
  for (let round = 0; round < 8; round++) {
    const regions = Array.from({ length: 8 }, () => HostRegion.allocate(MIB));
    const writes = regions.map((region, i) => {
      region.bytes().set(content(round * 8 + i, MIB));
      const write = file.write(i * MIB, page(region.bytes()));
      region.free();
      return write;
    });
    await Promise.all(writes);
    for (let i = 0; i < 8; i++) {
      t.is(await file.read(i * MIB, page(new Uint8Array(MIB))), crc32(content(round * 8 + i, MIB)));
    }
  }
});

test('page file: memory that was transferred away meanwhile fails its page only', async (t) => {
  const file = await opened(t, 64 * MIB);
  const good = content(1, MIB);
  const gone = Array.from({ length: 32 }, () => new Uint8Array(MIB).fill(1));
  const writes = gone.map((bytes, i) => file.write(i * MIB, page(bytes)));
  const last = file.write(40 * MIB, page(good));
  for (const bytes of gone) structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
  const outcomes = await Promise.allSettled(writes);
  t.true(outcomes.some(({ status }) => status === 'rejected'));
  await last;
  t.is(await file.read(40 * MIB, page(new Uint8Array(MIB))), crc32(good));
});

test('page file: a range that is not in it, or not aligned, is a mistake of ours', async (t) => {
  const file = await opened(t, MIB);
  for (const offset of [1, 512, -4096, MIB, Number.NaN, MIB - 4096]) {
    const expected = { message: /page file: cannot (read|write) 5000 bytes at/ };
    await t.throwsAsync(async () => file.write(offset, page(new Uint8Array(5000))), expected);
    await t.throwsAsync(async () => file.read(offset, page(new Uint8Array(5000))), expected);
  }
  await t.throwsAsync(PageFile.open('unused', { capacityBytes: 5000, env }), { message: /not a multiple of 4096/ });
});

serialWithAddon(`page file: preallocating answers with the system's errors${suffix}`, async (t) => {
  const path = join(temporaryFolder(t), 'file');
  writeFileSync(path, '');
  const reader = await open(path, 'r');
  t.is(await addon.preallocate(reader.fd, 0, 4096), constants.errno.EBADF);
  await reader.close();
  const writer = await open(path, 'r+');
  t.is(await addon.preallocate(writer.fd, 4096, 4096), 0);
  t.is(statSync(path).size, 8192);
  t.is(await addon.preallocate(writer.fd, 0, 0), constants.errno.EINVAL);
  await writer.close();
  for (const args of [
    [-1, 0, 1],
    [0.5, 0, 1],
    [0, -1, 1],
    [0, 0, 2 ** 53],
    ['0', 0, 1],
  ] as [number, number, number][]) {
    t.throws(() => addon.preallocate(...args), { instanceOf: TypeError });
  }
});

serialWithAddon(
  `page file: memory that direct I/O can use is written as it is, all other is copied${suffix}`,
  async (t) => {
    let copies = 0;
    const count = (): boolean => {
      copies++;
      return false;
    };
    for (const how of ['run', 'runOffThread'] as const) t.teardown(lose(PageCopies.prototype, how, { when: count }));
    const file = await opened(t, 32 * MIB);
    const region = HostRegion.allocate(16 * MIB);
    t.teardown(() => region.free());
    region.bytes().set(content(1, region.length));
    for (const [at, length, isCopied] of [
      [0, 4096, false],
      [8192, MIB, false],
      [0, 9 * MIB, false],
      [64, 4096, true],
      [0, 5000, true],
    ] as const) {
      copies = 0;
      const bytes = region.bytes(at, length);
      await file.write(0, page(bytes));
      t.is(copies > 0, isCopied, `${length} at ${at}`);
      const read = new Uint8Array(length);
      t.is(await file.read(0, page(read)), crc32(bytes));
      t.deepEqual(read, bytes.slice());
    }
  },
);

serialWithAddon(`page file: reading and writing by the addon answers with the system's errors${suffix}`, async (t) => {
  const path = join(temporaryFolder(t), 'file');
  writeFileSync(path, 'here');
  const file = await open(path, 'r');
  t.teardown(() => file.close());
  const region = HostRegion.allocate(4096);
  t.teardown(() => region.free());
  const shared = new Int32Array(new SharedArrayBuffer(4)).fill(1);
  // The process does not stay for these calls.
  const staying = setInterval(() => {}, 60_000);
  t.teardown(() => clearInterval(staying));
  t.is(await addon.readAt(file.fd, region.start, 4096, 1, shared), 3);
  t.is(shared[0], 0);
  t.is(Buffer.from(region.bytes(0, 3)).toString(), 'ere');
  t.is(await addon.readAt(file.fd, region.start, 4096, 99, shared), 0);
  t.is(await addon.writeAt(file.fd, region.start, 1, 0, shared), -constants.errno.EBADF);
  const writer = await open(path, 'r+');
  t.teardown(() => writer.close());
  t.is(await addon.writeAt(writer.fd, region.start, 3, 5, shared), 3);
  t.is((await readFile(path)).toString(), 'here\0ere');
  for (const args of [
    [-1, region.start, 1, 0, shared],
    [0, -1, 1, 0, shared],
    [0, region.start, 0.5, 0, shared],
    [0, region.start, 1, 2 ** 53, shared],
    [0, region.start, 1, 0, new Int32Array(2)],
    [0, region.start, 1, 0, new Uint8Array(1)],
  ] as Parameters<typeof addon.readAt>[]) {
    t.throws(() => addon.readAt(...args), { instanceOf: TypeError });
    t.throws(() => addon.writeAt(...args), { instanceOf: TypeError });
  }
});

// Cause: large pages were copied by threads of the system whatever the environment: virtual time does not wait for
// them, so that a simulated disk did not answer any more.
test.serial('page file: where the environment has no threads that copy, none is asked to', async (t) => {
  let asked = 0;
  const count = (): boolean => {
    asked++;
    return false;
  };
  t.teardown(lose(PageCopies.prototype, 'runOffThread', { when: count }));
  for (const canCopy of [true, false]) {
    asked = 0;
    const path = join(temporaryFolder(t), 'pages');
    const threads = { ...systemThreads, canCopy };
    const file = await PageFile.open(path, { capacityBytes: 4 * MIB, mode: 'buffered', env: { ...env, threads } });
    t.teardown(() => file.close());
    const bytes = content(1, MIB);
    await file.write(0, page(bytes));
    const read = new Uint8Array(MIB);
    t.is(await file.read(0, page(read)), crc32(bytes));
    t.deepEqual(read, bytes);
    t.is(asked > 0, canCopy);
  }
});
