/** The first module of the serving thread. */
import { logNodeWarnings } from '../../../system/process-events.js';
import { startOfThread } from '../../../system/system-threads.js';
import { servingEnvironment } from './serving-environment.js';
import type { FromServing, ServingSetup } from './serving-messages.js';
import { serve } from './serving-program.js';

logNodeWarnings();
const { data, messages } = startOfThread();
const setup = data as ServingSetup;
const report = (message: FromServing): void => messages.post(message);
void serve(setup, messages, servingEnvironment(setup, report));
