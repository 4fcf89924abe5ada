#!/usr/bin/env node
import { type Command, CommanderError } from 'commander';
import { ConfigError } from '../base/errors.js';
import { type CommandContext, CommandFailure, EXIT_FAILURE, EXIT_WRONG_USAGE } from '../command/context.js';
import { helpWidth, wrapHelp } from '../command/help-text.js';
import { type ProgressStream, streamProgress } from '../command/progress.js';
import { printable } from '../command/table.js';
import { columnsOf, paintFor, Screen } from '../command/terminal.js';
import { watchNpmLauncher } from '../processes/programs.js';
import { systemClock } from '../system/system-clock.js';
import {
  defaultLogFormat,
  isLogFormat,
  logNodeWarnings,
  logUncaughtErrors,
  stderrLogger,
} from '../system/system-log.js';
import { commandLineOf, createProgram, withSubcommands } from './program.js';

const paintError = paintFor(process.stderr);

/** Progress as log records, because plain lines would not be JSON. */
const LOGGED: ProgressStream = {
  write: (text) => stderrLogger('info').log('info', text.trimEnd()),
};

/** Exit status that a shell reports for a program ended by Ctrl-C. */
const EXIT_INTERRUPTED = 130;
/**
 * How long the program may stay open after its command has ended, in milliseconds. Then it exits even if the command
 * has left something open.
 */
const EXIT_GRACE_MS = 3_000;
/**
 * How long the program may stay open after a signal has ended its command, in milliseconds: enough for the output to be
 * read.
 */
const EXIT_GRACE_WHEN_ENDED_MS = 200;

/** Error codes of writes to a pipe without a reader and to a terminal that is gone. */
const READER_GONE: ReadonlySet<string | undefined> = new Set(['EPIPE', 'EIO']);

/**
 * Makes commander end by an exception, write errors in the format of the log, and wrap its help at the terminal's
 * width.
 */
function directOutput(command: Command): void {
  const advice = isJson() ? `\nSee: ${commandLineOf(command)} --help` : '';
  const width = helpWidth(columnsOf(process.stdout));
  const writeErr = (text: string) =>
    isJson() ? sayOnStderr('error', text.trimEnd()) : process.stderr.write(wrapHelp(text, width));
  command.exitOverride().configureOutput({
    outputError: (text) => sayOnStderr('error', `${text.replace(/^error: /, '').trimEnd()}${advice}`),
    getOutHelpWidth: () => width,
    getErrHelpWidth: () => width,
    writeOut: (text) => process.stdout.write(wrapHelp(text, width)),
    writeErr,
  });
  if (!isJson()) command.showHelpAfterError(`See: ${commandLineOf(command)} --help`);
}

/**
 * Takes the log format from the command line before it is parsed, because parse errors are logged, too. Sets it in the
 * environment, so that processes that a command starts use it as well.
 */
function takeLogFormat(words: readonly string[]): void {
  words.forEach((word, i) => {
    const given = word.startsWith('--log-format=') ? word.slice('--log-format='.length) : words[i + 1];
    if (word.startsWith('--log-format') && isLogFormat(given)) process.env.MESHCACHE_LOG_FORMAT = given;
  });
}

/**
 * The words to parse: `sim growth --help` for `help sim growth`. Of an unknown command only its name, because a --help
 * beside it would hide that it is unknown.
 */
function wordsFor(command: Command, words: readonly string[], asked: readonly string[] = []): readonly string[] {
  const [word, ...others] = words;
  if (word === undefined || word.startsWith('-') || command.commands.length === 0) return [...asked, ...words];
  if (word === 'help') return wordsFor(command, others, ['--help']);
  const named = command.commands.find((each) => each.name() === word);
  return named === undefined ? [word] : [word, ...wordsFor(named, others, asked)];
}

interface Interruptible {
  /**
   * Aborted by the first SIGINT or SIGTERM, and when the npm that started the program has ended. A second signal ends
   * the program at once.
   */
  readonly signal: AbortSignal;
  /** Keeps the program running when npm ends. */
  outliveLauncher(): void;
}

function interruptible(): Interruptible {
  const controller = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (controller.signal.aborted) process.exit(EXIT_INTERRUPTED);
      controller.abort(new CommandFailure('interrupted', EXIT_INTERRUPTED));
    });
  }
  const outliveLauncher = watchNpmLauncher({
    env: process.env,
    parentId: () => process.ppid,
    clock: systemClock,
    onGone: () => controller.abort(new CommandFailure('npm, which started this command, has ended', EXIT_INTERRUPTED)),
  });
  return { signal: controller.signal, outliveLauncher };
}

function report(error: unknown, signal: AbortSignal): number {
  if (error instanceof CommanderError) {
    // Commander has already printed the error. A requested help or version is no error.
    return error.exitCode === 0 ? 0 : EXIT_WRONG_USAGE;
  }
  const cause = signal.aborted ? signal.reason : error;
  const message = cause instanceof Error ? cause.message : String(cause);
  // The message may contain text from a node, so only printable characters are shown.
  const stack = process.env.MESHCACHE_LOG === 'debug' && error instanceof Error ? error.stack : undefined;
  sayOnStderr('error', message.split('\n').map(printable).join('\n'), stack);
  if (cause instanceof CommandFailure) return cause.exitStatus;
  return cause instanceof ConfigError ? EXIT_WRONG_USAGE : EXIT_FAILURE;
}

async function main(): Promise<void> {
  const { signal, outliveLauncher } = interruptible();
  let needsReader = true;
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (!READER_GONE.has(error.code)) throw error;
    // The reader of the output has closed it.
    if (needsReader) process.exit(EXIT_FAILURE);
  });
  // Errors of stderr are ignored: if nobody reads it, only its text is lost.
  process.stderr.on('error', () => {});
  const context = ownContext(signal, () => {
    needsReader = false;
    // A command that needs no reader also outlives its terminal, whose end ends npm as well.
    process.on('SIGHUP', outliveLauncher);
  });
  const words = process.argv.slice(2);
  takeLogFormat(words);
  logNodeWarnings();
  logUncaughtErrors();
  try {
    const program = await createProgram(words, context);
    for (const command of withSubcommands(program)) directOutput(command);
    await program.parseAsync(wordsFor(program, words), { from: 'user' });
  } catch (error) {
    process.exitCode = report(error, signal);
  }
  systemClock.after(signal.aborted ? EXIT_GRACE_WHEN_ENDED_MS : EXIT_GRACE_MS, () => process.exit());
}

await main();

/**
 * The context of this process's commands. `onNeedlessReader` is called when a command no longer needs anyone to read
 * its output.
 */
function ownContext(signal: AbortSignal, onNeedlessReader: () => void): CommandContext {
  return {
    clock: systemClock,
    signal,
    // A getter, because the width of a terminal changes.
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

/**
 * Writes a warning, or the error that ends the program, to stderr in the format of the log, with the stack if one is
 * given.
 */
function sayOnStderr(level: 'warn' | 'error', text: string, stack?: string): void {
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
