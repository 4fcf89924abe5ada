import { runOnThread } from '../threads/thread-environment.js';
import { serve } from './serving-program.js';

/** The first module of a serving thread. */

runOnThread(serve);
