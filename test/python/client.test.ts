import test from 'ava';
import { PYTHON, PYTHON_TIMEOUT_MS, run, succeeds } from '../_support/python.js';

const hasPython = succeeds(PYTHON, '-c', 'import sys; sys.exit(sys.version_info < (3, 10))');
const python = hasPython ? test : test.skip;
const why = hasPython ? '' : ' (skipped: no python3 of 3.10 or newer)';

python(`python: the client and the adapters pass their own tests${why}`, async (t) => {
  t.timeout(PYTHON_TIMEOUT_MS);
  await run(t, PYTHON, [
    '-W',
    'error::ResourceWarning',
    '-m',
    'unittest',
    'discover',
    '--start-directory',
    'test/python',
  ]);
});
