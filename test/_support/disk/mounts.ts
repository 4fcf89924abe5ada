import { execFileSync, spawnSync } from 'node:child_process';
import { closeSync, ftruncateSync, mkdirSync, mkdtempSync, openSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';

/** An empty folder, removed at the end of the test. */
export function temporaryFolder(t: ExecutionContext): string {
  const path = mkdtempSync(join(tmpdir(), 'meshcache-disk-'));
  t.teardown(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** Reason why file systems cannot be mounted here; empty if they can. */
const refusal = whyNoMounts();

function whyNoMounts(): string {
  if (process.getuid?.() !== 0) return 'not root';
  const path = mkdtempSync(join(tmpdir(), 'meshcache-mount-'));
  try {
    const image = join(path, 'image');
    makeImage(image, 'ext4', 8);
    const mount = spawnSync('mount', ['-o', 'loop', image, path], { encoding: 'utf8' });
    if (mount.status !== 0) return `no loop mounts: ${mount.stderr?.trim().split('\n')[0] ?? 'no mount'}`;
    execFileSync('umount', [path]);
    return '';
  } catch (error) {
    return String(error).split('\n')[0] as string;
  } finally {
    rmSync(path, { recursive: true, force: true });
  }
}

/** Runs the test, or skips it if nothing can be mounted. */
export const withMounts = refusal === '' ? test : test.skip;
/** Suffix of the titles of tests that need mounts. */
export const mountSuffix = refusal === '' ? '' : ` (skipped: ${refusal})`;

/** A small file system of its own; unmounted at the end of the test. */
export function mounted(t: ExecutionContext, type: 'tmpfs' | 'ext4' | 'ext2', mib: number): string {
  const folder = temporaryFolder(t);
  const path = join(folder, 'mounted');
  mkdirSync(path);
  if (type === 'tmpfs') {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${mib}m`, 'tmpfs', path]);
  } else {
    const image = join(folder, 'image');
    makeImage(image, type, mib);
    execFileSync('mount', ['-o', 'loop', image, path]);
  }
  // ava runs the last teardown first, so the folder is unmounted before it is removed.
  t.teardown(() => spawnSync('umount', ['-l', path]));
  return path;
}

function makeImage(path: string, type: 'ext4' | 'ext2', mib: number): void {
  const fd = openSync(path, 'w');
  ftruncateSync(fd, mib * 2 ** 20);
  closeSync(fd);
  execFileSync(`mkfs.${type}`, ['-q', '-F', '-m', '0', path]);
}
