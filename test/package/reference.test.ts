import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import * as main from '../../src/index.js';
import * as parts from '../../src/parts/index.js';

const run = promisify(execFile);

const ENTRIES = ['core', 'native', 'parts', 'sim'];
const EXPORTED = /export (?:type )?\{([^}]*)\}/g;
/** A door through which too much comes is none. */
const MAIN_MAX_NAMES = 90;

/** The names that a module of exports re-exports, types included. */
function namesIn(path: string): string[] {
  return [...readFileSync(path, 'utf8').matchAll(EXPORTED)].flatMap(([, list]) =>
    (list as string)
      .split(',')
      .map((name) => name.replace('type ', '').trim())
      .filter((name) => name !== ''),
  );
}

test('reference: the main entry has what programs use every day, and no other entry but the core has any of it', (t) => {
  const { entryPoints } = JSON.parse(readFileSync('typedoc.json', 'utf8')) as { entryPoints: string[] };
  t.deepEqual(entryPoints, ['src/index.ts', ...ENTRIES.map((entry) => `src/${entry}/index.ts`)]);
  t.regex(readFileSync('src/index.ts', 'utf8'), /^\/\*\*\n \* [\s\S]*?@module meshcache\n \*\/\n/);
  for (const entry of ENTRIES) {
    t.regex(readFileSync(`src/${entry}/index.ts`, 'utf8'), new RegExp(`@module meshcache/${entry}\n`));
  }
  const names = new Set([...namesIn('src/index.ts'), ...Object.keys(main)]);
  t.true(names.size <= MAIN_MAX_NAMES, `${names.size} names, at most ${MAIN_MAX_NAMES}`);
  for (const name of ['MeshCacheStore', 'RpcServer', 'MeshCacheError']) t.true(names.has(name), name);
  for (const name of [...namesIn('src/parts/index.ts'), ...Object.keys(parts)]) t.false(names.has(name), name);
});

/** The code of every `@example` in the sources, by the place of each. */
function examples(): Map<string, string> {
  const found = new Map<string, string>();
  for (const file of readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'))) {
    const text = readFileSync(join('src', file), 'utf8');
    for (const [, example] of text.matchAll(/^ *\* @example\n([\s\S]*?)^ *(?:\* @\w+.*\n|\*\/)/gm)) {
      found.set(`${file}-${found.size}`, (example as string).replace(/^ *\* ?/gm, ''));
    }
  }
  return found;
}

test('reference: every example compiles as it stands', async (t) => {
  t.timeout(120_000);
  const all = examples();
  t.true(all.size >= 12, `${all.size} examples`);
  const folder = mkdtempSync('build/examples-');
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  for (const [place, code] of all) writeFileSync(join(folder, `${place.replaceAll(/[/.]/g, '-')}.ts`), code);
  const paths = { meshcache: ['../../src/index.ts'], 'meshcache/*': ['../../src/*/index.ts'] };
  const compilerOptions = { paths, rootDir: '../..', noUnusedLocals: false };
  writeFileSync(
    join(folder, 'tsconfig.json'),
    JSON.stringify({ extends: '../../tsconfig.json', compilerOptions, include: ['*.ts'], exclude: [] }),
  );
  const result = await run(process.execPath, ['node_modules/typescript/bin/tsc', '-p', folder]).catch(
    (error: { stdout: string }) => error,
  );
  t.is(result.stdout, '');
});
