import { getSystemErrorMap } from 'node:util';
import { isMainThread, MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from 'node:worker_threads';
import { CALL_OVERDUE } from '../../base/environment/files.js';
import {
  BUSY,
  type FileAnswer,
  type FileCallMessage,
  type FileOperation,
  type FileOperations,
  type FileThreadStart,
  IDLE,
} from './file-operations.js';

/** Time limit of a call. */
const FILE_CALL_TIMEOUT_MS = 3_000;
/** Time limit of a call whose duration depends on the size of files. */
const LONG_FILE_CALL_TIMEOUT_MS = 30_000;
/**
 * Interval between checks of the calls in progress. A call's age is the number of checks: time in which this process
 * was stopped, or its main thread busy, counts as one.
 */
const LOOK_INTERVAL_MS = 250;
/** Most threads that work for one folder at a time; as many as Node has for all files. */
const FOLDER_MAX_THREADS = 4;
/** Most threads in total, including those whose call does not end. Synchronous calls may need a few more. */
const MAX_THREADS = 32;
/** Time limit for the calls in progress when the process ends. */
const EXIT_WAIT_MS = 500;

const LONG_OPERATIONS: ReadonlySet<FileOperation> = new Set(['truncate', 'reserve', 'removeAll', 'remove']);

type Arguments<N extends FileOperation> = Parameters<FileOperations[N]>;
type Result<N extends FileOperation> = ReturnType<FileOperations[N]>;

/** The path that a call works on, and the folder that determines the order of calls. */
export interface CallPlace {
  readonly folder: string;
  readonly path: string;
}

/** A call, and its path for error messages. */
interface Call {
  readonly operation: FileOperation;
  readonly args: readonly unknown[];
  /** Makes the call on an outside thread; undefined if a file thread makes it. */
  readonly outside: OutsideWork | undefined;
  readonly folder: Folder;
  readonly path: string;
  readonly resolve: (value: never) => void;
  readonly reject: (error: Error) => void;
  looks: number;
  /** The worker that makes the call; undefined while the call waits for its turn. */
  running: RunningCall | undefined;
  /** Whether the caller has been told that the call is overdue. */
  isOverdue: boolean;
}

/** The calls on one folder. */
interface Folder {
  readonly path: string;
  readonly waiting: Set<Call>;
  running: number;
  /** Running calls that are made by file threads. */
  threads: number;
  /** Running calls that are overdue. */
  overdue: number;
  /** Descriptors to close once no call is overdue. */
  readonly unclosed: number[];
}

/**
 * Threads that make the file system calls. If a file system does not answer, it stops neither the main thread nor the
 * threads of Node, which look up names and read the program's own files.
 *
 * Each call has a deadline. After it, the call rejects with the code ETIMEDOUT, while its thread keeps waiting for the
 * system. Until such an overdue call has ended, every further call on the same folder rejects at once. This way calls
 * do not pile up, and a call that takes effect late does so before every later one.
 */
export class FileThreads {
  readonly #threads = new Set<FileThread>();
  readonly #outside = new Set<OutsideCall>();
  readonly #idleOutside: OutsideCall[] = [];
  readonly #idle: FileThread[] = [];
  readonly #folders = new Map<string, Folder>();
  /** Calls whose callers are waiting. */
  readonly #awaited = new Set<Call>();
  #looking: NodeJS.Timeout | undefined;

  /**
   * Makes a call on `path`, in the folder `folder`. Memory of shared views stays in use until the call has ended, even
   * if it is overdue.
   */
  call<N extends FileOperation>(operation: N, at: CallPlace, ...args: Arguments<N>): Promise<Result<N>> {
    return this.#call(operation, at, { args, outside: undefined });
  }

  /** Makes a call on an outside thread, with the same deadline and the same ordering among calls on the folder. */
  callOutside(operation: FileOperation, at: CallPlace, outside: OutsideWork): Promise<number> {
    return this.#call(operation, at, { args: [], outside });
  }

  #call<T>(
    operation: FileOperation,
    { folder: folderPath, path }: CallPlace,
    how: Pick<Call, 'args' | 'outside'>,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      const folder = this.#folder(folderPath);
      if (folder.overdue > 0) {
        reject(overdue({ operation, path, running: undefined }));
        return;
      }
      const call = this.#newCall({ ...how, operation, folder, path, resolve, reject });
      this.#awaited.add(call);
      this.#looking ??= setInterval(() => this.#look(), LOOK_INTERVAL_MS);
      if (call.outside === undefined) {
        folder.waiting.add(call);
        this.#pump(folder);
      } else {
        this.#begin(call, this.#takeOutside());
      }
    });
  }

  /** Makes a call while the calling thread blocks. */
  callSync<N extends FileOperation>(
    operation: N,
    { folder: folderPath, path }: CallPlace,
    ...args: Arguments<N>
  ): Result<N> {
    const folder = this.#folder(folderPath);
    if (folder.overdue > 0) throw overdue({ operation, path, running: undefined });
    // A busy thread cannot be used, because the calling thread would have to wait for it.
    const thread = this.#idle.pop() ?? this.#newThread();
    const call = this.#newCall({
      operation,
      args,
      outside: undefined,
      folder,
      path,
      resolve: () => {},
      reject: () => {},
    });
    this.#start(call, thread);
    const answer = thread.wait(FILE_CALL_TIMEOUT_MS);
    if (answer === undefined) {
      this.#expire(call);
      void this.#follow(call, thread);
      throw overdue(call);
    }
    this.#ended(call, thread);
    this.#tidy(folder);
    if (answer.error !== undefined) throw errorOf(answer.error);
    return answer.value as Result<N>;
  }

  /** Closes a descriptor: now, or as soon as no call on the folder is overdue any more. */
  async close(fd: number, { folder: folderPath, path }: CallPlace): Promise<void> {
    const folder = this.#folder(folderPath);
    if (folder.overdue === 0) await this.call('close', { folder: folderPath, path }, fd);
    else folder.unclosed.push(fd);
  }

  #newCall(parts: Omit<Call, 'looks' | 'running' | 'isOverdue'>): Call {
    return { ...parts, looks: 0, running: undefined, isOverdue: false };
  }

  #folder(path: string): Folder {
    let folder = this.#folders.get(path);
    if (folder === undefined) {
      folder = { path, waiting: new Set(), running: 0, threads: 0, overdue: 0, unclosed: [] };
      this.#folders.set(path, folder);
    }
    return folder;
  }

  #takeThread(): FileThread | undefined {
    return this.#idle.pop() ?? (this.#threads.size < MAX_THREADS ? this.#newThread() : undefined);
  }

  #takeOutside(): OutsideCall {
    const running = this.#idleOutside.pop() ?? new OutsideCall();
    this.#outside.add(running);
    return running;
  }

  #newThread(): FileThread {
    if (this.#threads.size === 0 && isMainThread) process.on('exit', () => this.#endProcess());
    const thread = new FileThread();
    this.#threads.add(thread);
    return thread;
  }

  #pump(folder: Folder): void {
    for (const call of folder.waiting) {
      if (folder.threads >= FOLDER_MAX_THREADS) return;
      const thread = this.#takeThread();
      if (thread === undefined) return;
      folder.waiting.delete(call);
      this.#begin(call, thread);
    }
  }

  #begin(call: Call, running: RunningCall): void {
    this.#start(call, running);
    void this.#follow(call, running);
  }

  #start(call: Call, running: RunningCall): void {
    call.looks = 0;
    call.running = running;
    call.folder.running++;
    if (running instanceof FileThread) call.folder.threads++;
    running.start(call);
  }

  /** Waits until the call has ended, and passes the result to its caller. */
  async #follow(call: Call, running: RunningCall): Promise<void> {
    const { value, error } = await running.answer();
    const { folder, isOverdue } = call;
    this.#ended(call, running);
    if (isOverdue && call.operation === 'open' && error === undefined) folder.unclosed.push(value as number);
    if (error === undefined) call.resolve(value as never);
    else call.reject(errorOf(error));
    this.#tidy(folder);
  }

  /** Takes a call that has ended off its thread, which can then make another one. */
  #ended(call: Call, running: RunningCall): void {
    const { folder } = call;
    this.#awaited.delete(call);
    folder.running--;
    if (call.isOverdue) folder.overdue--;
    if (running instanceof FileThread) {
      folder.threads--;
      this.#idle.push(running);
    } else if (running instanceof OutsideCall) {
      this.#outside.delete(running);
      this.#idleOutside.push(running);
    }
    this.#pump(folder);
    if (this.#idle.length > 0)
      for (const other of this.#folders.values()) if (other.waiting.size > 0) this.#pump(other);
    this.#lookAgain();
  }

  /** Stops checking when no caller waits any more. Until then, checking keeps the process alive. */
  #lookAgain(): void {
    if (this.#awaited.size > 0) return;
    clearInterval(this.#looking);
    this.#looking = undefined;
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
      // If the answer has been posted, it arrives soon.
      if (call.running?.isBusy ?? true) this.#expire(call);
    }
    this.#lookAgain();
  }

  /**
   * Tells the caller that a call is overdue, and also the callers of all calls that wait for a thread of the same
   * folder.
   */
  #expire(call: Call): void {
    const { folder } = call;
    this.#awaited.delete(call);
    folder.waiting.delete(call);
    call.reject(overdue(call));
    if (call.running === undefined) return;
    call.isOverdue = true;
    folder.overdue++;
    for (const waiting of folder.waiting) this.#expire(waiting);
  }

  /**
   * Kills the process if a thread still waits for the system. Otherwise Node would wait for the thread, and would close
   * sockets in a folder that does not answer.
   */
  #endProcess(): void {
    const endMs = performance.now() + EXIT_WAIT_MS;
    for (const running of [...this.#threads, ...this.#outside]) {
      if (!running.idleBy(endMs)) process.kill(process.pid, 'SIGKILL');
    }
  }
}

