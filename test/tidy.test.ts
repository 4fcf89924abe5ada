import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import test from 'ava';
import { commentsOf } from './_support/comments.js';
import { functionLengths } from './_support/function-lengths.js';
import { ENTRY_POINTS, EXCEPTIONS, waysOut } from './_support/outside.js';

/** The layers of the design: a module imports from its own folder and from lower levels only. */
const LEVELS: Readonly<Record<string, number>> = {
  base: 0,
  net: 1,
  'types.ts': 1,
  'config.ts': 2,
  system: 2,
  native: 3,
  core: 3,
  memory: 4,
  transport: 5,
  rpc: 5,
  pool: 6,
  directory: 6,
  discovery: 6,
  metrics: 6,
  disk: 7,
  objects: 7,
  dashboard: 7,
  store: 8,
  clients: 9,
  resp: 9,
  client: 10,
  node: 10,
  processes: 10,
  command: 10,
  sim: 11,
  parts: 11,
  bench: 11,
  'index.ts': 12,
  cli: 12,
};

const FOLDER_MAX_FILES = 15;
const FILE_MAX_LINES = 500;
const FUNCTION_MAX_LINES = 60;
/** Files that are longer than that, with their lines: they may only shrink. */
const LONG_FILES: Readonly<Record<string, number>> = {
  'src/discovery/client.ts': 506,
  'src/disk/journal/journal.ts': 502,
  'src/transport/tcp/reading/read-connection.ts': 504,
};
/** Beginnings of comments that are no sentence without what stands before them, or no sentence at all. */
const DANGLING =
  /^(?:@internal )?(?:(?:Of|As|Told|Who|Whose|That|So|And|But|Or|Nor|Also|Likewise|Ditto|Its|These|Those of)\b|The same(?: for| as| with| whatever| in |[.,:;])|See (?:above|below))/;
interface Source {
  readonly path: string;
  readonly text: string;
}

function sources(folder: string, ending = '.ts'): Source[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith(ending))
    .map((file) => {
      const path = join(folder, file);
      return { path, text: readFileSync(path, 'utf8') };
    });
}

/** Modules that a source imports; examples in its comments do not count. */
function imports({ text }: Source): string[] {
  return [...text.replace(/^ *\*.*$/gm, '').matchAll(/(?:from|import)\s*\(?\s*'([^']+)'/g)].map(
    (match) => match[1] as string,
  );
}

/** The first folder below `src`, or the file's name when it lies there itself. */
function area(path: string): string {
  return path.split('/')[1] as string;
}

/** The modules that are there when this one runs: those that it imports, but for types alone. */
function loadedBy({ path, text }: Source): string[] {
  return imports({ path, text: text.replace(/^(?:import|export) type [^;]*;/gm, '') })
    .filter((name) => name.startsWith('.'))
    .map((name) => normalize(join(dirname(path), name)).replace(/\.js$/, '.ts'));
}

/** The folders, or modules, that importing leads to from one of them. */
function reached(imported: ReadonlyMap<string, ReadonlySet<string>>, place: string): Set<string> {
  const found = new Set<string>(imported.get(place));
  for (const each of found) for (const next of imported.get(each) ?? []) found.add(next);
  return found;
}

test('tidy: imports go down only', (t) => {
  for (const source of sources('src')) {
    const from = area(source.path);
    t.true(from in LEVELS, `${source.path}: ${from} has no level`);
    for (const target of imports(source).filter((name) => name.startsWith('.'))) {
      const to = area(normalize(join(dirname(source.path), target)).replace(/\.js$/, '.ts'));
      if (to === from) continue;
      const goesDown = (LEVELS[to] as number) < (LEVELS[from] as number);
      t.true(goesDown, `${source.path} imports ${target}: ${from} may not import ${to}`);
    }
  }
});

test('tidy: the core has no import from Node', (t) => {
  for (const source of sources('src/core')) {
    for (const name of imports(source)) t.true(name.startsWith('.'), `${source.path} imports ${name}`);
  }
});

test('tidy: below the entry points nothing leads out but the environment', (t) => {
  for (const { path, text } of sources('src').filter((source) => !ENTRY_POINTS.test(source.path))) {
    const allowed: readonly string[] = EXCEPTIONS[path]?.ways ?? [];
    const ways = waysOut(text);
    const taken = ways.filter((way) => !allowed.includes(way));
    t.deepEqual(
      taken,
      [],
      `${path} goes out by ${taken}: take it from the Environment, or state a reason in test/_support/outside.ts`,
    );
    const unneeded = allowed.filter((way) => !ways.includes(way));
    t.deepEqual(unneeded, [], `test/_support/outside.ts: ${path} does not go out by ${unneeded} any more`);
  }
  for (const path of Object.keys(EXCEPTIONS)) t.true(existsSync(path), `test/_support/outside.ts: there is no ${path}`);
});

