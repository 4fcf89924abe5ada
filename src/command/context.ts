import type { Clock } from '../base/environment/clock.js';
import type { Progress } from './progress.js';

/** What a command gets from the program around it. */
export interface CommandContext {
  readonly clock: Clock;
  /** Aborted by SIGINT and SIGTERM. */
  readonly signal: AbortSignal;
  /** Width of the terminal that stdout is; undefined: it is none. */
  readonly columns: number | undefined;
  /** Writes text and a line feed to stdout. */
  print(text: string): void;
  progress(): Progress;
  /** Writes a warning to stderr. */
  warn(text: string): void;
  /** Writes text to stderr where that is a terminal: something for whoever looks on. */
  tell(text: string): void;
  /** For a command that goes on when nobody reads its output any more; others end then. */
  outliveReader(): void;
  /** For a command that has printed its result, and the result is bad. */
  setExitStatus(status: number): void;
}

/** Prints a result: as it is with `--json`, else as text. */
export function printResult<T>(
  context: CommandContext,
  result: T,
  { json, asText }: { readonly json: boolean; readonly asText: (result: T) => string },
): void {
  context.print(json ? JSON.stringify(result) : asText(result));
}

/** As `work`, which knows nothing of signals: rejects after one, and the program ends with it under way. */
export async function untilInterrupted<T>(work: Promise<T>, { signal }: CommandContext): Promise<T> {
  signal.throwIfAborted();
  const interrupted = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
  return Promise.race([work, interrupted]);
}
