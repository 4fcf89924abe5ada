import { statSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { systemFiles } from '../../src/system/system-files.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
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
