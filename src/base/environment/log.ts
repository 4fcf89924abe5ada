/** Severity of a record: `debug` is for developers only, `error` needs an operator at once. */
export type LogLevel = 'debug' | 'info' | 'warn' | 'error';
export type LogFields = Readonly<Record<string, string | number | boolean | undefined>>;

/** Structured log: a short constant message and fields; neither ever contains a secret. */
export interface Logger {
  /** Writes one record. Neither throws nor blocks. */
  log(level: LogLevel, message: string, fields?: LogFields): void;
}

/** All levels, the most verbose first. */
export const LOG_LEVELS: readonly string[] = ['debug', 'info', 'warn', 'error'] satisfies LogLevel[];

export function isLogLevel(text: string | undefined): text is LogLevel {
  return text !== undefined && LOG_LEVELS.includes(text);
}

export const silentLogger: Logger = { log() {} };