test('tidy: every way out is seen', (t) => {
  for (const [code, ...ways] of [
    ['const now = Date.now();', 'Date'],
    ['new Date()', 'Date'],
    ['performance.now()', 'performance'],
    ['setTimeout(fn, 1)', 'timers'],
    ['await new Promise(setImmediate)', 'timers'],
    ['AbortSignal.timeout(5)', 'timers'],
    ['queueMicrotask(fn)', 'ticks'],
    ['process.nextTick(fn)', 'process', 'ticks'],
    ['process.pid', 'process'],
    ['process?.env', 'process'],
    ['Math.random()', 'Math.random'],
    ["import { createHash, randomBytes } from 'node:crypto';", 'randomness'],
    ['crypto.getRandomValues(bytes)', 'randomness'],
    ["import type { Socket } from 'node:net';", 'node:net'],
    ["import { readFile } from 'node:fs/promises';", 'node:fs'],
    ["import os from 'os';", 'node:os'],
    ["await import('node:worker_threads')", 'node:worker_threads'],
    ["const { spawn } = require('child_process');", 'node:child_process'],
    ["import { setTimeout as sleep } from 'node:timers/promises';", 'node:timers', 'timers'],
    ["import Koa from 'koa';", 'koa'],
    ['env = systemEnvironment()', 'system'],
    ["await fetch('http://x')", 'fetch'],
    ['new WeakRef(x)', 'collector'],
  ] as const) {
    t.deepEqual(waysOut(code), [...ways], code);
  }
  for (const code of [
    '/** As `setTimeout`, by Date.now(). */',
    'const x = 1; // process.pid, Math.random()',
    "import { join } from 'node:path'; import { createHash } from 'node:crypto'; import { pack } from 'msgpackr/pack';",
    'this.#process.close(); clock.after(5, fn); this.#fetch(pages); env.clock.nowMs();',
    "throw new Error('this process may not: http://example.org');",
  ]) {
    t.deepEqual(waysOut(code), [], code);
  }
});

/**
 * A limit has its unit behind the word: `X_MAX_BYTES`, `X_TIMEOUT_MS`; the largest value of a field, `X_MAX`, is none.
 */
const LIMIT =
  /^(export )?const ([A-Z][A-Z0-9_]*_(?:MAX|MIN|TIMEOUT|DELAY|INTERVAL|RETRY|WAIT)_[A-Z0-9_]+|[A-Z][A-Z0-9_]*_TTL_S)\b/gm;
/** They state what another side has written down, too, or how wide a field of a format is. */
const STATE_FORMATS = ['src/native/addon/contract.ts', 'src/clients/wire/body.ts'];

test('tidy: a limit that more than one module knows stands in limits.ts, and no name stands for two limits', (t) => {
  const programs = /^src\/(?:bench|cli|dashboard|sim)\//;
  const places = new Map<string, string>();
  for (const { path, text } of sources('src').filter((source) => !programs.test(source.path))) {
    for (const [, exported, name] of text.matchAll(LIMIT)) {
      const isShared = /^src\/base\/[\w-]*limits\.ts$/.test(path);
      t.true(isShared || exported === undefined || STATE_FORMATS.includes(path), `${path} exports ${name}`);
      t.is(places.get(name as string), undefined, `${name} stands in ${path}, too`);
      places.set(name as string, path);
    }
  }
  t.true(places.size > 100);
});

