import type { FileStatus } from '../../../base/environment/files.js';
import { systemError } from '../kernel/system-error.js';
import type { FileContent } from './file-content.js';

const TEXTS: Readonly<Record<string, string>> = {
  ENOENT: 'no such file or directory',
  EEXIST: 'file already exists',
  EISDIR: 'illegal operation on a directory',
  ENOTDIR: 'not a directory',
  ENOTEMPTY: 'directory not empty',
  EINVAL: 'invalid argument',
  EBADF: 'bad file descriptor',
  ENOSPC: 'no space left on device',
  EROFS: 'read-only file system',
  EIO: 'i/o error',
  ELOOP: 'too many symbolic links encountered',
  ENXIO: 'no such device or address',
  EADDRINUSE: 'address already in use',
  ECONNREFUSED: 'connection refused',
};

/** An error like those of Node's file functions: `ENOENT: no such file or directory, open '/x'`. */
export function fileError(code: string, call: string, path: string, to?: string): NodeJS.ErrnoException {
  const where = to === undefined ? `'${path}'` : `'${path}' -> '${to}'`;
  return systemError(code, `${code}: ${TEXTS[code]}, ${call} ${where}`, { syscall: call, path });
}

/** A server that listens on a path. */
export interface PathServer {
  /** Null when the server does not listen. */
  address(): object | string | null;
}

/** A file, directory, link or socket. */
type Inode =
  | { readonly kind: 'file'; mode: number; readonly content: FileContent }
  | { readonly kind: 'directory'; mode: number; readonly entries: Map<string, Inode> }
  | { readonly kind: 'link'; readonly target: string }
  | { readonly kind: 'socket'; readonly server: PathServer };

export type FileInode = Extract<Inode, { kind: 'file' }>;
export type DirectoryInode = Extract<Inode, { kind: 'directory' }>;

/** A place in a directory, whether or not something is there. */
export interface Place {
  readonly directory: DirectoryInode;
  readonly name: string;
  readonly inode: Inode | undefined;
}

interface Change {
  readonly atMs: number;
  undo(): void;
}

/** Permission bits of new directories. */
export const DIRECTORY_MODE = 0o755;
const DIRECTORY_BYTES = 4096;
const LINKS_MAX_COUNT = 40;
/** Milliseconds after which changes of names reach the disk without a flush, in their order. */
const COMMIT_MS = 5_000;

/** The names of a file system. Changes reach the disk in their order; a crash undoes the last ones. */
export class FileTree {
  readonly root: DirectoryInode = { kind: 'directory', mode: 0o755, entries: new Map([['tmp', emptyDirectory()]]) };
  #changes: Change[] = [];

  /** The inode at a path, with symbolic links followed. Throws with ENOENT, ENOTDIR or ELOOP. */
  find(path: string, call: string): Inode {
    const { inode } = this.place(path, call, { follows: true });
    if (inode === undefined) throw fileError('ENOENT', call, path);
    return inode;
  }

  /** The place at a path, whose directory must exist. A link at its end is followed only with `follows`. */
  place(path: string, call: string, { follows = false }: { readonly follows?: boolean } = {}): Place {
    let directory = this.root;
    const trail: DirectoryInode[] = [];
    const names = namesOf(path);
    let links = 0;
    for (;;) {
      const name = names.shift();
      if (name === undefined) return { directory, name: '', inode: directory };
      if (name === '..') {
        directory = trail.pop() ?? this.root;
        continue;
      }
      const inode = directory.entries.get(name);
      const isLast = names.length === 0;
      if (inode?.kind === 'link' && (follows || !isLast)) {
        if (++links > LINKS_MAX_COUNT) throw fileError('ELOOP', call, path);
        names.unshift(...namesOf(inode.target));
        if (inode.target.startsWith('/')) {
          directory = this.root;
          trail.length = 0;
        }
        continue;
      }
      if (isLast) return { directory, name, inode };
      if (inode === undefined) throw fileError('ENOENT', call, path);
      if (inode.kind !== 'directory') throw fileError('ENOTDIR', call, path);
      trail.push(directory);
      directory = inode;
    }
  }

