import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { freePort } from '../support.js';

const run = promisify(execFile);

/** The JavaScript examples of the README, in order. */
async function readmePrograms(): Promise<string[]> {
  const readme = await readFile('README.md', 'utf8');
  return [...readme.matchAll(/```js\n(.*?)```/gs)].map((match) => match[1] as string);
}

test('package: installed in an empty folder, the README’s programs run and its types hold', async (t) => {
  t.timeout(120_000);
  const folder = await mkdtemp(join(tmpdir(), 'meshcache-package-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  await run('npm', ['pack', '--ignore-scripts', '--pack-destination', folder]);
  const [tarball] = await readdir(folder);
  await writeFile(join(folder, 'package.json'), JSON.stringify({ name: 'user', private: true, type: 'module' }));
  const inFolder = { cwd: folder };
  await run('npm', ['install', '--ignore-scripts', '--prefer-offline', '--no-audit', `./${tarball}`], inFolder);

  const [first, engine, core] = (await readmePrograms()) as [string, string, string];
  const port = await freePort();
  await writeFile(join(folder, 'first.js'), first.replace('31990', String(port)));
  const { stdout } = await run(process.execPath, ['first.js'], inFolder);
  t.is(stdout, 'hello\n[ true, true ]\n2\n[ true, false ]\n');

  await writeFile(join(folder, 'engine.js'), engine);
  const { stdout: engineOutput } = await run(process.execPath, ['engine.js'], inFolder);
  t.regex(engineOutput, /^(\[ true \]|no RDMA here: .+)\n$/);

  await writeFile(join(folder, 'core.js'), core);
  const { stdout: coreOutput } = await run(process.execPath, ['core.js'], inFolder);
  t.regex(coreOutput, /^\[ 'node-[abc]', 'node-[abc]' \]\n\{ offset: 0, slot: 0, evicted: \[\] \}\n$/);

  const { stdout: help } = await run(process.execPath, ['node_modules/.bin/meshcache', '--help'], inFolder);
  t.regex(help, /demo[\s\S]*replay/);

  await writeFile(join(folder, 'types.ts'), `${first.replaceAll(/\((i|indices)\) =>/g, '($1: any) =>')}\nexport {};\n`);
  const flags = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext', '--target', 'es2023'];
  const nodeTypes = ['--types', 'node', '--typeRoots', join(process.cwd(), 'node_modules/@types')];
  const compiler = join(process.cwd(), 'node_modules/typescript/bin/tsc');
  await t.notThrowsAsync(run(process.execPath, [compiler, ...flags, ...nodeTypes, 'types.ts'], inFolder));
});
