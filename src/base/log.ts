/** How much a record matters: the first for developers only, the last for operators at once. */
export type LogLevel = 'debug' | 'info' | 'warn' | 'error';
export type LogFields = Readonly<Record<string, string | number | boolean | undefined>>;

/** Structured log: a short constant message and fields; never a secret in either. */
export interface Logger {
  /** One record. Does not throw and does not wait. */
  log(level: LogLevel, message: string, fields?: LogFields): void;
}

const ORDER: Readonly<Record<LogLevel, number>> = { debug: 0, info: 1, warn: 2, error: 3 };

/** Writes one line per record to stderr, at `minLevel` and above. */
export function stderrLogger(minLevel: LogLevel): Logger {
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
  return stderrLogger(wanted !== undefined && wanted in ORDER ? (wanted as LogLevel) : 'warn');
}

export const silentLogger: Logger = { log() {} };
