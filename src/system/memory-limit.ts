import { readFileSync } from 'node:fs';
import { freemem, totalmem } from 'node:os';
import { join } from 'node:path';

/** Where the kernel describes the control groups of this process; tests use folders of their own. */
export interface ControlGroupPaths {
  /** The file with the groups of this process. */
  readonly own: string;
  /** Folder in which the groups are mounted. */
  readonly mount: string;
}

/** Memory in bytes. */
interface MemoryFigures {
  /** The most memory that this process can have. */
  readonly totalBytes: number;
  /** The memory that it can have now. */
  readonly freeBytes: number;
}

interface GroupFiles {
  readonly limit: string;
  readonly used: string;
  /** The line of `memory.stat` with file memory that the kernel can reclaim. */
  readonly reclaimable: string;
}

const DEFAULT_POOL_BYTES = 4 * 2 ** 30;
const SYSTEM_PATHS: ControlGroupPaths = { own: '/proc/self/cgroup', mount: '/sys/fs/cgroup' };
const VERSION_1: GroupFiles = {
  limit: 'memory.limit_in_bytes',
  used: 'memory.usage_in_bytes',
  reclaimable: 'total_inactive_file',
};
const VERSION_2: GroupFiles = { limit: 'memory.max', used: 'memory.current', reclaimable: 'inactive_file' };

/**
 * Returns the memory of this process: that of the machine, or of the smallest control group that contains it, such as
 * its container. Control groups of both versions count, including all parent groups.
 */
export function ownMemory(paths: ControlGroupPaths = SYSTEM_PATHS): MemoryFigures {
  let totalBytes = totalmem();
  let freeBytes = freemem();
  for (const { folder, files } of groupsOf(paths)) {
    const limitBytes = numberIn(join(folder, files.limit));
    // Without a limit, version 2 contains "max", and version 1 a number larger than any memory.
    if (limitBytes === undefined || limitBytes >= totalmem()) continue;
    totalBytes = Math.min(totalBytes, limitBytes);
    const usedBytes = numberIn(join(folder, files.used)) ?? 0;
    const reclaimableBytes = statIn(join(folder, 'memory.stat'), files.reclaimable);
    freeBytes = Math.min(freeBytes, Math.max(0, limitBytes - Math.max(0, usedBytes - reclaimableBytes)));
  }
  return { totalBytes, freeBytes };
}

/**
 * Returns the pool size for a node that a command starts without a configured size: the default, but no more than the
 * memory that the process can have.
 */
export function commandPoolBytes(paths: ControlGroupPaths = SYSTEM_PATHS): number {
  return Math.min(DEFAULT_POOL_BYTES, ownMemory(paths).totalBytes);
}

/** Yields the groups of this process, each with all its parents. */
function* groupsOf({ own, mount }: ControlGroupPaths): Generator<{ folder: string; files: GroupFiles }> {
  for (const line of (textOf(own) ?? '').split('\n')) {
    const [, number, controllers, path] = /^(\d+):([^:]*):(\/.*)$/.exec(line) ?? [];
    if (path === undefined || controllers === undefined) continue;
    const isVersion2 = number === '0' && controllers === '';
    if (!isVersion2 && !controllers.split(',').includes('memory')) continue;
    const files = isVersion2 ? VERSION_2 : VERSION_1;
    // If both versions are mounted, version 2 has its own folder and no memory controller.
    const root = isVersion2 ? mount : join(mount, 'memory');
    // In a container, the path may be that of the machine; the container's own group is then the root of the mount.
    const names = path.split('/').filter((name) => name !== '' && name !== '..');
    for (let depth = names.length; depth >= 0; depth--) {
      yield { folder: join(root, ...names.slice(0, depth)), files };
    }
  }
}

function numberIn(path: string): number | undefined {
  const text = textOf(path)?.trim();
  return text !== undefined && /^\d+$/.test(text) ? Number(text) : undefined;
}

function statIn(path: string, name: string): number {
  const line = textOf(path)
    ?.split('\n')
    .find((some) => some.startsWith(`${name} `));
  return line === undefined ? 0 : Number(line.slice(name.length + 1));
}

function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return undefined;
  }
}
