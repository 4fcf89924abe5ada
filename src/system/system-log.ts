import { isLogLevel, LOG_LEVELS, type Logger, type LogLevel } from '../base/environment/log.js';

/**
 * A logger that writes one line per record of `minLevel` and above to stderr. If stderr has been closed, lines are lost and the
 * program goes on: an unhandled error of stderr would end it.
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

/** A logger for stderr at the level of `MESHCACHE_LOG` (debug, info, warn, error), by default warn. */
export function defaultLogger(): Logger {
  const wanted = process.env.MESHCACHE_LOG;
  return stderrLogger(isLogLevel(wanted) ? wanted : 'warn');
}

/** A single function, so that it can be found among the listeners. */
function ignoreError(): void {}