  set({ directory, name }: Place, inode: Inode | undefined, nowMs: number): void {
    const { entries } = directory;
    const before = entries.get(name);
    if (inode === undefined) entries.delete(name);
    else entries.set(name, inode);
    this.#changed(nowMs, () => {
      if (before === undefined) entries.delete(name);
      else entries.set(name, before);
    });
  }

  rename(from: string, to: string, nowMs: number): void {
    const source = this.place(from, 'rename');
    const target = this.place(to, 'rename');
    const { inode } = source;
    if (inode === undefined || source.name === '') throw fileError('ENOENT', 'rename', from, to);
    if (inode === target.inode) return;
    if (inode.kind === 'directory') {
      if (isWithin(inode, target.directory)) throw fileError('EINVAL', 'rename', from, to);
      if (target.inode !== undefined && target.inode.kind !== 'directory')
        throw fileError('ENOTDIR', 'rename', from, to);
      if (target.inode !== undefined && target.inode.entries.size > 0) throw fileError('ENOTEMPTY', 'rename', from, to);
    } else if (target.inode?.kind === 'directory') {
      throw fileError('EISDIR', 'rename', from, to);
    }
    const [sources, targets] = [source.directory.entries, target.directory.entries];
    const replaced = target.inode;
    sources.delete(source.name);
    targets.set(target.name, inode);
    this.#changed(nowMs, () => {
      if (replaced === undefined) targets.delete(target.name);
      else targets.set(target.name, replaced);
      sources.set(source.name, inode);
    });
  }

  /** Puts all changes so far on the disk. */
  commit(): void {
    this.#changes = [];
  }

  /** Undoes the last changes that are not on the disk. `keptOf` gets their number and returns how many of them stay. */
  crash(nowMs: number, keptOf: (count: number) => number): void {
    this.#age(nowMs);
    const changes = this.#changes;
    this.#changes = [];
    const kept = keptOf(changes.length);
    for (const change of changes.slice(kept).reverse()) change.undo();
  }

  /** Every file, in the order of their paths. */
  files(directory = this.root): FileInode[] {
    const names = [...directory.entries.keys()].sort();
    return names.flatMap((name) => {
      const inode = directory.entries.get(name) as Inode;
      if (inode.kind === 'file') return [inode];
      return inode.kind === 'directory' ? this.files(inode) : [];
    });
  }

  #changed(nowMs: number, undo: () => void): void {
    this.#age(nowMs);
    this.#changes.push({ atMs: nowMs, undo });
  }

  #age(nowMs: number): void {
    while ((this.#changes[0]?.atMs ?? nowMs) < nowMs - COMMIT_MS) this.#changes.shift();
  }
}

/** The status of an inode, as `stat` reports it. */
export function statusOf(inode: Inode): FileStatus {
  const { kind } = inode;
  const [sizeBytes, allocatedBytes] =
    kind === 'file'
      ? [inode.content.sizeBytes, inode.content.allocatedBytes]
      : [kind === 'directory' ? DIRECTORY_BYTES : 0, 0];
  const mode = kind === 'file' || kind === 'directory' ? inode.mode : DIRECTORY_MODE;
  const kinds = { isFile: kind === 'file', isDirectory: kind === 'directory', isForeign: false, identity: '' };
  return { sizeBytes, allocatedBytes, mode, ...kinds };
}

function emptyDirectory(): DirectoryInode {
  return { kind: 'directory', mode: 0o755, entries: new Map() };
}

/** The names of a path, without empty names and `.`. */
function namesOf(path: string): string[] {
  return path.split('/').filter((name) => name !== '' && name !== '.');
}

function isWithin(outer: DirectoryInode, directory: DirectoryInode): boolean {
  if (outer === directory) return true;
  return [...outer.entries.values()].some((inode) => inode.kind === 'directory' && isWithin(inode, directory));
}
