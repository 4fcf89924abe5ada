import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { collect, runCli } from '../_support/cli/run-cli.js';

const PYTHON = 'python3';
const TESTS_TIMEOUT_MS = 600_000;

function succeeds(program: string, ...args: string[]): boolean {
  return spawnSync(program, args).status === 0;
}

const hasPython = succeeds(PYTHON, '-c', 'import sys; sys.exit(sys.version_info < (3, 10))');
const hasVenv = hasPython && succeeds(PYTHON, '-c', 'import ensurepip, venv');
const python = hasPython ? test : test.skip;
const why = hasPython ? '' : ' (skipped: no python3 of 3.10 or newer)';

/** Runs a program, and does not block: ava is told of the time that the test may take only when this thread has a turn. */
async function run(
  t: ExecutionContext,
  program: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<string> {
  const child = spawn(program, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: TESTS_TIMEOUT_MS,
    // Nothing is written beside the sources.
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1', ...env },
  });
  const { status, stdout, stderr } = await collect(child);
  t.is(status, 0, `${program} ${args.join(' ')}\n${stdout}\n${stderr}`);
  return stdout.trim();
}

python(`python: the client passes its own tests${why}`, async (t) => {
  t.timeout(TESTS_TIMEOUT_MS);
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

const TYPED = [
  'src/python/meshcache',
  'src/python/backend.py',
  'examples/python/attach.py',
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
  t.timeout(TESTS_TIMEOUT_MS);
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
