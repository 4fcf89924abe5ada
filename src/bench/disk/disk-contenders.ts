import { execFile } from 'node:child_process';
import { mkdir, open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { findProgram } from '../../processes/programs.js';

const run = promisify(execFile);

/** Pages that a contender may read or write at a time. */
export const IN_FLIGHT_COUNT = 8;
/** Bytes handed to lmdb before their commit is awaited. */
const COMMIT_MAX_BYTES = 64 * 2 ** 20;

/** The pages to write and read, the same for every contender. */
export interface DiskWork {
  readonly pageBytes: number;
  readonly pages: number;
  /** Key of each page. */
  readonly keys: readonly string[];
  /** Every page once, in the order in which all contenders read them. */
  readonly order: Uint32Array;
  /** All pages, stamped with their numbers, one after the other in ordinary memory. */
  readonly source: Buffer;
  /** Memory that pages are read into and checked in. */
  readonly target: Buffer;
}

/** One way to keep pages on disk. */
export interface DiskContender {
  readonly name: string;
  /** Prepares a run. `folder` is empty, and belongs to this contender until the run has ended. */
  begin(folder: string, work: DiskWork): Promise<DiskRun>;
}

/** One contender's run. Each timed step resolves with its duration in milliseconds. */
export interface DiskRun {
  /** Writes all pages for the first time. */
  write(): Promise<number>;
  /** Writes the same number of pages again; they replace the first ones. */
  rewrite(): Promise<number>;
  /** Closes and reopens files that keep the system from dropping its file cache. */
  forget?(): Promise<void>;
  /** Reads all pages into memory, in the order of the work. */
  read(): Promise<number>;
  /** The bytes that {@link read} delivered for a page. Contenders without it cannot be checked. */
  pageAt?(page: number): Uint8Array;
  end(): Promise<void>;
}

export async function timed(work: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await work();
  return performance.now() - startMs;
}

/** Does `work` for 0 to `count` - 1 in order, several at a time. */
export async function inFlight(count: number, work: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: Math.min(IN_FLIGHT_COUNT, count) }, worker));
}

export function pageOf(memory: Buffer, page: number, pageBytes: number): Buffer {
  return memory.subarray(page * pageBytes, (page + 1) * pageBytes);
}

/** Waits until everything written is on the disks. */
export async function syncDisks(): Promise<void> {
  await run('sync').catch(() => {});
}

/** Empties the system's file cache. Resolves with false if this user lacks the permission. */
export async function dropFileCache(): Promise<boolean> {
  await syncDisks();
  return writeFile('/proc/sys/vm/drop_caches', '3').then(
    () => true,
    () => false,
  );
}

export function fioContender(fio: Fio, isDirect: boolean): DiskContender {
  return {
    name: isDirect ? 'fio, direct' : 'fio, buffered',
    begin(folder, { pageBytes, pages }) {
      const file = join(folder, 'pages');
      const job = { file, fileBytes: pages * pageBytes, blockBytes: pageBytes, depth: IN_FLIGHT_COUNT, isDirect };
      const step = (kind: FioJob['kind']) => () => fio.run({ ...job, kind });
      return Promise.resolve({
        write: step('write'),
        rewrite: step('write'),
        read: step('randread'),
        end: () => Promise.resolve(),
      });
    },
  };
}

/** Stores each page as a file in one of 256 subfolders, and syncs it as it is written. */
export const filePerPage: DiskContender = {
  name: 'one file per page',
  async begin(folder, { keys, order, pageBytes, pages, source, target }) {
    const paths = keys.map((key) => join(folder, key.slice(0, 2), key));
    const folders = new Set(keys.map((key) => join(folder, key.slice(0, 2))));
    for (const path of folders) await mkdir(path);
    const write = (): Promise<number> =>
      timed(() =>
        inFlight(pages, (page) => writeFile(paths[page] as string, pageOf(source, page, pageBytes), { flush: true })),
      );
    const readPage = async (page: number): Promise<void> => {
      const file = await open(paths[page] as string);
      try {
        const { bytesRead } = await file.read(pageOf(target, page, pageBytes), 0, pageBytes, 0);
        if (bytesRead !== pageBytes) throw new Error(`page ${page}: ${bytesRead} of ${pageBytes} bytes came`);
      } finally {
        await file.close();
      }
    };
    return {
      write,
      rewrite: write,
      read: () => timed(() => inFlight(pages, (i) => readPage(order[i] as number))),
      pageAt: (page) => pageOf(target, page, pageBytes),
      end: () => Promise.resolve(),
    };
  },
};

/** The part of the package `lmdb` that the benchmark uses. */
interface LmdbModule {
  open(options: { path: string; encoding: 'binary'; compression: false }): LmdbDatabase;
}

interface LmdbDatabase {
  put(key: string, value: Buffer): Promise<boolean>;
  getBinaryFast(key: string): Buffer | undefined;
  prefetch(keys: readonly string[]): Promise<void>;
  readonly flushed: Promise<unknown>;
  close(): Promise<void>;
}

/** Stores pages as values in the tree of the package `lmdb`. Resolves with the reason as text if it is absent. */
export async function lmdbContender(): Promise<DiskContender | string> {
  // The name is not a literal, so that type checks and bundles do not need the package.
  const name: string = 'lmdb';
  const lmdb = await (import(name) as Promise<LmdbModule>).catch(() => undefined);
  if (lmdb === undefined) return 'the package lmdb is not installed';
  return { name: 'lmdb', begin: (folder, work) => Promise.resolve(new LmdbRun(lmdb, folder, work)) };
}

