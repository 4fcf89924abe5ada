import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { runCli } from '../_support/cli/run-cli.js';
import { canMakeEnvironments, PYTHON, PYTHON_TIMEOUT_MS, run, succeeds } from '../_support/python.js';

const hasVenv = canMakeEnvironments();

const TYPED = [
  'src/python/meshcache',
  'src/python/backend.py',
  'examples/python/attach.py',
  'examples/python/attach_asyncio.py',
  'examples/router/router.py',
];
const hasMypy = succeeds('mypy', '--version');
(hasMypy ? test : test.skip)(`python: types are strict${hasMypy ? '' : ' (skipped: no mypy)'}`, async (t) => {
  await run(t, 'mypy', ['--strict', '--cache-dir', '/dev/null', ...TYPED]);
});

const hasBlack = succeeds('black', '--version');
(hasBlack ? test : test.skip)(`python: sources are formatted${hasBlack ? '' : ' (skipped: no black)'}`, async (t) => {
  await run(t, 'black', [
    '--check',
    '--line-length',
    '120',
    'src/python',
    'test/python',
    'test/engines',
    'test/data',
    'examples',
  ]);
});

const canInstall = hasVenv ? test : test.skip;
canInstall(`python: pip installs the built package offline${hasVenv ? '' : ' (skipped: no venv)'}`, async (t) => {
  t.timeout(PYTHON_TIMEOUT_MS);
  const asked = await runCli(['python-path']);
  t.is(asked.status, 0, asked.stderr);
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-venv-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  await run(t, PYTHON, ['-m', 'venv', folder]);
  await run(t, join(folder, 'bin/pip'), ['install', '--no-index', '--disable-pip-version-check', asked.stdout.trim()]);
  const show = 'import meshcache, sys; print(meshcache.__version__, "numpy" in sys.modules, meshcache.__file__)';
  const [version, hasNumpy, file] = (await run(t, join(folder, 'bin/python'), ['-I', '-c', show])).split(' ');
  t.is(version, JSON.parse(readFileSync('package.json', 'utf8')).version);
  t.is(hasNumpy, 'False');
  t.true(file?.startsWith(folder), file);
  await run(t, join(folder, 'bin/pip'), ['check']);
});
