import { logNodeWarnings } from '../../../system/system-log.js';
import { startOfThread } from '../../../system/system-threads.js';
import { threadEnvironment } from '../threads/thread-environment.js';
import { type ReadingSetup, readOnThread } from './reading-program.js';

/** The first module of a reading thread. */

logNodeWarnings();
const { data, messages } = startOfThread();
const setup = data as ReadingSetup;
void readOnThread(
  setup,
  messages,
  threadEnvironment(setup, (report) => messages.post(report)),
);
