import { join } from 'node:path';
import { type FileStatus, isWritableByAll } from '../../base/environment/files.js';

/** Why a folder cannot hold a node's files, and what to do. */
export interface FolderDistrust {
  readonly why: string;
  readonly advice: string;
}

/**
 * Why a folder at `path` cannot hold a node's files; undefined: it can. Whoever may put files of theirs there could
 * have a node write over the target of a link, or read pages of theirs. So it belongs to the user of this process or to
 * root, and not everybody may write to it; a group may, as where Kubernetes sets `fsGroup`.
 */
export function distrustOfFolder(path: string, status: FileStatus): FolderDistrust | undefined {
  if (!status.isDirectory) return { why: `${path} is no folder`, advice: 'give the path of one, which may be missing' };
  if (!status.isForeign && !isWritableByAll(status)) return undefined;
  return {
    why: `${path} belongs to another user, or others may write to it`,
    advice: `give a folder of this user, such as ${join(path, 'meshcache')}`,
  };
}
