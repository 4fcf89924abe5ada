import { execFileSync } from 'node:child_process';
import { closeSync, constants as fileConstants, openSync, statSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { constants } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { type FileCaller, isStillRunning } from '../../src/base/environment/files.js';
import { systemFiles } from '../../src/system/files/system-files.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { until } from '../_support/support.js';
import { filesContract } from '../contract/files-contract.js';

filesContract(test, 'system files', (t) => ({ files: systemFiles, folder: temporaryFolder(t) }));

/** Alone while it runs: the mask is that of the process. */
test.serial('system files: folders are for this user alone, whatever the mask is', async (t) => {
  const folder = temporaryFolder(t);
  const before = process.umask();
  try {
    for (const umask of [0o000, 0o002, 0o007, 0o022, 0o077]) {
      process.umask(umask);
      const made = [
        join(folder, `${umask}`),
        join(folder, `${umask}`, 'inner'),
        join(folder, `alone-${umask}`),
      ] as const;
      await systemFiles.mkdir(made[1], { recursive: true });
      await systemFiles.mkdir(made[2]);
      for (const path of made) t.is(statSync(path).mode & 0o777, 0o700, path);
    }
  } finally {
    process.umask(before);
  }
});

/** Opening a FIFO that nobody writes to does not return. */
test('system files: a call that hangs ends, its folder fails at once until it has, and nothing else waits', async (t) => {
  const folder = temporaryFolder(t);
  const other = temporaryFolder(t);
  const fifos = Array.from({ length: 6 }, (_, i) => join(folder, `fifo-${i}`));
  for (const path of fifos) execFileSync('mkfifo', [path]);
  writeFileSync(join(folder, 'file'), 'here');
  const overdue = { code: 'ETIMEDOUT' };
  const hanging = fifos.map((path) => t.throwsAsync(systemFiles.open(path), overdue));
  // Node's own threads, and other folders.
  t.is((await readFile(join(folder, 'file'))).toString(), 'here');
  await systemFiles.writeFile(join(other, 'file'), 'there');
  t.is((await systemFiles.readFile(join(other, 'file'))).toString(), 'there');
  await Promise.all(hanging);
  await t.throwsAsync(systemFiles.readFile(join(folder, 'file')), overdue);
  t.throws(() => systemFiles.readFileSync(join(folder, 'file')), overdue);
  t.is((await systemFiles.readFile(join(other, 'file'))).toString(), 'there');
  for (const path of fifos) closeSync(openSync(path, fileConstants.O_RDWR | fileConstants.O_NONBLOCK));
  await until(() =>
    systemFiles.readFile(join(folder, 'file')).then(
      (bytes) => bytes.toString() === 'here',
      () => false,
    ),
  );
});

test('system files: a call that somebody else makes has the same deadline, and holds up the same calls', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'file');
  writeFileSync(path, 'here');
  const file = await systemFiles.open(path, { write: true });
  t.teardown(() => file.close());
  const view = new Uint8Array(new SharedArrayBuffer(4));
  const asked: unknown[] = [];
  const answering = (result: number): FileCaller => {
    const answer = (...[fd, bytes, position, state]: Parameters<FileCaller['readAt']>): Promise<number> => {
      asked.push(fd, bytes, position);
      Atomics.store(state, 0, 0);
      return Promise.resolve(result);
    };
    return { readAt: answer, writeAt: answer };
  };
  t.is(await file.read([view], 0, answering(3)), 3);
  t.is(await file.write([view], 8, answering(4)), 4);
  t.deepEqual(asked, [file.fd, view, 0, file.fd, view, 8]);
  await t.throwsAsync(file.write([view], 0, answering(-constants.errno.ENOSPC)), {
    code: 'ENOSPC',
    message: /no space/,
  });
  const failing = (): Promise<number> => {
    throw new TypeError('no such call');
  };
  await t.throwsAsync(file.read([view], 0, { readAt: failing, writeAt: failing }), { message: 'no such call' });
  // Memory that another thread does not see, and more than one view.
  t.is(await file.read([new Uint8Array(4)], 0, answering(1)), 4);
  t.is(await file.read([view, view], 0, answering(1)), 4);

  const answers: ((result: number) => void)[] = [];
  const hanging = (): Promise<number> => new Promise((resolve) => answers.push(resolve));
  const overdue = { code: 'ETIMEDOUT' };
  const error = await t.throwsAsync(file.read([view], 0, { readAt: hanging, writeAt: hanging }), overdue);
  t.true(isStillRunning(error));
  await t.throwsAsync(systemFiles.readFile(path), overdue);
  t.false(isStillRunning(await t.throwsAsync(file.write([view], 0, answering(4)), overdue)));
  for (const answer of answers) answer(4);
  await until(() =>
    systemFiles.readFile(path).then(
      (bytes) => bytes.toString() === 'here',
      () => false,
    ),
  );
});

test('system files: what is no regular file is not read, and not waited for', async (t) => {
  const fifo = join(temporaryFolder(t), 'fifo');
  execFileSync('mkfifo', [fifo]);
  for (const path of [fifo, '/dev/zero', '/dev/full']) {
    t.throws(() => systemFiles.readFileSync(path), { code: 'EFTYPE', message: new RegExp(path) });
    await t.throwsAsync(systemFiles.readFile(path), { code: 'EFTYPE' });
  }
  t.true((await systemFiles.readFile('/proc/self/status')).length > 0);
});

test('system files: calls that follow one another at once all end', async (t) => {
  const path = join(temporaryFolder(t), 'file');
  writeFileSync(path, 'x');
  const turns = async (): Promise<void> => {
    for (let i = 0; i < 500; i++) t.is((await systemFiles.status(path)).sizeBytes, 1);
  };
  await Promise.all([turns(), turns(), turns()]);
});
