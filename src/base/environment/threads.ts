/** One end of a message channel between two threads: messages arrive in order, each once. */
export interface MessageEnd {
  /** Posts a message; has no effect if either side has closed. */
  post(message: unknown): void;
  /**
   * Delivers messages to `listener`, including those that have waited. From now on this end keeps the process alive.
   */
  onMessage(listener: (message: unknown) => void): void;
  /** Takes the next posted message; undefined: there is none. */
  receive(): unknown;
  /** Closes both sides. Messages posted just before may be lost. */
  close(): void;
  /** Calls `listener` once, when either side has closed. */
  onClose(listener: () => void): void;
}

/** A program that runs on a thread of its own. */
export interface ThreadProgram {
  /** Name of the thread, for tools that list the threads of the process. */
  readonly name: string;
  /**
   * The thread's first module; it gets `data` and its end of the messages. The thread ends when nothing keeps it alive.
   */
  readonly script: URL;
  /** Start data: values that can be cloned, and shared memory. */
  readonly data: unknown;
  /**
   * Runs the same program on the calling thread, for an environment without threads. Resolves when the program has
   * ended, soon after the other side has closed `messages` at the latest; rejects with the error that ended it.
   */
  inline(data: unknown, messages: MessageEnd): Promise<void>;
}

/** A running {@link ThreadProgram}. */
export interface Thread {
  readonly messages: MessageEnd;
  /**
   * Resolves when the thread has ended: with the message of the error that ended it, or with undefined. Never rejects.
   */
  readonly ended: Promise<string | undefined>;
  /** Stops the thread wherever it is; resolves when it has ended. */
  terminate(): Promise<void>;
}

/** Threads beside the calling one; a simulator supplies an environment without threads. */
export interface Threads {
  /** Whether other threads may copy pages and compute checksums; if not, the calling thread does. */
  readonly canCopy: boolean;
  /** Starts a thread for the program. */
  start(program: ThreadProgram): Thread;
  /**
   * Joins the channel with this name, on which every message goes to all other threads that have joined it. It does not
   * keep the process alive. If the method is missing, threads cannot exchange messages.
   */
  channel?(name: string): MessageEnd;
}
