import { defaultLogFormat, stderrLogger } from './system-log.js';

/** Exit status of Node for an error that nobody has caught. */
const EXIT_UNCAUGHT = 1;

/**
 * Makes warnings of Node, which it writes to stderr as plain lines, records of the log. Does nothing unless the log is
 * JSON.
 */
export function logNodeWarnings(): void {
  // Node's own listener writes the plain lines; there is none with --no-warnings.
  if (defaultLogFormat() !== 'json' || process.listenerCount('warning') === 0) return;
  process.removeAllListeners('warning');
  process.on('warning', ({ name, message, stack }) => {
    stderrLogger('warn').log('warn', `${name}: ${message}`, { stack });
  });
}

/**
 * Makes the error that ends this process a record of the log: the stack that Node writes is no JSON. The exit status
 * stays the same. Does nothing unless the log is JSON.
 */
export function logUncaughtErrors(): void {
  if (defaultLogFormat() !== 'json') return;
  process.on('uncaughtException', (error: unknown) => {
    const { message, stack } = error instanceof Error ? error : { message: String(error), stack: undefined };
    stderrLogger('error').log('error', `the process ends, as nobody caught an error: ${message}`, { stack });
    process.exit(EXIT_UNCAUGHT);
  });
}
