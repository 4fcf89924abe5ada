import { lstatSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** The facts that determine where the socket is. */
export interface RuntimeFolderParts {
  /** `XDG_RUNTIME_DIR` of the environment. */
  readonly runtimeFolder?: string | undefined;
  /** Effective user id. */
  readonly uid: number;
}

/**
 * Returns the default path of a node's client socket, where `meshcache node` creates it and clients look for it. It is
 * in the user's runtime folder as set by systemd, in /run for root, or else in a folder of the user in /tmp. The n-th
 * node of a user has `node-<n>.sock`.
 */
export function defaultClientSocket({ runtimeFolder, uid }: RuntimeFolderParts, nth = 1): string {
  const name = nth === 1 ? 'node.sock' : `node-${nth}.sock`;
  if (runtimeFolder !== undefined && runtimeFolder !== '') return join(runtimeFolder, 'meshcache', name);
  return uid === 0 ? join('/run/meshcache', name) : join(`/tmp/meshcache-${uid}`, name);
}

/** The facts of this process. */
export function ownRuntimeFolder(): RuntimeFolderParts {
  return { runtimeFolder: process.env.XDG_RUNTIME_DIR, uid: process.geteuid?.() ?? 0 };
}

const WRITABLE_BY_OTHERS = 0o022;
const ROOT_UID = 0;

/**
 * Returns why the socket at `path` may have been put there by another user, who could answer with pages of their own.
 * Returns an empty string if that is impossible, or if the path is not in the default folder: a caller who names a path
 * vouches for it.
 *
 * In /tmp, anyone can create the folder of a user who has none yet. Therefore, if others may write into the parent
 * folder, the folder itself must belong to the user or to root, and be closed to others. Others cannot replace such a
 * folder, because /tmp is sticky.
 */
export function distrustOf(path: string, parts: RuntimeFolderParts): string {
  const folder = dirname(path);
  if (folder !== dirname(defaultClientSocket(parts))) return '';
  const isOwn = (uid: number): boolean => uid === parts.uid || uid === ROOT_UID;
  const parent = statSync(dirname(folder), { throwIfNoEntry: false });
  const found = lstatSync(folder, { throwIfNoEntry: false });
  if (parent === undefined || found === undefined) return '';
  if (isOwn(parent.uid) && (parent.mode & WRITABLE_BY_OTHERS) === 0) return '';
  if (!found.isDirectory()) return `${folder} is not a folder`;
  if (!isOwn(found.uid)) return `${folder} belongs to user ${found.uid}, not to user ${parts.uid}`;
  if ((found.mode & WRITABLE_BY_OTHERS) !== 0) return `other users may write into ${folder}; it must have mode 0700`;
  return '';
}
