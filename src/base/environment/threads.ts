/** One side of a pair between two threads: messages arrive in order, each once, after they were posted. */
export interface MessageEnd {
  /** Without effect when either side has closed. */
  post(message: unknown): void;
  /** From now on messages arrive there, those that have waited included; the end keeps the process alive from now on. */
  onMessage(listener: (message: unknown) => void): void;
  /** The next message that has been posted and has not arrived; undefined: there is none. */
  receive(): unknown;
  /** The other side closes, too. What was posted just before may not arrive there any more. */
  close(): void;
  /** Called once, when either side has closed. */
  onClose(listener: () => void): void;
}

/** What runs on a thread of its own. */
export interface ThreadProgram {
  /** For those who look at the threads of the process. */
  readonly name: string;
  /** The module that a thread begins with; it gets `data` and its end of the messages. Its thread ends when nothing keeps it alive. */
  readonly script: URL;
  /** What can be cloned, and memory that is shared. */
  readonly data: unknown;
  /**
   * The same program on the calling thread, for an environment without threads. Resolves when it has ended, as it does by itself, or as
   * soon as it can when `messages` are closed by the other side; rejects with the error that ended it.
   */
  inline(data: unknown, messages: MessageEnd): Promise<void>;
}

/** A running {@link ThreadProgram}. */
export interface Thread {
  readonly messages: MessageEnd;
  /** Resolves when it has ended: with the message of the error that ended it, or with nothing. Never rejects. */
  readonly ended: Promise<string | undefined>;
  /** Ends it wherever it is; resolves when it has ended. */
  terminate(): Promise<void>;
}

/** Threads beside the calling one; a simulator hands in an environment without any. */
export interface Threads {
  /** Whether other threads of the process may copy and sum pages; false: the calling one does. */
  readonly canCopy: boolean;
  /** Starts a thread for the program. */
  start(program: ThreadProgram): Thread;
}
