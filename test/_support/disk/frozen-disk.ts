import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { closeSync, ftruncateSync, mkdirSync, openSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { makeImage, mounted, mountsMissing, temporaryFolder } from './mounts.js';

/** Reason why no disk can be frozen here; empty if one can. */
export const frozenMissing = mountsMissing || (spawnSync('fsfreeze', ['--version']).status === 0 ? '' : 'no fsfreeze');

const OUTER_MIB = 160;
const DISK_MIB = 112;
/** The file system ends before its device, so that something can be written to the device alone. */
const FILE_SYSTEM_MIB = 96;

/**
 * What the kernel does not finish: `writes` (the file system is frozen: whatever changes it waits, and reads go on), or
 * everything that is not in the system's cache (`device`: the device below the file system completes nothing).
 */
export type Freezing = 'writes' | 'device';

/**
 * A folder on a file system of its own that the kernel can freeze: its calls cannot be interrupted then, not even by
 * SIGKILL.
 */
export interface FrozenDisk {
  readonly path: string;
  freeze(how: Freezing): void;
  thaw(): void;
}

/**
 * Makes an ext4 on a loop device whose file lies on another ext4. When the outer one is frozen, a write to the device
 * waits, and everything that comes after it. Both are unmounted at the end of the test.
 */
export function frozenDisk(t: ExecutionContext): FrozenDisk {
  const outer = mounted(t, 'ext4', OUTER_MIB);
  const image = join(outer, 'image');
  makeImage(image, 'ext4', FILE_SYSTEM_MIB);
  const fd = openSync(image, 'r+');
  ftruncateSync(fd, DISK_MIB * 2 ** 20);
  closeSync(fd);
  const device = execFileSync('losetup', ['--find', '--show', image], { encoding: 'utf8' }).trim();
  t.teardown(() => spawnSync('losetup', ['--detach', device]));
  const inner = join(temporaryFolder(t), 'frozen');
  mkdirSync(inner);
  execFileSync('mount', [device, inner]);
  t.teardown(() => spawnSync('umount', ['-l', inner]));
  const guard = thawAtTheEnd([outer, inner]);
  let frozen: string | undefined;
  const thaw = (): void => {
    if (frozen !== undefined) execFileSync('fsfreeze', ['--unfreeze', frozen]);
    frozen = undefined;
  };
  t.teardown(() => void guard.stdin?.end());
  t.teardown(thaw);
  return {
    path: join(inner, 'disk'),
    freeze(how) {
      frozen = how === 'writes' ? inner : outer;
      execFileSync('fsfreeze', ['--freeze', frozen]);
      if (how === 'device') jam(device);
    },
    thaw,
  };
}

/** A process that thaws the file systems when this one has ended, however it ends: nobody else could unmount them. */
function thawAtTheEnd(paths: readonly string[]): ChildProcess {
  const script = 'cat > /dev/null; for path; do timeout 5 fsfreeze --unfreeze "$path"; done';
  const guard = spawn('sh', ['-c', script, 'sh', ...paths], { stdio: ['pipe', 'ignore', 'ignore'], detached: true });
  guard.unref();
  (guard.stdin as unknown as Socket).unref();
  return guard;
}

/**
 * Writes behind the file system. The write waits for the outer file system, and all others on the device wait for it.
 */
function jam(device: string): void {
  const to = [`of=${device}`, 'oflag=direct', 'bs=4096', 'count=1', `seek=${(FILE_SYSTEM_MIB + 8) * 256}`];
  spawn('dd', ['if=/dev/zero', ...to], { stdio: 'ignore' }).unref();
  const end = performance.now() + 10_000;
  // The write has begun when it waits in the kernel.
  while (performance.now() < end) {
    const { stdout } = spawnSync('ps', ['-eo', 'stat,args'], { encoding: 'utf8' });
    if (stdout.split('\n').some((line) => line.startsWith('D') && line.includes(`of=${device}`))) return;
  }
  throw new Error(`nothing waits for ${device}`);
}
