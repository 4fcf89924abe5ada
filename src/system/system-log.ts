import { isLogLevel, LOG_LEVELS, type Logger, type LogLevel } from '../base/environment/log.js';

/**
 * Writes one line per record to stderr, at `minLevel` and above. When the terminal or the reader of stderr is gone, lines are
 * lost and the program goes on: an error of stderr that nobody listens for would end it.
 */
export function stderrLogger(minLevel: LogLevel): Logger {
  if (!process.stderr.listeners('error').includes(ignoreError)) process.stderr.on('error', ignoreError);
  return {
    log(level, message, fields) {
      if (LOG_LEVELS.indexOf(level) < LOG_LEVELS.indexOf(minLevel)) return;
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

/** One function, so that it is found again among the listeners. */
function ignoreError(): void {}
