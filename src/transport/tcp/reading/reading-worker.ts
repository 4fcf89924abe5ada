import { runOnThread } from '../threads/thread-environment.js';
import { readOnThread } from './reading-program.js';

/** The first module of a reading thread. */

runOnThread(readOnThread);
