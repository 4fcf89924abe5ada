/** Source of time for the rest of the code; a simulator or a test supplies its own. */
export interface Clock {
  /**
   * Monotonic milliseconds from an arbitrary start, the same for all processes of a host; the only time for deadlines.
   */
  nowMs(): number;
  /** Milliseconds of processor time that this process has used. Default: unknown. */
  workedMs?(): number;
  /** Milliseconds since 1970 by the wall clock, not negative; may jump, so only for display and incarnations. */
  wallMs(): number;
  /**
   * Calls `fn` once after `delayMs`. Returns a function that cancels it (harmless afterwards).
   * The timer does not keep the process alive unless `keepAlive` is true.
   */
  after(delayMs: number, fn: () => void, options?: { keepAlive?: boolean }): () => void;
  /** Resolves after pending input and output has been handled. */
  yield(): Promise<void>;
  /** Calls `fn` when the current task has ended, before any input, output or timer. */
  soon(fn: () => void): void;
  /**
   * Says that input will probably come within a fraction of a millisecond, so that the thread had better look for it than
   * sleep. Default: it sleeps.
   */
  expectInput?(): void;
}

/**
 * Waits for `work`, but at most `ms`, and keeps the process alive meanwhile. Resolves with true when `work` is done,
 * and with false if the time ends first. Rejects as `work` does.
 */
export async function within(clock: Clock, ms: number, work: Promise<unknown>): Promise<boolean> {
  let stopWaiting = () => {};
  const tooLong = new Promise<boolean>((resolve) => {
    stopWaiting = clock.after(ms, () => resolve(false), { keepAlive: true });
  });
  try {
    return await Promise.race([work.then(() => true), tooLong]);
  } finally {
    stopWaiting();
  }
}
