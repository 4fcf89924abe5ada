import { logNodeWarnings } from '../../../system/system-log.js';
import { startOfThread } from '../../../system/system-threads.js';
import { threadEnvironment } from '../threads/thread-environment.js';
import { type ServingSetup, serve } from './serving-program.js';

/** The first module of a serving thread. */

logNodeWarnings();
const { data, messages } = startOfThread();
const setup = data as ServingSetup;
void serve(
  setup,
  messages,
  threadEnvironment(setup, (report) => messages.post(report)),
);
