import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { unitFor } from '../../src/cli/node.js';
import { runCli } from '../_support/cli/run-cli.js';
import { unless } from '../_support/unless.js';

const UNIT = readFileSync('deploy/meshcache.service', 'utf8');
const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0;
const withSystemd = unless(hasSystemd ? '' : 'no systemd-analyze');

/** Lines of a unit that differ from those of the package's. */
function changedLines(unit: string): string[] {
  const before = new Set(UNIT.split('\n'));
  return unit.split('\n').filter((line) => !before.has(line));
}

test('systemd unit: it starts the Node.js and the program that print it, and is else the one of the package', async (t) => {
  const run = await runCli(['node', '--print-unit']);
  t.is(run.status, 0, run.stderr);
  const [start, ...others] = changedLines(run.stdout);
  const [, node, program] = /^ExecStart=(\S+) (\S+) node$/.exec(start ?? '') ?? [];
  t.is(node, process.execPath);
  t.regex(program ?? '', /^\/.*\/cli\.js$/);
  if (!`${node}${program}`.includes(homedir())) t.deepEqual(others, []);
  t.is(run.stdout.split('\n').length, UNIT.split('\n').length + others.length);
});

test('systemd unit: what nvm installs in a home is all that the service sees of the home', (t) => {
  const prefix = join('/', 'home', 'alice/.nvm/versions/node/v22.1.0');
  const programs = { node: `${prefix}/bin/node`, meshcache: `${prefix}/lib/node_modules/meshcache/build/dist/cli.js` };
  t.deepEqual(changedLines(unitFor(programs, UNIT)), [
    `ExecStart=${prefix}/bin/node ${prefix}/lib/node_modules/meshcache/build/dist/cli.js node`,
    `BindReadOnlyPaths=${prefix}`,
    `BindReadOnlyPaths=${prefix}/lib/node_modules`,
  ]);
  t.regex(UNIT, /^ProtectHome=tmpfs$/m);
  const checkout = join('/', 'root', 'meshcache');
  const own = unitFor({ node: '/usr/bin/node', meshcache: join(checkout, 'build/dist/cli.js') }, UNIT);
  t.deepEqual(changedLines(own).slice(1), [`BindReadOnlyPaths=${checkout}`]);
  const everywhere = unitFor({ node: '/usr/bin/node', meshcache: '/usr/lib/node_modules/meshcache/cli.js' }, UNIT);
  t.deepEqual(changedLines(everywhere), ['ExecStart=/usr/bin/node /usr/lib/node_modules/meshcache/cli.js node']);
});

withSystemd('systemd unit: systemd finds the programs in folders with blanks and percents', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-unit-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const bin = join(folder, 'a b%h', 'bin');
  mkdirSync(bin, { recursive: true });
  symlinkSync(process.execPath, join(bin, 'node'));
  copyFileSync('package.json', join(bin, 'cli.js'));
  const verify = (programs: { node: string; meshcache: string }): string => {
    const file = join(folder, 'meshcache.service');
    writeFileSync(file, unitFor(programs, UNIT));
    const { stdout, stderr } = spawnSync('systemd-analyze', ['verify', file], { encoding: 'utf8' });
    return stdout + stderr;
  };
  t.is(verify({ node: join(bin, 'node'), meshcache: join(bin, 'cli.js') }), '');
  t.regex(verify({ node: join(bin, 'nodejs'), meshcache: join(bin, 'cli.js') }), /nodejs is not executable/);
});
