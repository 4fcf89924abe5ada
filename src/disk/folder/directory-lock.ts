import { basename, join } from 'node:path';
import type { Environment } from '../../base/environment/environment.js';
import { type FileStatus, type Files, isWritableByAll, type OpenFile } from '../../base/environment/files.js';
import { listenAt, type Server } from '../../base/environment/network.js';
import { DiskError } from '../../base/errors.js';
import { DISK_LOCK_PAUSE_MAX_MS, DISK_LOCK_PAUSE_MIN_MS, DISK_LOCK_TIMEOUT_MS } from '../../base/limits.js';

interface DirectoryLockOptions {
  /** Id of the node, for error messages of other processes that want the directory. */
  readonly nodeId: string;
  readonly env: Environment;
}

/** Name of the folder in the directory with one socket for each process that has or wants the lock. */
export const LOCK_FOLDER = 'lock';
/** Names of entries: `<process id>-<16 hexadecimal digits>`. The digits are random, so that no name is ever reused. */
const ENTRY_NAME = /^(\d+)-([0-9a-f]{16})$/;
/** Prefix of the name of a socket that does not listen yet. */
const NEW_PREFIX = 'new-';
/**
 * Suffix of the mark of the entry that has the lock. The mark is a symbolic link to the node's id, or an empty file if
 * the file system has no such links.
 */
const OWNER_SUFFIX = '.owner';
/** Error codes of systems if the file system has no symbolic links. */
const HAS_NO_LINKS: ReadonlySet<string> = new Set(['EINVAL', 'EOPNOTSUPP', 'ENOTSUP', 'EPERM']);
/** Longest address of a Unix socket that every system accepts. */
const SOCKET_PATH_MAX_BYTES = 103;

/**
 * A lock that gives a directory to one user in one process. It ends with the process in any case.
 *
 * A process that wants the lock listens on a Unix socket in the folder `lock`. The system accepts connections to it as
 * long as the process lives, even if it is busy or stopped, and refuses them afterwards. So the lock does not depend on
 * process ids, which differ between containers. Sockets on network file systems work only within one host, so that this
 * is no lock between hosts.
 *
 * 1. An entry gets its name only when it listens (it is created under another name, then renamed). An entry that
 *    refuses connections is dead, and every process that sees it removes it. Names are never reused, so that no live
 *    entry can be removed.
 * 2. A process that wants the lock creates an entry, then probes all others, and has the lock if none of them is alive.
 *    If two processes had the lock, the one with the later entry would have seen the other's entry. So at most one has
 *    it.
 * 3. The owner of the lock marks its entry. A process that sees a live marked entry removes its own and fails. Of two
 *    unmarked entries, the one with the larger number is removed by its process, which waits; the other process waits
 *    for that. So one gets the lock.
 */
export class DirectoryLock {
  readonly #entry: Entry;

  /**
   * Takes the lock. Throws `DiskError` if another process has it (`... is in use by process 1234 (node X)`), or if the
   * file system of the directory has no sockets. Leftovers of a killed process do no harm. The lock does not keep the
   * process alive.
   */
  static async acquire(folder: string, options: DirectoryLockOptions): Promise<DirectoryLock> {
    const entries = await Entries.open(folder, options);
    try {
      return new DirectoryLock(await entries.contend());
    } catch (error) {
      throw error instanceof DiskError ? error : cannotLock(folder, error);
    } finally {
      await entries.close();
    }
  }

  private constructor(entry: Entry) {
    this.#entry = entry;
  }

  /** Releases the lock; resolves when another process can take it. Idempotent. */
  release(): Promise<void> {
    return this.#entry.withdraw();
  }
}

/** An entry of this process. */
class Entry {
  readonly name: string;
  readonly #path: string;
  readonly #server: Server;
  readonly #files: Files;
  #withdrawn: Promise<void> | undefined;

  constructor(path: string, server: Server, files: Files) {
    this.name = basename(path);
    this.#path = path;
    this.#server = server;
    this.#files = files;
  }

  async mark(nodeId: string): Promise<void> {
    const path = this.#path + OWNER_SUFFIX;
    try {
      await this.#files.symlink(nodeId === '' ? '-' : nodeId, path);
    } catch (error) {
      // A hugetlbfs has no symbolic links, and its files cannot be written: the mark has no text there.
      if (!HAS_NO_LINKS.has((error as NodeJS.ErrnoException).code ?? '')) throw error;
      const file = await this.#files.open(path, { write: true, create: true });
      await file.close();
    }
  }

  withdraw(): Promise<void> {
    this.#withdrawn ??= this.#withdraw();
    return this.#withdrawn;
  }

