import { open, rm, stat, writeFile } from 'node:fs/promises';
import type { Clock } from '../base/environment/clock.js';
import type { Progress } from './progress.js';
import type { Paint, Screen } from './terminal.js';

/** What a command gets from the program that runs it. */
export interface CommandContext {
  readonly clock: Clock;
  /** Aborted by SIGINT and SIGTERM. */
  readonly signal: AbortSignal;
  /** Width of the terminal that stdout is now; undefined if it is none, or does not know its width. */
  readonly columns: number | undefined;
  /** Paints text for stdout. */
  readonly paint: Paint;
  /** Writes text and a line feed to stdout. */
  print(text: string): void;
  /** The terminal that stdout is, for a command that refreshes what it shows; undefined if it is none. */
  readonly screen: Screen | undefined;
  /** Writes text to stdout as it is. */
  write(text: string): void;
  progress(): Progress;
  /** Writes a warning to stderr. */
  warn(text: string): void;
  /** Writes text to stderr if that is a terminal, for a user who looks on. */
  tell(text: string): void;
  /** For a command that continues when nobody reads its output any more; other commands end then. */
  outliveReader(): void;
  /** Sets the exit status of a command that has printed a bad result. */
  setExitStatus(status: number): void;
}

/** Prints a result as JSON with `--json`, else as text. */
export function printResult<T>(
  context: CommandContext,
  result: T,
  { json, asText }: { readonly json: boolean; readonly asText: (result: T) => string },
): void {
  context.print(json ? JSON.stringify(result) : asText(result));
}

/**
 * Waits for `work`, which ignores signals. Rejects after a signal, and the program ends while the work is in progress.
 */
export async function untilInterrupted<T>(work: Promise<T>, { signal }: CommandContext): Promise<T> {
  // Nobody waits for the work after a signal, which may have come before it began.
  work.catch(() => {});
  signal.throwIfAborted();
  const interrupted = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
  return Promise.race([work, interrupted]);
}

/** Exit status of a command that was called in a wrong way. */
export const EXIT_WRONG_USAGE = 2;
/** Exit status of a command that could not do what it was asked, or found something wrong. */
export const EXIT_FAILURE = 1;

/** Ends a command with a message for the person who called it, and without a stack. */
export class CommandFailure extends Error {
  readonly exitStatus: number;

  constructor(message: string, exitStatus: number = EXIT_FAILURE, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.name = 'CommandFailure';
    this.exitStatus = exitStatus;
  }
}

/** The command line itself is wrong; the message names the option, what was given and what is allowed. */
export function wrongUsage(message: string): CommandFailure {
  return new CommandFailure(message, EXIT_WRONG_USAGE);
}

/** Checks that the file can be written before the work begins, so that a wrong name does not cost the result. */
export async function checkWritable(file: string): Promise<void> {
  try {
    await (await open(file, 'ax')).close();
    await rm(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw unwritable(file, error as Error);
    await checkExisting(file);
  }
}

/** Opens the file as `writePage` will, but changes nothing. A pipe is not opened: its reader would see an end. */
async function checkExisting(file: string): Promise<void> {
  try {
    if (!(await stat(file)).isFIFO()) await (await open(file, 'a')).close();
  } catch (error) {
    throw unwritable(file, error as Error);
  }
}

export async function writePage(file: string, page: string): Promise<void> {
  await writeFile(file, page).catch((error: Error) => {
    throw unwritable(file, error);
  });
}

function unwritable(file: string, cause: Error): CommandFailure {
  return new CommandFailure(`cannot write the report ${JSON.stringify(file)}: ${cause.message}`, undefined, { cause });
}
