import { execFileSync, spawnSync } from 'node:child_process';
import {
  closeSync,
  ftruncateSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { until } from '../support.js';

/** An empty folder, removed at the end of the test. */
export function temporaryFolder(t: ExecutionContext): string {
  const path = mkdtempSync(join(tmpdir(), 'meshcache-disk-'));
  t.teardown(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** Reason why file systems cannot be mounted here; empty if they can. */
export const mountsMissing = whyNoMounts();

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
export const withMounts = mountsMissing === '' ? test : test.skip;
/** Suffix of the titles of tests that need mounts. */
export const mountSuffix = mountsMissing === '' ? '' : ` (skipped: ${mountsMissing})`;

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

/** Makes a mounted file system read-only. A process that is being started somewhere else may hold one of its files for a moment. */
export async function makeReadOnly(folder: string): Promise<void> {
  await until(() => spawnSync('mount', ['-o', 'remount,ro', folder]).status === 0);
}

const HUGE_PAGES_FILE = '/proc/sys/vm/nr_overcommit_hugepages';

/** Reason why no hugetlbfs can be mounted here; empty if one can. */
const hugeRefusal = mountsMissing || whyNoHugePages();

function whyNoHugePages(): string {
  try {
    writeFileSync(HUGE_PAGES_FILE, readFileSync(HUGE_PAGES_FILE));
    return readFileSync('/proc/filesystems', 'utf8').includes('hugetlbfs') ? '' : 'no hugetlbfs';
  } catch (error) {
    return String(error).split('\n')[0] as string;
  }
}

/** Runs the test, or skips it if no hugetlbfs can be mounted. */
export const withHugePages = hugeRefusal === '' ? test.serial : test.serial.skip;
/** Suffix of the titles of tests that need one. */
export const hugeSuffix = hugeRefusal === '' ? '' : ` (skipped: ${hugeRefusal})`;

/** A hugetlbfs without a limit of its own, on which the system allows so many huge pages beyond its present ones. */
export function mountedHuge(t: ExecutionContext, pagesCount: number): string {
  const path = join(temporaryFolder(t), 'huge');
  mkdirSync(path);
  const before = readFileSync(HUGE_PAGES_FILE, 'utf8');
  writeFileSync(HUGE_PAGES_FILE, String(Number(before) + pagesCount));
  t.teardown(() => writeFileSync(HUGE_PAGES_FILE, before));
  execFileSync('mount', ['-t', 'hugetlbfs', 'none', path]);
  t.teardown(() => spawnSync('umount', ['-l', path]));
  return path;
}

/** Makes a file with an empty file system. */
export function makeImage(path: string, type: 'ext4' | 'ext2', mib: number): void {
  const fd = openSync(path, 'w');
  ftruncateSync(fd, mib * 2 ** 20);
  closeSync(fd);
  execFileSync(`mkfs.${type}`, ['-q', '-F', '-m', '0', path]);
}