test('tidy: no unfinished work and nothing of an author’s machine', (t) => {
  const unfinished = new RegExp(['TO', 'DO|FIX', 'ME|X', 'XX'].join(''));
  for (const { path, text } of [...sources('src'), ...sources('test'), ...sources('assembly')]) {
    t.notRegex(text, unfinished, path);
    t.notRegex(text, /\/(work|home|root)\//, path);
  }
});

test('tidy: sources and functions stay short', (t) => {
  for (const { path, text } of [...sources('src'), ...sources('assembly')]) {
    const lines = text.split('\n').length;
    const known = LONG_FILES[path];
    if (known === undefined) t.true(lines <= FILE_MAX_LINES, `${path} has ${lines} lines; at most ${FILE_MAX_LINES}`);
    else t.is(lines, known, `${path} may only shrink; if it has, lower its number in LONG_FILES, or take it out`);
    const longest = new Map<string, number>();
    for (const each of functionLengths(text)) {
      const place = `${path} ${each.name}`;
      longest.set(place, Math.max(longest.get(place) ?? 0, each.lines));
    }
    for (const [place, length] of longest) {
      t.true(length <= FUNCTION_MAX_LINES, `${place} has ${length} lines; at most ${FUNCTION_MAX_LINES}`);
    }
  }
  for (const { path, text } of sources('src', '.css')) {
    const lines = text.split('\n').length;
    t.true(lines <= FILE_MAX_LINES, `${path} has ${lines} lines; at most ${FILE_MAX_LINES}`);
  }
});

test('tidy: the length of every function is seen', (t) => {
  const text = `export function one(a: number): void {
  if (a) {
    more();
  }
}

class Two {
  async #three<T>(
    a: T,
    b: T,
  ): Promise<void> {
    for (const x of [a, b]) {
      await x;
    }
  }

  get four(): number {
    return 4;
  }
}

const five = async (): Promise<number> => {
  return 5;
};

if (
  five
) {
  six({ seven() {} });
}
`;
  const found = functionLengths(text).map(({ name, lines }) => `${name} ${lines}`);
  t.deepEqual(found, ['one 5', '#three 8', 'four 3', 'five 3']);
});

test('tidy: a folder has at most 15 files', (t) => {
  const counts = new Map<string, number>();
  for (const file of readdirSync('src', { recursive: true, encoding: 'utf8' })) {
    const path = join('src', file);
    if (/\.(ts|md|html|css|py|typed)$/.test(file)) counts.set(dirname(path), (counts.get(dirname(path)) ?? 0) + 1);
  }
  for (const [folder, count] of counts) {
    t.true(count <= FOLDER_MAX_FILES, `${folder} has ${count} files; at most ${FOLDER_MAX_FILES}`);
  }
});

test('tidy: the folders of an area do not import each other in a circle', (t) => {
  const imported = new Map<string, Set<string>>();
  for (const source of sources('src')) {
    const from = dirname(source.path);
    for (const target of imports(source).filter((name) => name.startsWith('.'))) {
      const to = dirname(normalize(join(from, target)));
      if (to === from || area(`${to}/`) !== area(`${from}/`)) continue;
      imported.set(from, (imported.get(from) ?? new Set()).add(to));
    }
  }
  const inCircles = [...imported.keys()].filter((folder) => reached(imported, folder).has(folder)).sort();
  t.deepEqual(inCircles, []);
});

test('tidy: modules do not load each other in a circle', (t) => {
  const loaded = new Map(sources('src').map((source) => [source.path, new Set(loadedBy(source))]));
  t.deepEqual(
    [...loaded.keys()].filter((path) => reached(loaded, path).has(path)),
    [],
  );
});

test('tidy: of the command only its list of commands imports benchmarks', (t) => {
  for (const source of sources('src/cli').filter(({ path }) => path !== 'src/cli/program.ts')) {
    const names = imports(source).filter((name) => area(normalize(join(dirname(source.path), name))) === 'bench');
    t.deepEqual(names, [], source.path);
  }
});

// Cause: the drop of copies that no owner had taken was such an argument, and was not carried out where nobody listened.
test('tidy: an optional call has no call of an own method as its argument', (t) => {
  const optional = /\?\.\((?:await )?this\.#\w+\(/;
  const found = sources('src').filter(({ text }) => optional.test(text));
  t.deepEqual(
    found.map(({ path }) => path),
    [],
  );
  t.regex('onDropped?.(this.#dropUntaken(batch, origins))', optional);
});

test('tidy: comments stand alone: none begins with half a sentence', (t) => {
  const dangling: string[] = [];
  for (const { path, text } of [...sources('src'), ...sources('test/_support'), ...sources('test/_programs')]) {
    for (const { line, text: comment } of commentsOf(text).filter((each) => DANGLING.test(each.text))) {
      dangling.push(`${path}:${line}: ${comment}`);
    }
  }
  t.deepEqual(dangling, []);
});

test('tidy: every comment is seen', (t) => {
  const text = `/**
 * One
 * comment.
 */
const a = '// none';
  // Two
  // lines.
type B = { /** Three. */ b: 1 }; // not this one
/* Four. */
`;
  t.deepEqual(
    commentsOf(text).map(({ line, text: comment }) => `${line} ${comment}`),
    ['1 One comment.', '6 Two lines.', '8 Three.', '9 Four.'],
  );
});