function overdue({ operation, path, running }: Pick<Call, 'operation' | 'path' | 'running'>): Error {
  const message = `${CALL_OVERDUE}: the file system does not answer, ${operation} '${path}'`;
  return Object.assign(new Error(message), { code: CALL_OVERDUE, isStillRunning: running !== undefined });
}

function errorOf({ message, fields }: NonNullable<FileAnswer['error']>): Error {
  return Object.assign(new Error(message), fields);
}

/** Poll interval for an outside call while this thread blocks on it. */
const STATE_POLL_MS = 2;

/** Makes a call on an outside thread, which sets `state` to IDLE as soon as the system has answered. */
type OutsideWork = (state: Int32Array<SharedArrayBuffer>) => Promise<number>;

/** A call to make: an operation of a file thread, or work of an outside thread. */
interface StartedCall extends FileCallMessage {
  readonly outside: OutsideWork | undefined;
}

/** A worker that makes calls, one at a time. */
interface RunningCall {
  start(call: StartedCall): void;
  /** Whether the system has not answered yet. */
  readonly isBusy: boolean;
  /** Resolves with the answer. Does not keep the process alive. */
  answer(): Promise<FileAnswer>;
  /** Blocks until the system has answered; returns false if it has not by `endMs`. */
  idleBy(endMs: number): boolean;
}

