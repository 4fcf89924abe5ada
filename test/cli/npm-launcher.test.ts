import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { watchNpmLauncher } from '../../src/processes/programs.js';
import { firstLine, isAlive, until } from '../_support/cli/run-cli.js';
import { ManualClock } from '../_support/clock.js';
import { freePort } from '../_support/support.js';

/** A watched launcher, the time and the parent of which the test decides. */
function watch(env: Record<string, string>) {
  const clock = new ManualClock();
  const state = { parent: 7, gone: 0 };
  const stop = watchNpmLauncher({ env, parentId: () => state.parent, clock, onGone: () => state.gone++ });
  return { state, stop, pass: (ms: number) => clock.advance(ms) };
}

const NPX = { npm_lifecycle_event: 'npx', npm_lifecycle_script: "'meshcache'" };

test('npm launcher: a program that npx has started ends once npx has', (t) => {
  const { state, pass } = watch(NPX);
  pass(10_000);
  t.is(state.gone, 0);
  state.parent = 1;
  pass(2_000);
  t.is(state.gone, 1);
  pass(10_000);
  t.is(state.gone, 1);
});

test('npm launcher: after the end of its terminal a program goes on without npx', (t) => {
  const { state, stop, pass } = watch(NPX);
  state.parent = 1;
  pass(500);
  stop();
  pass(10_000);
  t.is(state.gone, 0);
});

test('npm launcher: a program that a shell or nobody has started goes on without its parent', (t) => {
  const scripts = [
    'meshcache node &',
    'setsid meshcache node',
    'meshcache node & wait',
    'node server.js',
    '(meshcache node)',
  ];
  const started = scripts.map((npm_lifecycle_script) => ({ npm_lifecycle_event: 'start', npm_lifecycle_script }));
  for (const env of [{}, { npm_execpath: '/usr/bin/npm' }, ...started]) {
    const { state, pass } = watch(env as Record<string, string>);
    state.parent = 1;
    pass(10_000);
    t.is(state.gone, 0, JSON.stringify(env));
  }
  const { state, pass } = watch({
    npm_lifecycle_event: 'start',
    npm_lifecycle_script: 'meshcache node --config node.json',
  });
  state.parent = 1;
  pass(10_000);
  t.is(state.gone, 1);
});

/** A package that has installed meshcache. */
function packageFolder(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-npx-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, 'node_modules/.bin'), { recursive: true });
  symlinkSync(resolve('.'), join(folder, 'node_modules/meshcache'));
  symlinkSync('../meshcache/build/dist/cli.js', join(folder, 'node_modules/.bin/meshcache'));
  writeFileSync(join(folder, 'package.json'), '{ "name": "with-meshcache", "version": "1.0.0" }');
  return folder;
}

test('npm launcher: a node that npx runs leaves when npx gets SIGTERM', async (t) => {
  // Cause: npm hands the signal on to the shell between it and the node, and the shell ends without telling the node.
  const folder = packageFolder(t);
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(npm_|MESHCACHE_)/.test(name)));
  const options = ['--discovery-addr', `127.0.0.1:${await freePort()}`, '--pool', '16mb', '--no-client-socket'];
  const more = ['-o', 'protocol=tcp', '-o', 'metrics_enabled=false', '--wait-joined', '--json'];
  const npx = spawn('npx', ['--offline', 'meshcache', 'node', ...options, ...more], { cwd: folder, env });
  t.teardown(() => void npx.kill('SIGKILL'));
  const { pid } = JSON.parse(await firstLine(npx)) as { pid: number };
  t.teardown(() => void (isAlive(pid) && process.kill(pid, 'SIGKILL')));
  t.not(pid, npx.pid);
  npx.kill('SIGTERM');
  await until(() => !isAlive(pid));
  t.pass();
});
