import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { DiskStore } from '../../src/disk/disk-store.js';
import { silentEnv } from '../_support/disk/kill-support.js';
import { content } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const MIB = 2 ** 20;
const TOO_MUCH = 2 ** 50;
const NOBODY = 65_534;
const asRoot = unless(process.geteuid?.() === 0 ? '' : 'needs root');

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

test('disk, refused: a folder that everybody may write to, and a link in place of a file', async (t) => {
  const folder = folderFor(t);
  const shared = join(folder, 'shared');
  mkdirSync(shared);
  chmodSync(shared, 0o777);
  await t.throwsAsync(open(shared, 8 * MIB), {
    code: 'ERR_DISK',
    message: /others may write to it; give .*shared\/meshcache/,
  });
  t.deepEqual(readdirSync(shared), []);
  // Those of a group may, as where Kubernetes sets fsGroup.
  chmodSync(shared, 0o2775);
  await (await open(shared, 8 * MIB)).close();

  const victim = join(folder, 'victim');
  for (const name of ['pages', 'index', 'store.json.new', 'start.json.new']) {
    writeFileSync(victim, 'precious');
    const path = join(folder, name);
    mkdirSync(path);
    symlinkSync(victim, join(path, name));
    await open(path, 8 * MIB)
      .then((store) => store.close())
      .catch((error: unknown) => t.like(error, { code: 'ERR_DISK' }));
    t.is(readFileSync(victim, 'utf8'), 'precious', name);
  }
});

asRoot('disk, refused: a folder and files of another user', async (t) => {
  const path = join(folderFor(t), 'foreign');
  mkdirSync(path);
  chownSync(path, NOBODY, NOBODY);
  await t.throwsAsync(open(path, 8 * MIB), { code: 'ERR_DISK', message: /belongs to another user/ });
  t.deepEqual(readdirSync(path), []);
  chownSync(path, 0, 0);
  await (await open(path, 8 * MIB)).close();
  chownSync(join(path, 'pages'), NOBODY, NOBODY);
  await t.throwsAsync(open(path, 8 * MIB), { code: 'ERR_DISK', message: /pages belongs to another user/ });
});
