// Loaded into each process of tests: one that has not ended a minute after its tests have fails, and says what keeps it.
import { basename } from 'node:path';
import process from 'node:process';
import test, { registerCompletionHandler } from 'ava';

/** Far more than any of them takes to end. */
const PATIENCE_MS = Number(process.env.MESHCACHE_TEST_EXIT_MS ?? 60_000);

process.title = `tests of ${basename(test.meta.file)}`;

registerCompletionHandler(() => {
  setTimeout(() => {
    const kinds = [...new Set(process.getActiveResourcesInfo())];
    console.error(`${test.meta.file} does not end after its tests; it is kept by: ${kinds.join(', ')}.`);
    process.exit(1);
  }, PATIENCE_MS).unref();
});
