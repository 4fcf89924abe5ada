import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import type { Files, OpenFile } from '../../src/base/environment/files.js';
import { systemFiles } from '../../src/system/files/system-files.js';
import { entriesIn, entryOf, heldRewriting, journalEnv, Twin, testFolder } from '../_support/disk/journals.js';
import { unless } from '../_support/unless.js';

const BAD = Object.assign(new Error('EIO: planted'), { code: 'EIO' });

/** The system's files, whose writes fail for which `isBad` holds; each is asked about once. */
class FailingFiles {
  isBad: (bytes: Uint8Array) => boolean = () => false;
  /** Whether files can be flushed to the medium, and deleted. */
  canSync = true;
  canDelete = true;
  syncs = 0;
  readonly env = {
    ...journalEnv,
    files: {
      ...systemFiles,
      open: (...args: OpenArguments) => this.#open(...args),
      rm: async (...args: Parameters<Files['rm']>) => {
        if (!this.canDelete) throw BAD;
        return systemFiles.rm(...args);
      },
    },
  };

  async #open(...args: OpenArguments): Promise<OpenFile> {
    const file = await systemFiles.open(...args);
    const { write, datasync } = file;
    file.datasync = async () => {
      this.syncs++;
      if (!this.canSync) throw BAD;
      return datasync.call(file);
    };
    file.write = async (views, position) => {
      if (this.isBad(Buffer.concat(views))) throw BAD;
      return write.call(file, views, position);
    };
    return file;
  }
}

type OpenArguments = Parameters<Files['open']>;

test('journal: a failed write breaks it until it is rewritten; what was said meanwhile is not lost', async (t) => {
  const path = join(testFolder(t), 'index');
  const folder = testFolder(t);
  const files = new FailingFiles();
  const twin = await Twin.create(path, { env: files.env });
  twin.put(entryOf(1));
  await twin.journal.flush();
  let failures = 1;
  files.isBad = () => failures-- > 0;
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
});

test('journal: removals that are synced are on the medium; calls during one share the next', async (t) => {
  const path = join(testFolder(t), 'index');
  const files = new FailingFiles();
  const twin = await Twin.create(path, { env: files.env });
  twin.put(entryOf(1));
  twin.put(entryOf(2));
  await twin.journal.sync();
  const before = files.syncs;
  twin.remove('page-1');
  const first = twin.journal.sync();
  await Promise.resolve();
  twin.remove('page-2');
  await Promise.all([first, ...Array.from({ length: 50 }, () => twin.journal.sync())]);
  t.true(files.syncs > before && files.syncs <= before + 2, `${files.syncs - before} syncs`);
  t.deepEqual(await entriesIn(testFolder(t), readFileSync(path)), []);
  await twin.journal.close();
  await t.notThrowsAsync(twin.journal.sync());
});

test('journal: if a removal cannot be flushed to the medium, the file is deleted, and a rewriting mends it', async (t) => {
  const path = join(testFolder(t), 'index');
  const files = new FailingFiles();
  const twin = await Twin.create(path, { env: files.env });
  twin.put(entryOf(1));
  twin.put(entryOf(2));
  await twin.journal.sync();
  files.canSync = false;
  twin.remove('page-1');
  await t.throwsAsync(twin.journal.sync(), { code: 'EIO' }, 'the name may still be on the medium');
  t.false(existsSync(path));
  t.true(twin.journal.isBroken);
  files.canSync = true;
  await twin.journal.rewrite();
  await twin.journal.sync();
  t.false(twin.journal.isBroken);
  t.deepEqual(await entriesIn(testFolder(t), readFileSync(path)), [entryOf(2)]);
  await twin.journal.close();
});

test('journal: a file with removed pages that cannot be deleted is tried again until it can', async (t) => {
  const path = join(testFolder(t), 'index');
  const files = new FailingFiles();
  const twin = await Twin.create(path, { env: files.env });
  twin.put(entryOf(1));
  await twin.journal.sync();
  Object.assign(files, { canSync: false, canDelete: false });
  twin.remove('page-1');
  await t.throwsAsync(twin.journal.sync(), { code: 'EIO' });
  t.true(existsSync(path));
  Object.assign(files, { canSync: true, canDelete: true });
  while (existsSync(path)) await new Promise((resolve) => setTimeout(resolve, 20));
  await t.throwsAsync(twin.journal.close(), { code: 'EIO' });
});

test('journal: removals that cannot be flushed while it is rewritten wait for that', async (t) => {
  const path = join(testFolder(t), 'index');
  const files = new FailingFiles();
  const twin = await Twin.create(path, { env: files.env });
  for (let page = 0; page < 2000; page++) twin.put(entryOf(page));
  await twin.journal.sync();
  const rewriting = twin.journal.rewrite();
  let failures = 1;
  files.isBad = (bytes) => Buffer.from(bytes).includes('page-7777') && failures-- > 0;
  twin.put(entryOf(7777));
  twin.remove('page-5');
  await twin.journal.sync();
  await rewriting;
  t.deepEqual(await entriesIn(testFolder(t), readFileSync(path)), twin.model.entries);
  await twin.journal.close();
});

test('journal: a write that fails while it is rewritten is mended by that', async (t) => {
  const path = join(testFolder(t), 'index');
  const files = new FailingFiles();
  const held = heldRewriting(files.env.files);
  const twin = await Twin.create(path, { env: { ...files.env, files: held.files } });
  for (let page = 0; page < 2000; page++) twin.put(entryOf(page));
  await twin.journal.flush();
  let isPlanted = true;
  files.isBad = (bytes) => isPlanted && Buffer.from(bytes).includes('page-7777');
  held.hold();
  const rewriting = twin.journal.rewrite();
  twin.put(entryOf(7777));
  await t.throwsAsync(twin.journal.flush(), { code: 'EIO' });
  isPlanted = false;
  held.release();
  twin.put(entryOf(8888));
  await rewriting;
  await twin.journal.flush();
  await twin.journal.close();
  const again = await Twin.open(path);
  t.deepEqual(again.model.entries, twin.model.entries);
  await again.journal.close();
});

test('journal: a rewriting that fails changes nothing, and is tried again later', async (t) => {
  const path = join(testFolder(t), 'index');
  const files = new FailingFiles();
  const twin = await Twin.create(path, { env: files.env, maxBytes: 200_000 });
  const random = (i: number) => (below: number) => (i * 7919) % below;
  let isPlanted = true;
  files.isBad = (bytes) => isPlanted && Buffer.from(bytes).includes('MCIX');
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

test('journal: where no rewriting succeeds, flushing fails before the limit is exceeded', async (t) => {
  const maxBytes = 200_000;
  const path = join(testFolder(t), 'index');
  const files = new FailingFiles();
  const twin = await Twin.create(path, { env: files.env, maxBytes });
  files.isBad = (bytes) => Buffer.from(bytes).includes('MCIX');
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

test('journal: closing says what was not written, and closes all the same', async (t) => {
  const path = join(testFolder(t), 'index');
  const files = new FailingFiles();
  const twin = await Twin.create(path, { env: files.env });
  files.isBad = (bytes) => Buffer.from(bytes).includes('page-1');
  twin.put(entryOf(1));
  await t.throwsAsync(twin.journal.close(), { code: 'EIO' });
  const again = await Twin.open(path);
  t.deepEqual(again.model.entries, []);
  await again.journal.close();
});

const isRoot = process.getuid?.() === 0;
const testAsRoot = unless(isRoot && process.platform === 'linux' ? '' : 'needs root for a tmpfs');

testAsRoot('journal: a full file system', async (t) => {
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