/** A thread that makes one call at a time. */
class FileThread implements RunningCall {
  readonly #state = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  readonly #port: MessagePort;

  constructor() {
    const { port1, port2 } = new MessageChannel();
    const start: FileThreadStart = { port: port2, state: this.#state };
    const worker = new Worker(new URL('./file-thread.js', import.meta.url), {
      name: 'meshcache-files',
      workerData: start,
      transferList: [port2],
      execArgv: [],
      // Descriptors belong to the process and outlive the thread that opened them.
      trackUnmanagedFds: false,
    });
    worker.unref();
    // A thread that cannot be started never answers, so its calls end at their deadline.
    worker.on('error', () => {});
    this.#port = port1;
  }

  get isBusy(): boolean {
    return Atomics.load(this.#state, 0) === BUSY;
  }

  start({ operation, args }: StartedCall): void {
    const message: FileCallMessage = { operation, args };
    this.#port.postMessage(message);
    Atomics.store(this.#state, 0, BUSY);
    Atomics.notify(this.#state, 0);
  }

  async answer(): Promise<FileAnswer> {
    while (this.isBusy) await Atomics.waitAsync(this.#state, 0, BUSY).value;
    return this.#received();
  }

  /** Blocks until the call has ended; undefined if it has not within `timeoutMs`. */
  wait(timeoutMs: number): FileAnswer | undefined {
    return this.idleBy(performance.now() + timeoutMs) ? this.#received() : undefined;
  }

  idleBy(endMs: number): boolean {
    return idleBy(this.#state, endMs, Number.POSITIVE_INFINITY);
  }

  #received(): FileAnswer {
    return (receiveMessageOnPort(this.#port) as { readonly message: FileAnswer }).message;
  }
}

/** One call that an outside thread makes. */
class OutsideCall implements RunningCall {
  readonly #state = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  #answer: Promise<FileAnswer> = Promise.resolve({});

  get isBusy(): boolean {
    return Atomics.load(this.#state, 0) === BUSY;
  }

  start(call: StartedCall): void {
    Atomics.store(this.#state, 0, BUSY);
    this.#answer = this.#make(call);
  }

  answer(): Promise<FileAnswer> {
    return this.#answer;
  }

  idleBy(endMs: number): boolean {
    return idleBy(this.#state, endMs, STATE_POLL_MS);
  }

  async #make({ operation, outside }: StartedCall): Promise<FileAnswer> {
    try {
      const result = await (outside as OutsideWork)(this.#state);
      return result >= 0 ? { value: result } : failure(operation, result);
    } catch (error) {
      Atomics.store(this.#state, 0, IDLE);
      const { message } = error as Error;
      return { error: { message, fields: {} } };
    }
  }
}

/** Returns the answer for a negative errno. */
function failure(syscall: string, errno: number): FileAnswer {
  const [code, text] = getSystemErrorMap().get(errno) ?? ['EIO', `error ${-errno}`];
  return { error: { message: `${code}: ${text}, ${syscall}`, fields: { errno, code, syscall } } };
}

function idleBy(state: Int32Array<SharedArrayBuffer>, endMs: number, pollMs: number): boolean {
  while (Atomics.load(state, 0) === BUSY) {
    const leftMs = endMs - performance.now();
    if (leftMs <= 0) return false;
    Atomics.wait(state, 0, BUSY, Math.min(leftMs, pollMs));
  }
  return true;
}
