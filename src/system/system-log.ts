import { styleText } from 'node:util';
import { isLogLevel, LOG_LEVELS, type LogFields, type Logger, type LogLevel } from '../base/environment/log.js';

/**
 * Format of a log line: text for people, or one JSON object with `ts`, `level`, `msg` and `fields` for log collectors.
 */
export type LogFormat = 'text' | 'json';

export const LOG_FORMATS: readonly LogFormat[] = ['text', 'json'];

interface LogRecord {
  readonly time: Date;
  readonly level: LogLevel;
  readonly message: string;
  readonly fields: LogFields;
}

/**
 * Creates a logger that writes one line per record of `minLevel` and above to stderr. If stderr is closed, lines are
 * lost and the program continues; an unhandled error of stderr would end it.
 */
export function stderrLogger(minLevel: LogLevel, format: LogFormat = defaultLogFormat()): Logger {
  if (!process.stderr.listeners('error').includes(ignoreError)) process.stderr.on('error', ignoreError);
  const formatRecord = format === 'json' ? jsonLine : textLine;
  return {
    log(level, message, fields = {}) {
      if (LOG_LEVELS.indexOf(level) < LOG_LEVELS.indexOf(minLevel)) return;
      process.stderr.write(`${formatRecord({ time: new Date(), level, message, fields })}\n`);
    },
  };
}

/** Creates a logger for stderr at the level of `MESHCACHE_LOG` (debug, info, warn, error). Default: warn. */
export function defaultLogger(): Logger {
  const wanted = process.env.MESHCACHE_LOG;
  return stderrLogger(isLogLevel(wanted) ? wanted : 'warn');
}

/** Returns the format of `MESHCACHE_LOG_FORMAT`. Default: text. */
export function defaultLogFormat(): LogFormat {
  return isLogFormat(process.env.MESHCACHE_LOG_FORMAT) ? process.env.MESHCACHE_LOG_FORMAT : 'text';
}

export function isLogFormat(text: string | undefined): text is LogFormat {
  return (LOG_FORMATS as readonly (string | undefined)[]).includes(text);
}

/** Formats a record as one JSON object, without a line feed. */
export function jsonLine({ time, level, message, fields }: LogRecord): string {
  return JSON.stringify({ ts: time.toISOString(), level, msg: message, fields });
}

function textLine({ time, level, message, fields }: LogRecord): string {
  let line = `${time.toISOString()} ${inColour(level)} meshcache: ${message}`;
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined) line += ` ${name}=${typeof value === 'string' ? JSON.stringify(value) : value}`;
  }
  return line;
}

/** Colours the names of the levels warn and error, if stderr is a terminal with colours. */
function inColour(level: LogLevel): string {
  if (level !== 'warn' && level !== 'error') return level;
  return styleText(level === 'warn' ? 'yellow' : 'red', level, { stream: process.stderr });
}

/** One shared function, so that it can be found among the listeners. */
function ignoreError(): void {}

/** Exit status of Node for an uncaught error. */
const EXIT_UNCAUGHT = 1;

/**
 * Turns warnings of Node, which it writes to stderr as plain lines, into log records. Does nothing unless the log
 * format is JSON.
 */
export function logNodeWarnings(): void {
  // Node's own listener writes the plain lines. With --no-warnings there is none.
  if (defaultLogFormat() !== 'json' || process.listenerCount('warning') === 0) return;
  process.removeAllListeners('warning');
  process.on('warning', ({ name, message, stack }) => {
    stderrLogger('warn').log('warn', `${name}: ${message}`, { stack });
  });
}

/**
 * Turns the uncaught error that ends this process into a log record, because the stack that Node writes is not JSON.
 * The exit status stays the same. Does nothing unless the log format is JSON.
 */
export function logUncaughtErrors(): void {
  if (defaultLogFormat() !== 'json') return;
  process.on('uncaughtException', (error: unknown) => {
    const { message, stack } = error instanceof Error ? error : { message: String(error), stack: undefined };
    stderrLogger('error').log('error', `the process ends, as nobody caught an error: ${message}`, { stack });
    process.exit(EXIT_UNCAUGHT);
  });
}
