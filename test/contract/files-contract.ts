import { join } from 'node:path';
import type { ExecutionContext, TestFn } from 'ava';
import type { Files, OpenFile, OpenOptions } from '../../src/base/environment/files.js';
import { content } from '../_support/support.js';

/** An empty folder, and the files that it is in. */
export interface FilesPlace {
  readonly files: Files;
  readonly folder: string;
}

/** What all implementations of {@link Files} have in common; `begin` gives each test a place of its own. */
export function filesContract(test: TestFn, name: string, begin: (t: ExecutionContext) => FilesPlace): void {
  test(`${name}: a file has the bytes that were written last`, async (t) => {
    const { files, folder } = begin(t);
    const path = join(folder, 'file');
    const bytes = content(1, 100_000);
    await files.writeFile(path, bytes);
    t.deepEqual(await files.readFile(path), Buffer.from(bytes));
    t.deepEqual(files.readFileSync(path), Buffer.from(bytes));
    await files.writeFile(path, 'short, with ü');
    t.is((await files.readFile(path)).toString(), 'short, with ü');
    await files.writeFile(path, '');
    t.is((await files.readFile(path)).length, 0);
  });

  test(`${name}: bytes that were read or written are the caller's again`, async (t) => {
    const { files, folder } = begin(t);
    const path = join(folder, 'file');
    const bytes = new Uint8Array(10).fill(1);
    await files.writeFile(path, bytes);
    bytes.fill(2);
    (await files.readFile(path)).fill(3);
    files.readFileSync(path).fill(4);
    await using(files, path, { write: true }, async (file) => {
      const more = new Uint8Array(10).fill(1);
      await writeAll(file, [more], 10);
      more.fill(2);
    });
    t.deepEqual(await files.readFile(path), Buffer.alloc(20, 1));
  });

  test(`${name}: what is not there is ENOENT`, async (t) => {
    const { files, folder } = begin(t);
    const path = join(folder, 'missing');
    await fails(t, 'ENOENT', () => files.open(path));
    await fails(t, 'ENOENT', () => files.open(path, { write: true }));
    await fails(t, 'ENOENT', () => files.open(path, { directory: true }));
    await fails(t, 'ENOENT', () => files.readFile(path));
    await fails(t, 'ENOENT', async () => files.readFileSync(path));
    await fails(t, 'ENOENT', () => files.status(path));
    await fails(t, 'ENOENT', async () => files.statusSync(path));
    await fails(t, 'ENOENT', () => files.freeBytes(path));
    await fails(t, 'ENOENT', () => files.readdir(path));
    await fails(t, 'ENOENT', () => files.readdir(path, { recursive: true }));
    await fails(t, 'ENOENT', () => files.rename(path, join(folder, 'other')));
    await fails(t, 'ENOENT', () => files.rm(path));
    await fails(t, 'ENOENT', () => files.rm(path, { recursive: true }));
    await fails(t, 'ENOENT', () => files.readlink(path));
    t.deepEqual(await files.readdir(folder), []);
  });

  test(`${name}: nothing is made below a folder that is not there`, async (t) => {
    const { files, folder } = begin(t);
    const path = join(folder, 'missing', 'x');
    await files.writeFile(join(folder, 'file'), 'file');
    await fails(t, 'ENOENT', () => files.open(path, { write: true, create: true }));
    await fails(t, 'ENOENT', () => files.writeFile(path, 'text'));
    await fails(t, 'ENOENT', () => files.mkdir(path));
    await fails(t, 'ENOENT', () => files.symlink('target', path));
    await fails(t, 'ENOENT', () => files.rename(join(folder, 'file'), path));
    t.deepEqual(await files.readdir(folder), ['file']);
  });

  test(`${name}: what is there already is EEXIST`, async (t) => {
    const { files, folder } = begin(t);
    const { file, directory } = await fileAndDirectory({ files, folder });
    for (const path of [file, directory]) {
      await fails(t, 'EEXIST', () => files.mkdir(path));
      await fails(t, 'EEXIST', () => files.symlink('target', path));
      await fails(t, 'EEXIST', () => files.open(path, { write: true, create: true, exclusive: true }));
    }
    await fails(t, 'EEXIST', () => files.mkdir(file, { recursive: true }));
    await files.mkdir(directory, { recursive: true });
    await files.symlink('nowhere', join(folder, 'link'));
    await fails(t, 'EEXIST', () => files.open(join(folder, 'link'), { write: true, create: true, exclusive: true }));
  });

  test(`${name}: a directory in the place of a file is EISDIR`, async (t) => {
    const { files, folder } = begin(t);
    const { file, directory } = await fileAndDirectory({ files, folder });
    await fails(t, 'EISDIR', () => files.open(directory, { write: true }));
    await fails(t, 'EISDIR', () => files.open(directory, { write: true, create: true }));
    await fails(t, 'EISDIR', () => files.readFile(directory));
    await fails(t, 'EISDIR', async () => files.readFileSync(directory));
    await fails(t, 'EISDIR', () => files.writeFile(directory, 'text'));
    await fails(t, 'EISDIR', () => files.rm(directory));
    await fails(t, 'EISDIR', () => files.rm(directory, { force: true }));
    await fails(t, 'EISDIR', () => files.rename(file, directory));
  });

  test(`${name}: a file in the place of a directory is ENOTDIR`, async (t) => {
    const { files, folder } = begin(t);
    const { file, directory } = await fileAndDirectory({ files, folder });
    const below = join(file, 'x');
    await fails(t, 'ENOTDIR', () => files.open(file, { directory: true }));
    await fails(t, 'ENOTDIR', () => files.open(below));
    await fails(t, 'ENOTDIR', () => files.readFile(below));
    await fails(t, 'ENOTDIR', () => files.writeFile(below, 'text'));
    await fails(t, 'ENOTDIR', () => files.status(below));
    await fails(t, 'ENOTDIR', () => files.readdir(file));
    await fails(t, 'ENOTDIR', () => files.mkdir(below));
    await fails(t, 'ENOTDIR', () => files.mkdir(below, { recursive: true }));
    await fails(t, 'ENOTDIR', () => files.rm(below));
    await fails(t, 'ENOTDIR', () => files.rename(directory, file));
    t.is((await files.readFile(file)).toString(), 'file');
  });

  test(`${name}: a directory can be opened, to hold it`, async (t) => {
    const { files, folder } = begin(t);
    await using(files, folder, { directory: true }, async (directory) => {
      t.true((await directory.status()).isDirectory);
    });
  });

  test(`${name}: renaming takes the place of a file, which goes on for whoever has it open`, async (t) => {
    const { files, folder } = begin(t);
    const [from, to] = [join(folder, 'from'), join(folder, 'to')];
    await files.writeFile(from, 'new');
    await files.writeFile(to, 'old');
    await using(files, from, { write: true }, (renamed) =>
      using(files, to, { write: true }, async (replaced) => {
        await files.rename(from, to);
        t.deepEqual(await files.readdir(folder), ['to']);
        await writeAll(renamed, [Buffer.from('er')], 3);
        await writeAll(replaced, [Buffer.from('er')], 3);
        t.is((await files.readFile(to)).toString(), 'newer');
        t.is(await textOf(replaced), 'older');
      }),
    );
    await files.rename(to, to);
    t.is((await files.readFile(to)).toString(), 'newer');
  });

  test(`${name}: a directory is renamed with what is in it, and not over one that is not empty`, async (t) => {
    const { files, folder } = begin(t);
    const [from, to] = [join(folder, 'from'), join(folder, 'to')];
    for (const path of [from, to]) {
      await files.mkdir(path);
      await files.writeFile(join(path, 'file'), path);
    }
    await fails(t, 'ENOTEMPTY', () => files.rename(from, to));
    await files.rm(join(to, 'file'));
    await files.rename(from, to);
    t.deepEqual(await files.readdir(folder), ['to']);
    t.is((await files.readFile(join(to, 'file'))).toString(), from);
  });

  test(`${name}: what is removed goes on for whoever has it open`, async (t) => {
    const { files, folder } = begin(t);
    const path = join(folder, 'file');
    await files.writeFile(path, 'text');
    await using(files, path, { write: true }, async (file) => {
      await files.rm(path);
      await fails(t, 'ENOENT', () => files.status(path));
      await writeAll(file, [Buffer.from('s')], 4);
      await files.writeFile(path, 'another');
      t.is(await textOf(file), 'texts');
    });
    t.is((await files.readFile(path)).toString(), 'another');
  });

  test(`${name}: removing recursively, and by force what may be missing`, async (t) => {
    const { files, folder } = begin(t);
    await files.mkdir(join(folder, 'a', 'b', 'c'), { recursive: true });
    await files.writeFile(join(folder, 'a', 'file'), '');
    await files.writeFile(join(folder, 'a', 'b', 'c', 'file'), '');
    await files.writeFile(join(folder, 'kept'), 'kept');
    await files.symlink(join(folder, 'kept'), join(folder, 'a', 'link'));
    await files.rm(join(folder, 'a'), { recursive: true });
    t.deepEqual(await files.readdir(folder), ['kept']);
    await files.rm(join(folder, 'a'), { force: true });
    await files.rm(join(folder, 'a'), { recursive: true, force: true });
    await files.rm(join(folder, 'kept'), { recursive: true, force: true });
    t.deepEqual(await files.readdir(folder), []);
  });

  test(`${name}: a symbolic link has any text, and leads to what is there`, async (t) => {
    const { files, folder } = begin(t);
    const { file, directory } = await fileAndDirectory({ files, folder });
    const link = join(folder, 'link');
    await files.symlink('node-ü of nowhere', link);
    t.is(await files.readlink(link), 'node-ü of nowhere');
    await fails(t, 'ENOENT', () => files.status(link));
    await fails(t, 'ENOENT', () => files.readFile(link));
    t.deepEqual((await files.readdir(folder)).sort(), ['directory', 'file', 'link']);
    await files.rename(link, join(folder, 'renamed'));
    t.is(await files.readlink(join(folder, 'renamed')), 'node-ü of nowhere');

    await files.symlink(file, link);
    t.true((await files.status(link)).isFile);
    t.is((await files.readFile(link)).toString(), 'file');
    // Whoever may write to a folder could have put a link there, to a file that only this user may write.
    await fails(t, 'ELOOP', () => files.writeFile(link, 'other'));
    await fails(t, 'ELOOP', () => files.open(link, { write: true }));
    await fails(t, 'ELOOP', () => files.open(link, { write: true, create: true }));
    await files.rm(link);
    t.is((await files.readFile(file)).toString(), 'file');

    await files.symlink(directory, link);
    t.true((await files.status(link)).isDirectory);
    await files.writeFile(join(link, 'inside'), 'inside');
    t.is((await files.readFile(join(directory, 'inside'))).toString(), 'inside');
    await files.rm(link, { recursive: true });
    t.deepEqual(await files.readdir(directory), ['inside']);

    await fails(t, 'EINVAL', () => files.readlink(file));
    await fails(t, 'EINVAL', () => files.readlink(directory));
  });

  test(`${name}: reads begin at their position, fill the views in turn, and end with the file`, async (t) => {
    const { files, folder } = begin(t);
    const path = join(folder, 'file');
    const bytes = content(2, 1000);
    await files.writeFile(path, bytes);
    await using(files, path, {}, async (file) => {
      const views = [new Uint8Array(100), new Uint8Array(0), new Uint8Array(1), new Uint8Array(399)];
      t.is(await file.read(views, 300), 500);
      t.deepEqual(Buffer.concat(views), Buffer.from(bytes.subarray(300, 800)));
      const target = new Uint8Array(100).fill(7);
      t.is(await file.read([target.subarray(0, 50), target.subarray(50)], 940), 60);
      t.deepEqual(target.subarray(0, 60), bytes.subarray(940));
      t.deepEqual(target.subarray(60), new Uint8Array(40).fill(7));
      t.is(await file.read([target], 1000), 0);
      t.is(await file.read([target], 123_456), 0);
      t.is(await file.read([target.subarray(0, 0)], 0), 0);
      // Reads of one time do not move one another's position.
      const all = await Promise.all(
        Array.from({ length: 20 }, async (_, i) => {
          const part = new Uint8Array(50);
          t.is(await file.read([part], i * 50), 50);
          return part;
        }),
      );
      t.deepEqual(Buffer.concat(all), Buffer.from(bytes));
    });
  });

  test(`${name}: writes begin at their position, and what is skipped is zeros`, async (t) => {
    const { files, folder } = begin(t);
    const path = join(folder, 'file');
    const bytes = content(3, 1000);
    await using(files, path, { write: true, create: true }, async (file) => {
      await writeAll(file, [bytes.subarray(0, 10), bytes.subarray(10, 10), bytes.subarray(10, 600)], 5000);
      t.is((await file.status()).sizeBytes, 5600);
      await Promise.all(Array.from({ length: 20 }, (_, i) => writeAll(file, [bytes.subarray(i, i + 1)], 100 + i)));
      const expected = Buffer.alloc(5600);
      expected.set(bytes.subarray(0, 20), 100);
      expected.set(bytes.subarray(0, 600), 5000);
      t.deepEqual(await files.readFile(path), expected);
      await writeAll(file, [bytes], 5100);
      t.is((await file.status()).sizeBytes, 6100);
      await file.datasync();
      const seen = new Uint8Array(1000);
      await using(files, path, {}, (other) => other.read([seen], 5100));
      t.deepEqual(seen, bytes);
    });
  });

  test(`${name}: a file that is made is for this user alone, whatever the umask`, async (t) => {
    const { files, folder } = begin(t);
    const path = join(folder, 'file');
    await files.writeFile(path, 'made');
    t.is((await files.status(path)).mode & 0o777, 0o600);
  });

  test(`${name}: a file is cut, and lengthened by zeros`, async (t) => {
    const { files, folder } = begin(t);
    const path = join(folder, 'file');
    await files.writeFile(path, '0123456789');
    await using(files, path, { write: true }, async (file) => {
      await file.truncate(4);
      t.is((await files.readFile(path)).toString(), '0123');
      await file.truncate(6);
      t.is((await files.readFile(path)).toString(), '0123\0\0');
      await file.truncate(0);
      t.is((await file.status()).sizeBytes, 0);
    });
  });

  test(`${name}: a file is opened as it is, made, or emptied, as is asked for`, async (t) => {
    const { files, folder } = begin(t);
    const path = join(folder, 'file');
    await using(files, path, { write: true, create: true, mode: 0o600 }, async (file) => {
      t.is((await file.status()).mode, 0o600);
      await writeAll(file, [Buffer.from('text')], 0);
    });
    await using(files, path, { write: true, create: true, mode: 0o640 }, async (file) => {
      t.is((await file.status()).mode, 0o600);
      t.is(await textOf(file), 'text');
    });
    await using(files, path, {}, async (file) => {
      await fails(t, 'EBADF', () => file.write([Buffer.from('x')], 0));
      t.is(await textOf(file), 'text');
    });
    await using(files, path, { write: true, truncate: true }, async (file) => t.is(await textOf(file), ''));
    const made = join(folder, 'exclusive');
    await using(files, made, { write: true, create: true, exclusive: true }, async (file) => {
      await writeAll(file, [Buffer.from('mine')], 0);
    });
    t.is((await files.readFile(made)).toString(), 'mine');
  });

  test(`${name}: of several that make a file for themselves one does`, async (t) => {
    const { files, folder } = begin(t);
    const options = { write: true, create: true, exclusive: true };
    const outcomes = await Promise.allSettled(
      Array.from({ length: 10 }, () => files.open(join(folder, 'file'), options)),
    );
    const made = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
    t.is(made.length, 1);
    await Promise.all(made.map((file) => file.close()));
  });

  test(`${name}: closed is closed, also twice, when what was under way has ended`, async (t) => {
    const { files, folder } = begin(t);
    const path = join(folder, 'file');
    const file = await files.open(path, { write: true, create: true });
    const bytes = content(5, 100_000);
    await writeAll(file, [bytes], 0);
    const target = new Uint8Array(bytes.length);
    const reading = file.read([target], 0);
    await file.close();
    t.is(await reading, bytes.length);
    t.deepEqual(target, bytes);
    await file.close();
    await fails(t, 'EBADF', () => file.read([new Uint8Array(1)], 0));
    await fails(t, 'EBADF', () => file.write([new Uint8Array(1)], 0));
    await fails(t, 'EBADF', () => file.truncate(1));
    await fails(t, 'EBADF', () => file.datasync());
    await fails(t, 'EBADF', () => file.status());
  });

  test(`${name}: the status says what is there and what it takes`, async (t) => {
    const { files, folder } = begin(t);
    const { file: path, directory } = await fileAndDirectory({ files, folder });
    const { isFile, isDirectory } = await files.status(directory);
    t.deepEqual({ isFile, isDirectory }, { isFile: false, isDirectory: true });
    await using(files, path, { write: true }, async (file) => {
      await file.truncate(2 ** 30);
      const sparse = await file.status();
      t.true(sparse.isFile);
      t.false(sparse.isDirectory);
      t.is(sparse.sizeBytes, 2 ** 30);
      t.true(sparse.allocatedBytes < 2 ** 20, `${sparse.allocatedBytes} bytes`);
      await writeAll(file, [content(4, 2 ** 20)], 2 ** 20);
      await file.datasync();
      t.true((await file.status()).allocatedBytes >= 2 ** 20);
      t.deepEqual(await files.status(path), await file.status());
      t.deepEqual(files.statusSync(path), await file.status());
    });
    t.true((await files.freeBytes(folder)) > 0);
  });

  test(`${name}: names of a directory, and paths of all below it`, async (t) => {
    const { files, folder } = begin(t);
    await files.mkdir(join(folder, 'a', 'b'), { recursive: true });
    await files.mkdir(join(folder, 'empty'));
    for (const path of ['x', join('a', 'y'), join('a', 'b', 'z')]) await files.writeFile(join(folder, path), path);
    t.deepEqual((await files.readdir(folder)).sort(), ['a', 'empty', 'x']);
    t.deepEqual((await files.readdir(folder, { recursive: true })).sort(), [
      'a',
      join('a', 'b'),
      join('a', 'b', 'z'),
      join('a', 'y'),
      'empty',
      'x',
    ]);
  });

  test(`${name}: disk space is given to a file, or the error says that this cannot be done`, async (t) => {
    const { files, folder } = begin(t);
    const path = join(folder, 'file');
    await files.writeFile(path, 'kept');
    await using(files, path, { write: true }, async (file) => {
      try {
        await file.reserve(2 ** 20);
      } catch (error) {
        t.regex((error as NodeJS.ErrnoException).code ?? '', /^(EOPNOTSUPP|ENOSYS)$/);
        t.log((error as Error).message);
        return;
      }
      const { sizeBytes, allocatedBytes } = await file.status();
      t.is(sizeBytes, 2 ** 20);
      t.true(allocatedBytes >= 2 ** 20);
      const bytes = await files.readFile(path);
      t.deepEqual(bytes, Buffer.concat([Buffer.from('kept'), Buffer.alloc(2 ** 20 - 4)]));
      await file.reserve(4096);
      t.is((await file.status()).sizeBytes, 2 ** 20);
    });
  });

  test(`${name}: past the cache, or EINVAL`, async (t) => {
    const { files, folder } = begin(t);
    try {
      await using(files, join(folder, 'file'), { write: true, create: true, direct: true }, async (file) => {
        t.true((await file.status()).isFile);
      });
    } catch (error) {
      t.is((error as NodeJS.ErrnoException).code, 'EINVAL');
    }
  });
}

