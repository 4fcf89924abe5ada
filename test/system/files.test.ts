import { execFileSync } from 'node:child_process';
import { closeSync, constants, openSync, statSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
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
  for (const path of fifos) closeSync(openSync(path, constants.O_RDWR | constants.O_NONBLOCK));
  await until(() =>
    systemFiles.readFile(join(folder, 'file')).then(
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
