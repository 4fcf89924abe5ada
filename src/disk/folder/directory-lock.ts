import { basename, join } from 'node:path';
import type { Environment } from '../../base/environment/environment.js';
import type { Files, OpenFile } from '../../base/environment/files.js';
import { listenAt, type Server } from '../../base/environment/network.js';
import { DiskError } from '../../base/errors.js';
import { DISK_LOCK_PAUSE_MAX_MS, DISK_LOCK_PAUSE_MIN_MS, DISK_LOCK_TIMEOUT_MS } from '../../base/limits.js';

export interface DirectoryLockOptions {
  /** Told to whoever else wants the directory. */
  readonly nodeId: string;
  readonly env: Environment;
}

/** Within the directory: a folder with one socket for everybody who has the lock or wants it. */
const LOCK_FOLDER = 'lock';
/** `<process id>-<16 hexadecimal digits>`: the digits are new each time, no name ever comes again. */
const ENTRY_NAME = /^(\d+)-([0-9a-f]{16})$/;
/** In front of the name of a socket that does not listen yet. */
const NEW_PREFIX = 'new-';
/** Behind the name of the entry that has the lock: a symbolic link whose target is the node's id. */
const OWNER_SUFFIX = '.owner';
/** An address of a Unix socket is shorter than this on every system. */
const SOCKET_PATH_MAX_BYTES = 103;

/**
 * One process, and one user in it, has a directory. Ends with the process, however that ends.
 *
 * Who wants the lock listens on a Unix socket in the folder `lock`. The system accepts connections to it for as long as its process
 * lives, be that busy or stopped, and refuses them from then on; whatever process ids mean to one another, and in whatever
 * containers. Network file systems have sockets that only their own host knows: between hosts this is no lock.
 *
 * 1. An entry comes under its name when it listens already (made under another name, then renamed). One that refuses is dead, and
 *    removed by whoever sees it; as no name comes again, what is removed is what was seen.
 * 2. Who wants the lock makes an entry, then looks at all others, and has the lock when none of them is alive. Of two who both had it, the
 *    one whose entry came later would have seen the other's. So there is never more than one.
 * 3. Who has it marks its entry. Who sees a live one that is marked takes its own entry away and fails. Of two that are not
 *    marked, the one with the larger number takes its entry away and waits, the other waits until it has. So one gets it.
 */
export class DirectoryLock {
  readonly #entry: Entry;

  /**
   * Throws `DiskError`: `... is in use by process 1234 (node X)`, or the directory's file system has no sockets.
   * What a killed process has left is in nobody's way. The lock does not keep the process alive.
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

  /** Idempotent; resolves when the next one can have it. */
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

  mark(nodeId: string): Promise<void> {
    return this.#files.symlink(nodeId === '' ? '-' : nodeId, this.#path + OWNER_SUFFIX);
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

/** The folder of the entries, while one of them is being made. */
class Entries {
  readonly #directory: string;
  readonly #folder: string;
  readonly #opened: OpenFile;
  /** Leads to the folder, and is short. */
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

  /** An entry that has the lock. */
  async contend(): Promise<Entry> {
    const giveUpAtMs = this.#env.clock.nowMs() + DISK_LOCK_TIMEOUT_MS;
    while (this.#env.clock.nowMs() < giveUpAtMs) {
      const others = await this.#contenders();
      const own = others.length === 0 ? await this.#publish() : null;
      if (own !== null && (await this.#wins(own, giveUpAtMs))) return own;
      await this.#pause(others.length);
    }
    throw new DiskError(
      `${this.#directory} is wanted by several processes, one of which does not go on: see ${this.#folder}, where their ids are`,
    );
  }

  /** Whether the others have left the lock to this one; it is withdrawn otherwise. */
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

  /** Names of live entries, but for `own`, none of which has the lock: a `DiskError` says so when one has. */
  async #contenders(own?: string): Promise<string[]> {
    const files = await this.#env.files.readdir(this.#folder);
    const names = files.filter((name) => name !== own && ENTRY_NAME.test(name));
    const marked = new Set(files.filter((name) => name.endsWith(OWNER_SUFFIX)));
    const owner = await this.#firstOwner(names.filter((name) => marked.has(name + OWNER_SUFFIX)));
    if (owner !== null) throw owner;
    const entries = await Promise.all(names.map((name) => this.#probe(name)));
    const live = entries.filter(({ isAlive }) => isAlive).map(({ name }) => name);
    // They may have got it since.
    const newOwner = await this.#firstOwner(live);
    if (newOwner !== null) throw newOwner;
    return live;
  }

  /** What to say of the first of these entries that is alive and has the lock; null: none has. */
  async #firstOwner(names: readonly string[]): Promise<DiskError | null> {
    for (const name of names) {
      const nodeId = await this.#env.files.readlink(join(this.#folder, name + OWNER_SUFFIX)).catch(ifMissing);
      if (nodeId === null || !(await this.#probe(name)).isAlive) continue;
      return new DiskError(
        `${this.#directory} is in use by process ${ENTRY_NAME.exec(name)?.[1]} (node ${nodeId}): each node needs a directory of its own; set another disk_path, or stop that process`,
      );
    }
    return null;
  }

  /** Removes the entry when it is dead. */
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
        // More connections wait there than the system lets wait; or it ended at this moment, which the next look will tell.
        else if (error.code === 'EAGAIN' || error.code === 'ECONNRESET') resolve(true);
        else reject(error);
      });
    });
  }

  /** Makes an entry; null: who has the lock by now took it for a leftover. */
  async #publish(): Promise<Entry | null> {
    const name = `${this.#env.host.processId}-${Buffer.from(this.#env.random.bytes(8)).toString('hex')}`;
    const server = this.#env.network.createServer({ plane: 'lock' }, (socket) => {
      socket.on('error', () => {});
      socket.destroy();
    });
    // In this very process, also where it is one of a cluster of Node's. A connection that cannot be accepted is not the end of the lock.
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

  /** Of those who were killed in the middle of something; whoever makes an entry at this moment begins again. */
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

  /** The more there are, the more each look of theirs costs. */
  #pause(others: number): Promise<void> {
    const span = DISK_LOCK_PAUSE_MAX_MS - DISK_LOCK_PAUSE_MIN_MS;
    const pauseMs = (DISK_LOCK_PAUSE_MIN_MS + (this.#env.random.u32() % span)) * (1 + others);
    return new Promise((resolve) => this.#env.clock.after(pauseMs, resolve, { keepAlive: true }));
  }
}

/** The mark first: without its entry it says nothing. */
async function removeEntry(path: string, files: Files): Promise<void> {
  for (const each of [path + OWNER_SUFFIX, path]) {
    // One that cannot be removed is dead when its process is, and says nothing then.
    await files.rm(each).catch(() => {});
  }
}

function numberOf(name: string): string {
  return ENTRY_NAME.exec(name)?.[2] ?? '';
}

function ifMissing(error: unknown): null {
  if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
  throw error;
}

function cannotLock(directory: string, cause: unknown): DiskError {
  const message = cause instanceof Error ? cause.message : String(cause);
  return new DiskError(
    `${directory} cannot be locked: ${message}; the lock is a Unix socket in it: set a disk_path on a local file system that this user may write`,
    { cause },
  );
}
