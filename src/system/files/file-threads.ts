import { isMainThread, MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from 'node:worker_threads';
import { CALL_OVERDUE } from '../../base/environment/files.js';
import type { FileOperation, FileOperations } from './file-operations.js';
import type { FileAnswer, FileCallMessage, FileThreadStart } from './file-thread.js';

/** Time in which a call must end. */
const FILE_CALL_TIMEOUT_MS = 3_000;
/** Time in which a call must end that takes time in proportion to the size of files. */
const LONG_FILE_CALL_TIMEOUT_MS = 30_000;
/**
 * Time between two looks at the calls in progress. A call's age is the number of looks: time in which this process stood still, or its
 * main thread was busy, counts as one.
 */
const LOOK_INTERVAL_MS = 250;
/** Threads that work for one folder at a time, as many as Node has for all files. */
const FOLDER_MAX_THREADS = 4;
/** Threads in all, including those whose call does not end; calls that their caller waits for synchronously may need a few more. */
const MAX_THREADS = 32;
/** Time in which the calls in progress must end when the process ends. */
const EXIT_WAIT_MS = 500;

const LONG_OPERATIONS: ReadonlySet<FileOperation> = new Set(['truncate', 'reserve', 'removeAll', 'remove']);

type Arguments<N extends FileOperation> = Parameters<FileOperations[N]>;
type Result<N extends FileOperation> = ReturnType<FileOperations[N]>;

/** A call, and what it works on, for its error. */
interface Call {
  readonly id: number;
  readonly operation: FileOperation;
  readonly args: readonly unknown[];
  readonly folder: Folder;
  readonly path: string;
  readonly resolve: (value: never) => void;
  readonly reject: (error: Error) => void;
  looks: number;
  /** Undefined: the call waits for a thread. */
  thread: FileThread | undefined;
  /** Whether the caller has been told that the call has not ended in time. */
  isOverdue: boolean;
}

/** The calls on one folder. */
interface Folder {
  readonly path: string;
  readonly waiting: Set<Call>;
  running: number;
  /** Running calls that are overdue. */
  overdue: number;
  /** Descriptors that are closed when no call is overdue. */
  readonly unclosed: number[];
}

/**
 * Threads that make the calls to the file system, so that a file system that does not answer stops neither the main thread nor the
 * threads of Node, which look up names and read the program's own files.
 *
 * Each call ends within a deadline: otherwise it rejects with the code ETIMEDOUT, while its thread goes on waiting for the system. Until
 * such an overdue call has ended, every further call on the same folder rejects at once. So calls do not pile up, and a call that takes
 * effect late does so before every later one.
 */
export class FileThreads {
  readonly #threads = new Set<FileThread>();
  readonly #idle: FileThread[] = [];
  readonly #folders = new Map<string, Folder>();
  /** Calls whose callers wait. */
  readonly #awaited = new Set<Call>();
  #nextId = 1;
  #looking: NodeJS.Timeout | undefined;

  /** Makes a call on `path`, in the folder `folder`. Memory of shared views is in use until the call has ended, even if it is overdue. */
  call<N extends FileOperation>(
    operation: N,
    { folder: folderPath, path }: { readonly folder: string; readonly path: string },
    ...args: Arguments<N>
  ): Promise<Result<N>> {
    return new Promise((resolve, reject) => {
      const folder = this.#folder(folderPath);
      if (folder.overdue > 0) {
        reject(overdue({ operation, path, thread: undefined }));
        return;
      }
      const call = this.#newCall({ operation, args, folder, path, resolve, reject });
      this.#awaited.add(call);
      folder.waiting.add(call);
      this.#looking ??= setInterval(() => this.#look(), LOOK_INTERVAL_MS).unref();
      this.#pump(folder);
    });
  }

  /** Makes a call while the calling thread waits for it. */
  callSync<N extends FileOperation>(
    operation: N,
    { folder: folderPath, path }: { readonly folder: string; readonly path: string },
    ...args: Arguments<N>
  ): Result<N> {
    const folder = this.#folder(folderPath);
    if (folder.overdue > 0) throw overdue({ operation, path, thread: undefined });
    // The calling thread cannot wait for a thread that is busy.
    const thread = this.#idle.pop() ?? this.#newThread();
    const call = this.#newCall({ operation, args, folder, path, resolve: () => {}, reject: () => {} });
    this.#start(call, thread);
    const answer = thread.wait(call.id, FILE_CALL_TIMEOUT_MS);
    if (answer === undefined) {
      this.#expire(call);
      throw overdue(call);
    }
    this.#ended(call);
    this.#tidy(folder);
    if (answer.error !== undefined) throw errorOf(answer.error);
    return answer.value as Result<N>;
  }

  /** Closes a descriptor, at the latest when no call on the folder is overdue any more. */
  async close(
    fd: number,
    { folder: folderPath, path }: { readonly folder: string; readonly path: string },
  ): Promise<void> {
    const folder = this.#folder(folderPath);
    if (folder.overdue === 0) await this.call('close', { folder: folderPath, path }, fd);
    else folder.unclosed.push(fd);
  }

  #newCall(parts: Omit<Call, 'id' | 'looks' | 'thread' | 'isOverdue'>): Call {
    const id = this.#nextId;
    // Ids are positive numbers of 32 bits.
    this.#nextId = (id % 0x7fff_ffff) + 1;
    return { ...parts, id, looks: 0, thread: undefined, isOverdue: false };
  }

  #folder(path: string): Folder {
    let folder = this.#folders.get(path);
    if (folder === undefined) {
      folder = { path, waiting: new Set(), running: 0, overdue: 0, unclosed: [] };
      this.#folders.set(path, folder);
    }
    return folder;
  }

  #takeThread(): FileThread | undefined {
    return this.#idle.pop() ?? (this.#threads.size < MAX_THREADS ? this.#newThread() : undefined);
  }

  #newThread(): FileThread {
    if (this.#threads.size === 0 && isMainThread) process.on('exit', () => this.#endProcess());
    const thread = new FileThread((answer) => this.#answered(thread, answer));
    this.#threads.add(thread);
    return thread;
  }

  #pump(folder: Folder): void {
    for (const call of folder.waiting) {
      if (folder.running >= FOLDER_MAX_THREADS) return;
      const thread = this.#takeThread();
      if (thread === undefined) return;
      folder.waiting.delete(call);
      this.#start(call, thread);
    }
  }

  #start(call: Call, thread: FileThread): void {
    call.looks = 0;
    call.thread = thread;
    call.folder.running++;
    thread.start(call);
  }

  #answered(thread: FileThread, { value, error }: FileAnswer): void {
    const { call } = thread;
    if (call === undefined) return;
    const { folder, isOverdue } = call;
    this.#ended(call);
    if (isOverdue && call.operation === 'open' && error === undefined) folder.unclosed.push(value as number);
    if (error === undefined) call.resolve(value as never);
    else call.reject(errorOf(error));
    this.#tidy(folder);
  }

  /** Takes a call that has ended off its thread, which then takes another one. */
  #ended(call: Call): void {
    const { folder, thread } = call as Call & { readonly thread: FileThread };
    this.#awaited.delete(call);
    folder.running--;
    if (call.isOverdue) folder.overdue--;
    thread.end();
    this.#idle.push(thread);
    this.#pump(folder);
    if (this.#idle.length > 0)
      for (const other of this.#folders.values()) if (other.waiting.size > 0) this.#pump(other);
    if (this.#awaited.size === 0) {
      clearInterval(this.#looking);
      this.#looking = undefined;
    }
  }

  #tidy(folder: Folder): void {
    if (folder.overdue > 0) return;
    const { path } = folder;
    for (const fd of folder.unclosed.splice(0)) this.call('close', { folder: path, path }, fd).catch(() => {});
    if (folder.running === 0 && folder.waiting.size === 0) this.#folders.delete(path);
  }

  #look(): void {
    for (const call of this.#awaited) {
      const limitMs = LONG_OPERATIONS.has(call.operation) ? LONG_FILE_CALL_TIMEOUT_MS : FILE_CALL_TIMEOUT_MS;
      if (++call.looks * LOOK_INTERVAL_MS <= limitMs) continue;
      // An answer that has been posted arrives soon.
      if (call.thread?.isBusy ?? true) this.#expire(call);
    }
  }

  /** Tells the caller that a call has not ended in time, and the callers of those that wait for a thread of the same folder. */
  #expire(call: Call): void {
    const { folder } = call;
    this.#awaited.delete(call);
    folder.waiting.delete(call);
    call.reject(overdue(call));
    if (call.thread === undefined) return;
    call.isOverdue = true;
    call.thread.unref();
    folder.overdue++;
    for (const waiting of folder.waiting) this.#expire(waiting);
  }

  /**
   * Ends the process at once if a thread still waits for the system. Otherwise Node would wait for the thread, and close sockets in a
   * folder that does not answer.
   */
  #endProcess(): void {
    const endMs = performance.now() + EXIT_WAIT_MS;
    for (const thread of this.#threads) {
      if (!thread.idleWithin(endMs - performance.now())) process.kill(process.pid, 'SIGKILL');
    }
  }
}

