import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import * as advanced from '../../src/exports/advanced.js';
import * as internal from '../../src/exports/internal.js';
import * as stable from '../../src/exports/stable.js';
import * as main from '../../src/index.js';

const run = promisify(execFile);

/** Modules of the API reference; the head of each says how far a program may rely on its exports. */
const TIERS = { stable, advanced, internal };
const EXPORTED = /export (?:type )?\{([^}]*)\}/g;

/** The names that a module of exports re-exports, types included. */
function namesIn(path: string): string[] {
  return [...readFileSync(path, 'utf8').matchAll(EXPORTED)].flatMap(([, list]) =>
    (list as string)
      .split(',')
      .map((name) => name.replace('type ', '').trim())
      .filter((name) => name !== ''),
  );
}

test('reference: every export of the main entry has one tier, and the reference is divided by tiers', (t) => {
  const index = readFileSync('src/index.ts', 'utf8');
  t.deepEqual(
    [...index.matchAll(/^export .*$/gm)].map(([line]) => line).sort(),
    Object.keys(TIERS)
      .map((tier) => `export * from './exports/${tier}.js';`)
      .sort(),
    'src/index.ts exports nothing else',
  );
  const { entryPoints } = JSON.parse(readFileSync('typedoc.json', 'utf8')) as { entryPoints: string[] };
  const tierOf = new Map<string, string>();
  for (const [tier, module] of Object.entries(TIERS)) {
    const path = `src/exports/${tier}.ts`;
    t.true(entryPoints.includes(path), path);
    t.regex(
      readFileSync(path, 'utf8'),
      new RegExp(`^/\\*\\*\\n \\* [\\s\\S]*@module meshcache: ${tier}\\n \\*/\\n`),
      path,
    );
    for (const name of new Set([...namesIn(path), ...Object.keys(module)])) {
      t.is(tierOf.get(name), undefined, `${name} has two tiers`);
      tierOf.set(name, tier);
    }
  }
  for (const name of Object.keys(main)) t.true(tierOf.has(name), name);
  t.is(tierOf.get('MeshCacheStore'), 'stable');
  t.is(tierOf.get('RpcServer'), 'advanced');
  // The main entry has all of the core, so that these tiers are the core's, too.
  for (const name of namesIn('src/core/index.ts')) {
    t.true(tierOf.has(name) || name === 'ErrorCode' || name.endsWith('Error'), name);
  }
  for (const entry of ['native', 'sim']) {
    t.regex(readFileSync(`src/${entry}/index.ts`, 'utf8'), new RegExp(`@module meshcache/${entry}: advanced\\n`));
  }
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
