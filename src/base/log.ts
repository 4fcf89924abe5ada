/** How much a record matters: the first for developers only, the last for operators at once. */
export type LogLevel = 'debug' | 'info' | 'warn' | 'error';
export type LogFields = Readonly<Record<string, string | number | boolean | undefined>>;

/** Structured log: a short constant message and fields; never a secret in either. */
export interface Logger {
  /** One record. Does not throw and does not wait. */
  log(level: LogLevel, message: string, fields?: LogFields): void;
}

const ORDER: Readonly<Record<LogLevel, number>> = { debug: 0, info: 1, warn: 2, error: 3 };
/** All levels, the one that says most first. */
export const LOG_LEVELS: readonly string[] = Object.keys(ORDER);

/**
 * Writes one line per record to stderr, at `minLevel` and above. When the terminal or the reader of stderr is gone, lines are
 * lost and the program goes on: an error of stderr that nobody listens for would end it.
 */
export function stderrLogger(minLevel: LogLevel): Logger {
  if (!process.stderr.listeners('error').includes(ignoreError)) process.stderr.on('error', ignoreError);
  return {
    log(level, message, fields) {
      if (ORDER[level] < ORDER[minLevel]) return;
      let line = `${new Date().toISOString()} ${level} meshcache: ${message}`;
      for (const [name, value] of Object.entries(fields ?? {})) {
        if (value !== undefined) line += ` ${name}=${typeof value === 'string' ? JSON.stringify(value) : value}`;
      }
      process.stderr.write(`${line}\n`);
    },
  };
}

/** `MESHCACHE_LOG` (debug, info, warn, error) chooses the level; warn without it. */
export function defaultLogger(): Logger {
  const wanted = process.env.MESHCACHE_LOG;
  return stderrLogger(isLogLevel(wanted) ? wanted : 'warn');
}

export function isLogLevel(text: string | undefined): text is LogLevel {
  return text !== undefined && LOG_LEVELS.includes(text);
}

export const silentLogger: Logger = { log() {} };

/** One function, so that it is found again among the listeners. */
function ignoreError(): void {}