  async #withdraw(): Promise<void> {
    await removeEntry(this.#path, this.#files);
    await new Promise<void>((resolve) => this.#server.close(resolve));
  }
}

interface OtherEntry {
  readonly name: string;
  readonly isAlive: boolean;
}

/** The folder of the entries, during an attempt to take the lock. */
class Entries {
  readonly #directory: string;
  readonly #folder: string;
  readonly #opened: OpenFile;
  /** A short path that leads to the folder. */
  readonly #address: string;
  readonly #nodeId: string;
  readonly #env: Environment;

  static async open(directory: string, options: DirectoryLockOptions): Promise<Entries> {
    const folder = join(directory, LOCK_FOLDER);
    const { files } = options.env;
    try {
      await files.mkdir(folder, { recursive: true });
      const opened = await files.open(folder, { directory: true });
      const short = `/proc/self/fd/${opened.fd}`;
      const hasShort = await files.status(short).then(
        () => true,
        () => false,
      );
      return new Entries(directory, opened, hasShort ? short : folder, options);
    } catch (cause) {
      throw cannotLock(directory, cause);
    }
  }

  private constructor(directory: string, opened: OpenFile, address: string, { nodeId, env }: DirectoryLockOptions) {
    this.#directory = directory;
    this.#folder = join(directory, LOCK_FOLDER);
    this.#opened = opened;
    this.#address = address;
    this.#nodeId = nodeId;
    this.#env = env;
  }

  close(): Promise<void> {
    return this.#opened.close();
  }

