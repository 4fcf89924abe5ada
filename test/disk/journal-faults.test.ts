import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { entriesIn, entryOf, Twin, testFolder } from './journal-support.js';

/** Makes the writes fail for which `isBad` holds; each is asked about once. */
async function failWrites(t: ExecutionContext, isBad: (bytes: Uint8Array) => boolean): Promise<void> {
  const handle = await open(join(testFolder(t), 'any'), 'w');
  const prototype = Object.getPrototypeOf(handle) as { write: FileHandle['write'] };
  await handle.close();
  const { write } = prototype;
  prototype.write = function (this: FileHandle, ...args: unknown[]) {
    const error = Object.assign(new Error('EIO: planted'), { code: 'EIO' });
    if (isBad(args[0] as Uint8Array)) return Promise.reject(error);
    return (write as (...all: unknown[]) => unknown).apply(this, args);
  } as FileHandle['write'];
  t.teardown(() => {
    prototype.write = write;
  });
}

test.serial(
  'journal: a failed write breaks it until it is rewritten; what was said meanwhile is not lost',
  async (t) => {
    const path = join(testFolder(t), 'index');
    const folder = testFolder(t);
    const twin = await Twin.create(path);
    twin.put(entryOf(1));
    await twin.journal.flush();
    let failures = 1;
    await failWrites(t, () => failures-- > 0);
    twin.put(entryOf(2));
    const failing = t.throwsAsync(twin.journal.flush(), { code: 'EIO' });
    await Promise.resolve();
    twin.put(entryOf(9));
    await failing;
    t.deepEqual(await entriesIn(folder, readFileSync(path)), [entryOf(1)]);
    twin.remove('page-9');
    twin.put(entryOf(3));
    twin.use(entryOf(1).offset);
    await t.throwsAsync(twin.journal.flush(), { code: 'EIO' }, 'although writing would succeed now');
    t.false(existsSync(path), 'it might have what has been removed');
    await twin.journal.rewrite();
    twin.put(entryOf(4));
    await twin.journal.flush();
    t.is(twin.journal.stats().entries, 4);
    t.deepEqual(await entriesIn(folder, readFileSync(path)), twin.model.entries);
    await twin.journal.close();
  },
);

test.serial('journal: a write that fails while it is rewritten is mended by that', async (t) => {
  const path = join(testFolder(t), 'index');
  const twin = await Twin.create(path);
  for (let page = 0; page < 2000; page++) twin.put(entryOf(page));
  await twin.journal.flush();
  let isPlanted = true;
  await failWrites(t, (bytes) => isPlanted && Buffer.from(bytes).includes('page-7777'));
  const rewriting = twin.journal.rewrite();
  twin.put(entryOf(7777));
  await t.throwsAsync(twin.journal.flush(), { code: 'EIO' });
  isPlanted = false;
  twin.put(entryOf(8888));
  await rewriting;
  await twin.journal.flush();
  await twin.journal.close();
  const again = await Twin.open(path);
  t.deepEqual(again.model.entries, twin.model.entries);
  await again.journal.close();
});

test.serial('journal: a rewriting that fails changes nothing, and is tried again later', async (t) => {
  const path = join(testFolder(t), 'index');
  const twin = await Twin.create(path, { maxBytes: 200_000 });
  const random = (i: number) => (below: number) => (i * 7919) % below;
  let isPlanted = true;
  await failWrites(t, (bytes) => isPlanted && Buffer.from(bytes).includes('MCIX'));
  for (let i = 0; twin.journal.stats().bytes < 125_000; i++) {
    twin.replace(entryOf(random(i)(300)));
    await twin.journal.flush();
  }
  t.is(twin.journal.stats().rewrites, 0);
  isPlanted = false;
  for (let i = 0; twin.journal.stats().rewrites === 0 && i < 3000; i++) {
    twin.replace(entryOf(random(i)(300)));
    await twin.journal.flush();
  }
  t.is(twin.journal.stats().rewrites, 1);
  await twin.journal.close();
  const again = await Twin.open(path, { maxBytes: 200_000 });
  t.deepEqual(again.model.entries, twin.model.entries);
  await again.journal.close();
});

test.serial('journal: where no rewriting succeeds, flushing fails before the limit is exceeded', async (t) => {
  const maxBytes = 200_000;
  const path = join(testFolder(t), 'index');
  const twin = await Twin.create(path, { maxBytes });
  await failWrites(t, (bytes) => Buffer.from(bytes).includes('MCIX'));
  const filling = async () => {
    for (let i = 0; i < 20_000; i++) {
      twin.replace(entryOf(i % 300));
      await twin.journal.flush();
    }
  };
  await t.throwsAsync(filling(), { code: 'EIO' });
  t.true(twin.journal.stats().bytes <= maxBytes);
  t.true(twin.journal.stats().bytes > maxBytes / 2);
  await t.throwsAsync(twin.journal.close(), { code: 'EIO' });
});

test.serial('journal: closing says what was not written, and closes all the same', async (t) => {
  const path = join(testFolder(t), 'index');
  const twin = await Twin.create(path);
  await failWrites(t, (bytes) => Buffer.from(bytes).includes('page-1'));
  twin.put(entryOf(1));
  await t.throwsAsync(twin.journal.close(), { code: 'EIO' });
  const again = await Twin.open(path);
  t.deepEqual(again.model.entries, []);
  await again.journal.close();
});

const isRoot = process.getuid?.() === 0;
const testAsRoot = isRoot && process.platform === 'linux' ? test.serial : test.serial.skip;

testAsRoot(`journal: a full file system (${isRoot ? 'tmpfs' : 'needs root for a tmpfs'})`, async (t) => {
  const folder = join(testFolder(t), 'small');
  mkdirSync(folder);
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'none', folder], { stdio: 'pipe' });
  } catch (error) {
    t.log(`not tested: no tmpfs can be mounted here: ${String(error)}`);
    return t.pass();
  }
  t.teardown(() => execFileSync('umount', [folder]));
  const path = join(folder, 'index');
  const ballast = join(folder, 'ballast');
  const twin = await Twin.create(path);
  writeFileSync(ballast, Buffer.alloc(900_000));
  const filling = async () => {
    for (let page = 0; page < 4000; page++) {
      twin.put(entryOf(page));
      await twin.journal.flush();
    }
  };
  await t.throwsAsync(filling(), { code: 'ENOSPC' });
  t.is(statSync(path).size, twin.journal.stats().bytes, 'nothing is left of the block that had no room');
  const [lost] = twin.model.entries.slice(-1);
  await t.throwsAsync(twin.journal.rewrite(), { code: 'ENOSPC' });
  await t.throwsAsync(twin.journal.flush(), { code: 'ENOSPC' });
  const found = await entriesIn(testFolder(t), readFileSync(path));
  t.deepEqual(found, twin.model.entries.slice(0, -1), 'all that was flushed');
  rmSync(ballast);
  await twin.journal.rewrite();
  await twin.journal.flush();
  await twin.journal.close();
  const again = await Twin.open(path);
  t.deepEqual(again.model.entries.at(-1), lost);
  await again.journal.close();
});
