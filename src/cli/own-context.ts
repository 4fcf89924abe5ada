import type { CommandContext } from '../command/context.js';
import { type ProgressStream, streamProgress } from '../command/progress.js';
import { Screen } from '../command/screen.js';
import { columnsOf, paintFor } from '../command/terminal.js';
import { systemClock } from '../system/system-clock.js';
import { defaultLogFormat, stderrLogger } from '../system/system-log.js';

const paintError = paintFor(process.stderr);

/** What the commands of this process get. `onNeedlessReader` is called when a command no longer needs anyone to read its output. */
export function ownContext(signal: AbortSignal, onNeedlessReader: () => void): CommandContext {
  return {
    clock: systemClock,
    signal,
    // A property that is asked for each time: a terminal's width changes.
    get columns() {
      return columnsOf(process.stdout);
    },
    paint: paintFor(process.stdout),
    screen: process.stdout.isTTY && process.env.TERM !== 'dumb' ? new Screen(process.stdout) : undefined,
    print: (text) => process.stdout.write(`${text}\n`),
    write: (text) => process.stdout.write(text),
    progress: () => streamProgress(isJson() ? LOGGED : process.stderr, systemClock),
    warn: (text) => sayOnStderr('warn', text),
    tell: (text) => {
      if (process.stderr.isTTY && !isJson()) process.stderr.write(`${text}\n`);
    },
    outliveReader: onNeedlessReader,
    setExitStatus: (status) => {
      process.exitCode = status;
    },
  };
}

/** Writes a warning or the error that ends the program to stderr, in the format of the log; with its stack, if one is given. */
export function sayOnStderr(level: 'warn' | 'error', text: string, stack?: string): void {
  if (isJson()) {
    stderrLogger('warn').log(level, text, { stack });
  } else {
    const prefix = level === 'warn' ? paintError('warning', 'warning:') : paintError('bad', 'error:');
    process.stderr.write(`${prefix} ${text}\n${stack === undefined ? '' : `${stack}\n`}`);
  }
}

function isJson(): boolean {
  return defaultLogFormat() === 'json';
}

/** Progress as log records: plain lines would not be JSON. */
const LOGGED: ProgressStream = {
  write: (text) => stderrLogger('info').log('info', text.trimEnd()),
};
