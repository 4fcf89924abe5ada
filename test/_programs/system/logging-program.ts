/*
 * A program with the logger and nothing else: it logs once, and when it is told to, again and again; ends with status 0.
 */
import { stderrLogger } from '../../../src/system/system-log.js';

const LINES = 10;

const logger = stderrLogger('info');
logger.log('info', 'started');
process.once('message', async () => {
  for (let line = 0; line < LINES; line++) {
    logger.log('warn', 'a line that nobody reads', { line });
    // An error of the stream is reported after the call.
    await new Promise((resolve) => setImmediate(resolve));
  }
  process.exit(0);
});
