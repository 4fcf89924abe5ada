import { join } from 'node:path';
import type { FileStatus } from '../../base/environment/files.js';

const WRITABLE_BY_ALL = 0o002;

/**
 * Why a folder at `path` cannot hold a node's files, with what to do; an empty string if it can. Whoever may put files of theirs there could have a
 * node write over the target of a link, or read pages of theirs. So it belongs to the user of this process or to root, and not everybody may write to
 * it; a group may, as where Kubernetes sets `fsGroup`.
 */
export function distrustOfFolder(path: string, { isDirectory, isForeign, mode }: FileStatus): string {
  if (!isDirectory) return `${path} is no folder; give the path of one, which may be missing`;
  if (!isForeign && (mode & WRITABLE_BY_ALL) === 0) return '';
  return `${path} belongs to another user, or others may write to it; give a folder of this user, such as ${join(path, 'meshcache')}`;
}
