import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { DiskStore } from '../../src/disk/disk-store.js';
import { silentEnv } from '../_support/disk/kill-support.js';
import { content } from '../_support/support.js';

const MIB = 2 ** 20;
const TOO_MUCH = 2 ** 50;

function folderFor(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-refused-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

const open = (path: string, maxBytes: number): Promise<DiskStore> =>
  DiskStore.open(path, maxBytes, { nodeId: 'refused', env: silentEnv });

test('disk, refused: a disk without room leaves neither files nor folders behind', async (t) => {
  const folder = folderFor(t);
  await t.throwsAsync(open(join(folder, 'a/b/c'), TOO_MUCH), { code: 'ERR_DISK', message: /more on its file system/ });
  t.deepEqual(readdirSync(folder), []);
});

test('disk, refused: what was in the folder stays', async (t) => {
  const folder = folderFor(t);
  writeFileSync(join(folder, 'mine'), 'x');
  await t.throwsAsync(open(folder, TOO_MUCH), { code: 'ERR_DISK' });
  t.deepEqual(readdirSync(folder), ['mine']);
  const foreign = join(folder, 'foreign');
  mkdirSync(foreign);
  writeFileSync(join(foreign, 'pages'), 'holiday');
  await t.throwsAsync(open(foreign, 8 * MIB), { code: 'ERR_DISK', message: /that is no store's/ });
  t.deepEqual(readdirSync(foreign), ['pages']);
  t.is(readFileSync(join(foreign, 'pages'), 'utf8'), 'holiday');
});

test('disk, refused: a store that cannot grow keeps its pages, and one in use its lock', async (t) => {
  const path = join(folderFor(t), 'store');
  const first = await open(path, 8 * MIB);
  first.put('page', content(1, 4096));
  await first.flush();
  await t.throwsAsync(open(path, 8 * MIB), { code: 'ERR_DISK', message: /is in use/ });
  t.true(existsSync(join(path, 'lock')));
  await first.close();
  await t.throwsAsync(open(path, TOO_MUCH), { code: 'ERR_DISK', message: /more on its file system/ });
  const again = await open(path, 8 * MIB);
  t.deepEqual(await again.get('page'), content(1, 4096));
  await again.close();
});