  /** Contends for the lock; resolves with an entry that has it. */
  async contend(): Promise<Entry> {
    const giveUpAtMs = this.#env.clock.nowMs() + DISK_LOCK_TIMEOUT_MS;
    while (this.#env.clock.nowMs() < giveUpAtMs) {
      const others = await this.#contenders();
      const own = others.length === 0 ? await this.#publish() : null;
      if (own !== null && (await this.#wins(own, giveUpAtMs))) return own;
      await this.#pause(others.length);
    }
    throw new DiskError(
      `${this.#directory} is wanted by several processes, one of which is stuck: see their ids in ${this.#folder}`,
    );
  }

  /** Resolves with whether `own` has won the lock, and withdraws it if not. */
  async #wins(own: Entry, giveUpAtMs: number): Promise<boolean> {
    try {
      while (this.#env.clock.nowMs() < giveUpAtMs) {
        const others = await this.#contenders(own.name);
        if (others.length === 0) {
          await own.mark(this.#nodeId);
          await this.#removeLeftovers(own.name);
          return true;
        }
        if (others.some((name) => numberOf(name) < numberOf(own.name))) break;
        await this.#pause(others.length);
      }
    } catch (error) {
      await own.withdraw();
      throw error;
    }
    await own.withdraw();
    return false;
  }

  /** Names of live entries other than `own`. Throws `DiskError` if one of them has the lock. */
  async #contenders(own?: string): Promise<string[]> {
    const files = await this.#env.files.readdir(this.#folder);
    const names = files.filter((name) => name !== own && ENTRY_NAME.test(name));
    const marked = new Set(files.filter((name) => name.endsWith(OWNER_SUFFIX)));
    const owner = await this.#firstOwner(names.filter((name) => marked.has(name + OWNER_SUFFIX)));
    if (owner !== null) throw owner;
    const entries = await Promise.all(names.map((name) => this.#probe(name)));
    const live = entries.filter(({ isAlive }) => isAlive).map(({ name }) => name);
    // An entry may have got the lock meanwhile.
    const newOwner = await this.#firstOwner(live);
    if (newOwner !== null) throw newOwner;
    return live;
  }

  /** The error about the first of these entries that is alive and has the lock; null: none has it. */
  async #firstOwner(names: readonly string[]): Promise<DiskError | null> {
    for (const name of names) {
      const nodeId = await this.#env.files.readlink(join(this.#folder, name + OWNER_SUFFIX)).catch(ifNoLink);
      if (nodeId === null || !(await this.#probe(name)).isAlive) continue;
      const owner = nodeId === '' ? '' : ` (node ${nodeId})`;
      return new DiskError(
        `${this.#directory} is in use by process ${ENTRY_NAME.exec(name)?.[1]}${owner}: each node needs a directory of its own; set another disk_path, or stop that process`,
      );
    }
    return null;
  }

  /** Connects to an entry to see whether it is alive, and removes it if it is dead. */
  async #probe(name: string): Promise<OtherEntry> {
    const isAlive = await this.#accepts(name);
    if (!isAlive) await removeEntry(join(this.#folder, name), this.#env.files);
    return { name, isAlive };
  }

  #accepts(name: string): Promise<boolean> {
    return new Promise((resolve, reject) => {
      const socket = this.#env.network.connect({ path: this.#addressOf(name) });
      socket.on('connect', () => {
        socket.destroy();
        resolve(true);
      });
      socket.on('error', (error: NodeJS.ErrnoException) => {
        if (error.code === 'ECONNREFUSED' || error.code === 'ENOENT') resolve(false);
        // The queue of connections is full, or the process ended at this moment, which the next probe will show.
        else if (error.code === 'EAGAIN' || error.code === 'ECONNRESET') resolve(true);
        else reject(error);
      });
    });
  }

  /** Creates an entry; null: the present owner of the lock removed it as a leftover. */
  async #publish(): Promise<Entry | null> {
    const name = `${this.#env.host.processId}-${Buffer.from(this.#env.random.bytes(8)).toString('hex')}`;
    const server = this.#env.network.createServer({ plane: 'lock' }, (socket) => {
      socket.on('error', () => {});
      socket.destroy();
    });
    // `exclusive` listens in this process even in a cluster of Node. A connection that cannot be accepted does not end
    // the lock.
    await listenAt(server, { path: this.#addressOf(NEW_PREFIX + name), exclusive: true }, () => {});
    server.unref();
    const path = join(this.#folder, name);
    const entry = new Entry(path, server, this.#env.files);
    try {
      await this.#env.files.rename(join(this.#folder, NEW_PREFIX + name), path);
      return entry;
    } catch (error) {
      await entry.withdraw();
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      throw error;
    }
  }

  /** Removes leftovers of killed processes. A process that is creating an entry at this moment starts over. */
  async #removeLeftovers(own: string): Promise<void> {
    const names = await this.#env.files.readdir(this.#folder);
    const isLeftover = (name: string): boolean => {
      if (name.startsWith(NEW_PREFIX)) return true;
      return name.endsWith(OWNER_SUFFIX) && name !== own + OWNER_SUFFIX;
    };
    await Promise.all(
      names.filter(isLeftover).map((name) => this.#env.files.rm(join(this.#folder, name), { force: true })),
    );
  }

  #addressOf(name: string): string {
    const path = `${this.#address}/${name}`;
    if (Buffer.byteLength(path) <= SOCKET_PATH_MAX_BYTES) return path;
    throw new DiskError(
      `${this.#directory} cannot be locked: its path is too long for a socket on this system; set a shorter disk_path`,
    );
  }

  /** Waits before the next look; longer with more contenders, because each look probes all of them. */
  #pause(others: number): Promise<void> {
    const span = DISK_LOCK_PAUSE_MAX_MS - DISK_LOCK_PAUSE_MIN_MS;
    const pauseMs = (DISK_LOCK_PAUSE_MIN_MS + (this.#env.random.u32() % span)) * (1 + others);
    return new Promise((resolve) => this.#env.clock.after(pauseMs, resolve, { keepAlive: true }));
  }
}

/** Removes the mark first, because a mark without its entry has no meaning. */
async function removeEntry(path: string, files: Files): Promise<void> {
  for (const each of [path + OWNER_SUFFIX, path]) {
    // An entry that cannot be removed is dead when its process has ended, and does no harm.
    await files.rm(each).catch(() => {});
  }
}

function numberOf(name: string): string {
  return ENTRY_NAME.exec(name)?.[2] ?? '';
}

/** Handles a mark that is not a link. Null: there is no mark. Empty: the mark is a file. */
function ifNoLink(error: unknown): '' | null {
  const { code } = error as NodeJS.ErrnoException;
  if (code === 'ENOENT') return null;
  if (code === 'EINVAL') return '';
  throw error;
}

function cannotLock(directory: string, cause: unknown): DiskError {
  const message = cause instanceof Error ? cause.message : String(cause);
  return new DiskError(
    `${directory} cannot be locked: ${message}; the lock is a Unix socket in it: set a disk_path on a local file system that this user may write`,
    { cause },
  );
}

/** Why a folder cannot hold a node's files, and what to do. */
interface FolderDistrust {
  readonly why: string;
  readonly advice: string;
}

/**
 * Returns why a folder at `path` cannot hold a node's files; undefined: it can. Another user who may put files there
 * could make a node overwrite the target of a link, or read forged pages. The folder must therefore belong to the user
 * of this process or to root, and must not be writable by everybody. A group may write to it, because Kubernetes sets
 * `fsGroup`.
 */
export function distrustOfFolder(path: string, status: FileStatus): FolderDistrust | undefined {
  if (!status.isDirectory) return { why: `${path} is no folder`, advice: 'give the path of one, which may be missing' };
  if (!status.isForeign && !isWritableByAll(status)) return undefined;
  return {
    why: `${path} belongs to another user, or others may write to it`,
    advice: `give a folder of this user, such as ${join(path, 'meshcache')}`,
  };
}