/** A thread that makes one call at a time. */
class FileThread {
  call: Call | undefined;
  readonly #current = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  readonly #port: MessagePort;

  constructor(answered: (answer: FileAnswer) => void) {
    const { port1, port2 } = new MessageChannel();
    const start: FileThreadStart = { port: port2, current: this.#current };
    const worker = new Worker(new URL('./file-thread.js', import.meta.url), {
      name: 'meshcache-files',
      workerData: start,
      transferList: [port2],
      execArgv: [],
      // Descriptors belong to the process, and outlive the thread that has opened them.
      trackUnmanagedFds: false,
    });
    worker.unref();
    // A thread that cannot be started never answers, so its calls end by their deadline.
    worker.on('error', () => {});
    this.#port = port1;
    port1.on('message', answered);
    port1.unref();
  }

  /** Whether its call has not ended. */
  get isBusy(): boolean {
    return Atomics.load(this.#current, 0) !== 0;
  }

  start(call: Call): void {
    const { id, operation, args } = call;
    this.call = call;
    Atomics.store(this.#current, 0, id);
    this.#port.ref();
    const message: FileCallMessage = { id, operation, args };
    this.#port.postMessage(message);
  }

  end(): void {
    this.call = undefined;
    this.#port.unref();
  }

  /** The process may end although a call is in progress. */
  unref(): void {
    this.#port.unref();
  }

  /** Blocks until the call has ended; undefined: it has not in that time. */
  wait(id: number, timeoutMs: number): FileAnswer | undefined {
    if (Atomics.wait(this.#current, 0, id, timeoutMs) === 'timed-out') return undefined;
    return (receiveMessageOnPort(this.#port) as { readonly message: FileAnswer } | undefined)?.message;
  }

  /** Blocks until no call is in progress; false: one still is after that time. */
  idleWithin(timeoutMs: number): boolean {
    const id = Atomics.load(this.#current, 0);
    return id === 0 || Atomics.wait(this.#current, 0, id, Math.max(0, timeoutMs)) !== 'timed-out';
  }
}

function overdue({ operation, path, thread }: Pick<Call, 'operation' | 'path' | 'thread'>): Error {
  const message = `${CALL_OVERDUE}: the file system does not answer, ${operation} '${path}'`;
  return Object.assign(new Error(message), { code: CALL_OVERDUE, isStillRunning: thread !== undefined });
}

function errorOf({ message, fields }: NonNullable<FileAnswer['error']>): Error {
  return Object.assign(new Error(message), fields);
}