class LmdbRun implements DiskRun {
  readonly #open: () => LmdbDatabase;
  readonly #work: DiskWork;
  #database: LmdbDatabase;

  constructor(lmdb: LmdbModule, folder: string, work: DiskWork) {
    this.#open = () => lmdb.open({ path: join(folder, 'pages.mdb'), encoding: 'binary', compression: false });
    this.#work = work;
    this.#database = this.#open();
  }

  write(): Promise<number> {
    return timed(() => this.#putAll());
  }

  rewrite(): Promise<number> {
    return this.write();
  }

  /** Closes and reopens the database, because a mapped file stays in the cache. */
  async forget(): Promise<void> {
    await this.#database.close();
    this.#database = this.#open();
  }

  read(): Promise<number> {
    return timed(() => this.#readAll());
  }

  pageAt(page: number): Uint8Array {
    return pageOf(this.#work.target, page, this.#work.pageBytes);
  }

  end(): Promise<void> {
    return this.#database.close();
  }

  async #putAll(): Promise<void> {
    const { keys, pages, pageBytes, source } = this.#work;
    const batch = Math.max(1, Math.floor(COMMIT_MAX_BYTES / pageBytes));
    let committed: Promise<unknown> = Promise.resolve();
    for (let first = 0; first < pages; first += batch) {
      const puts = keys
        .slice(first, first + batch)
        .map((key, i) => this.#database.put(key, pageOf(source, first + i, pageBytes)));
      await committed;
      committed = Promise.all(puts);
    }
    await committed;
    await this.#database.flushed;
  }

  /** Lets lmdb's own threads prefetch the pages, then copies them to the target. */
  async #readAll(): Promise<void> {
    const { keys, order, pageBytes, target } = this.#work;
    for (let first = 0; first < order.length; first += IN_FLIGHT_COUNT) {
      const pages = [...order.subarray(first, first + IN_FLIGHT_COUNT)];
      await this.#database.prefetch(pages.map((page) => keys[page] as string));
      for (const page of pages) {
        const value = this.#database.getBinaryFast(keys[page] as string);
        if (value?.length !== pageBytes) throw new Error(`page ${page} is not in lmdb`);
        // lmdb reuses the value's buffer for the next one, and the buffer is longer than the value.
        pageOf(target, page, pageBytes).set(value.subarray(0, pageBytes));
      }
    }
  }
}
const OUTPUT_MAX_BYTES = 16 * 2 ** 20;

interface FioJob {
  /** Path of the file; the first write creates it. */
  readonly file: string;
  /** Whether blocks are written in order, or each block is read once at random. */
  readonly kind: 'write' | 'randread';
  readonly fileBytes: number;
  readonly blockBytes: number;
  /** Blocks in flight. */
  readonly depth: number;
  readonly isDirect: boolean;
}

/** Figures of one side of a job, read or write, in fio's JSON output. */
interface FioSide {
  readonly io_bytes: number;
  /** Milliseconds that the job took. */
  readonly runtime: number;
}

/** The program fio, the standard disk benchmark. */
export class Fio {
  readonly #program: string;

  private constructor(program: string) {
    this.#program = program;
  }

  /** Finds fio and runs the small job `probe`. Resolves with the reason as text if fio cannot be used. */
  static async find(probe: FioJob): Promise<Fio | string> {
    const program = await findProgram('fio');
    if (program === undefined) return 'fio is not installed (Debian: apt install fio)';
    const fio = new Fio(program);
    return fio.run(probe).then(
      () => fio,
      (error: Error) => `fio does not do what is asked of it: ${error.message.trim().split('\n').at(-1)}`,
    );
  }

  /** Runs a job. Resolves with its milliseconds, without fio's own start-up; rejects if it did not move every byte. */
  async run(job: FioJob): Promise<number> {
    const stdout = await this.#output(flagsOf(job));
    const { read, write } = jobOf(stdout);
    const { io_bytes: bytes, runtime } = job.kind === 'write' ? write : read;
    if (bytes !== job.fileBytes) throw new Error(`fio has moved ${bytes} of ${job.fileBytes} bytes`);
    return Math.max(1, runtime);
  }

  /** Runs fio; resolves with its output. fio is killed when this program exits, as it would recreate its files. */
  async #output(flags: readonly string[]): Promise<string> {
    const running = run(this.#program, flags, { maxBuffer: OUTPUT_MAX_BYTES });
    const end = (): void => void running.child.kill('SIGKILL');
    // fio must be killed before its files are removed.
    process.prependOnceListener('exit', end);
    try {
      return (await running).stdout;
    } finally {
      process.off('exit', end);
    }
  }
}

function flagsOf({ file, kind, fileBytes, blockBytes, depth, isDirect }: FioJob): string[] {
  const settings = {
    name: 'pages',
    filename: file,
    rw: kind,
    size: fileBytes,
    bs: blockBytes,
    iodepth: depth,
    ioengine: 'libaio',
    direct: isDirect ? 1 : 0,
    fallocate: 'native',
    // With threads, fio is a single process that can be killed.
    thread: 1,
    'output-format': 'json',
  };
  return Object.entries(settings).map(([name, value]) => `--${name}=${value}`);
}

/** Finds the job in fio's JSON output, which may begin with warnings. */
function jobOf(stdout: string): { readonly read: FioSide; readonly write: FioSide } {
  const start = stdout.indexOf('{');
  const { jobs } = JSON.parse(stdout.slice(start)) as { jobs: readonly { read: FioSide; write: FioSide }[] };
  const [job] = jobs;
  if (job === undefined) throw new Error(`fio said what this program does not understand:\n${stdout}`);
  return job;
}
