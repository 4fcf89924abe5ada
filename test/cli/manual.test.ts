import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { manualName, manualPage } from '../../src/cli/manual/manual-page.js';
import { createProgram } from '../../src/cli/program.js';
import type { CommandContext } from '../../src/command/context.js';
import { definitionOf, ownCommands } from '../../src/command/definition.js';
import { whyWithout } from '../_support/cli/shells.js';
import { pack } from '../_support/package/packed.js';
import { unless } from '../_support/unless.js';

const FOLDER = 'build/man';
const commands = async () => {
  const program = definitionOf(await createProgram([], {} as CommandContext));
  return ownCommands(program);
};
const pages = () => readdirSync(FOLDER).map((name) => join(FOLDER, name));

test('manual: every command has a page, which names its options and shows its examples', async (t) => {
  const all = await commands();
  t.deepEqual(readdirSync(FOLDER).sort(), all.map((command) => `${manualName(command)}.1`).sort());
  // Npm installs only the pages that are listed one by one.
  const { man } = JSON.parse(readFileSync('package.json', 'utf8')) as { man: string[] };
  t.deepEqual(man, pages().sort());
  for (const command of all) {
    const page = readFileSync(join(FOLDER, `${manualName(command)}.1`), 'utf8').replaceAll('\\-', '-');
    for (const { flags } of command.options) for (const flag of flags) t.true(page.includes(`\\fB${flag}\\fR`), flag);
    for (const { name } of command.commands) t.true(page.includes(`\\fB${name}\\fR`), name);
    t.is(command.notes.includes('Examples:\n'), page.includes('.SH EXAMPLES\n.nf\n  '), command.path);
  }
});

test('manual: text that looks like requests of roff is text', (t) => {
  const plain = { path: 'x', options: [], args: [], commands: [] };
  const notes = ".so /etc/passwd\n\n'br is no request, and \\n no number";
  const page = manualPage({ ...plain, name: 'x', description: 'a-b \\fBc', notes }, [], { version: '1', date: '2' });
  t.true(page.includes('a\\-b \\efBc'));
  t.true(page.includes('\n\\&.so /etc/passwd\n'));
  t.true(page.includes("\n\\&'br is no request, and \\en no number\n"));
});

unless(whyWithout('mandoc'))('manual: mandoc finds nothing wrong with the pages', (t) => {
  const { stdout } = spawnSync('mandoc', ['-Tlint', ...pages()], { encoding: 'utf8' });
  // A version that the changelog gives no date has none.
  const found = stdout.split('\n').filter((line) => line !== '' && !line.endsWith('verbatim: TH unreleased'));
  t.deepEqual(found, []);
  t.true(spawnSync('mandoc', [join(FOLDER, 'meshcache-node.1')], { encoding: 'utf8' }).stdout.length > 2000);
});

unless(whyWithout('man', 'groff'))('manual: man has no warning about the pages', (t) => {
  for (const page of pages()) t.is(spawnSync('man', ['--warnings', '-l', page], { encoding: 'utf8' }).stderr, '', page);
});

unless(whyWithout('man'))('manual: man shows the page of a command that npm has installed globally', async (t) => {
  t.timeout(120_000);
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-manual-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const { tarball } = await pack(folder);
  const options = ['--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund'];
  await promisify(execFile)('npm', ['install', '--global', '--prefix', folder, ...options, tarball]);
  const env = { ...process.env, MANPATH: join(folder, 'share/man'), MANWIDTH: '80' };
  const { stdout } = spawnSync('man', ['meshcache-sim-trace'], { encoding: 'utf8', env });
  t.regex(stdout, /^MESHCACHE-SIM-TRACE\(1\)/);
  t.regex(stdout, /--interval-s/);
});