async function fileAndDirectory({ files, folder }: FilesPlace): Promise<{ file: string; directory: string }> {
  const [file, directory] = [join(folder, 'file'), join(folder, 'directory')];
  await files.writeFile(file, 'file');
  await files.mkdir(directory);
  return { file, directory };
}

/** Errors are as the system's: the code is a field, and the message begins with it, as users see it. */
async function fails(t: ExecutionContext, code: string, work: () => Promise<unknown>): Promise<void> {
  const error = await t.throwsAsync<NodeJS.ErrnoException>(work, undefined, `expected: ${code}`);
  t.is(error?.code, code, error?.message);
  // Of a file that is closed Node says just that.
  if (code !== 'EBADF') t.regex(error?.message ?? '', new RegExp(`^${code}: `));
}

async function using<T>(
  files: Files,
  path: string,
  options: OpenOptions,
  work: (file: OpenFile) => Promise<T>,
): Promise<T> {
  const file = await files.open(path, options);
  try {
    return await work(file);
  } finally {
    await file.close();
  }
}

async function writeAll(file: OpenFile, views: readonly Uint8Array[], position: number): Promise<void> {
  let rest = Buffer.concat(views);
  let at = position;
  while (rest.length > 0) {
    const written = await file.write(at === position ? views : [rest], at);
    if (written === 0) throw new Error('nothing was written');
    rest = rest.subarray(written);
    at += written;
  }
}

async function textOf(file: OpenFile): Promise<string> {
  const bytes = Buffer.alloc((await file.status()).sizeBytes);
  await file.read([bytes], 0);
  return bytes.toString();
}
