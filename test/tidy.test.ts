import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import test from 'ava';

/** The layers of the design: a module imports from its own folder and from lower levels only. */
const LEVELS: Readonly<Record<string, number>> = {
  base: 0,
  'types.ts': 1,
  'config.ts': 1,
  native: 1,
  core: 2,
  memory: 2,
  transport: 3,
  rpc: 3,
  pool: 4,
  directory: 4,
  discovery: 4,
  metrics: 4,
  disk: 5,
  dashboard: 5,
  store: 6,
  clients: 7,
  client: 8,
  node: 8,
  sim: 9,
  'machine-defaults.ts': 9,
  'index.ts': 10,
  bench: 10,
  cli: 11,
};

/** Only these places may touch what the environment hands out everywhere else. */
const ENVIRONMENT_OWNERS = /^src\/(base|node|cli|bench|sim|dashboard)\//;
const DIRECT_USE =
  /\bDate\.now\(|\bsetTimeout\(|\bsetInterval\(|\bMath\.random\(|\bnet\.(connect|createServer|createConnection)\(/;

interface Source {
  readonly path: string;
  readonly text: string;
}

function sources(folder: string): Source[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts'))
    .map((file) => {
      const path = join(folder, file);
      return { path, text: readFileSync(path, 'utf8') };
    });
}

function imports({ text }: Source): string[] {
  return [...text.matchAll(/(?:from|import)\s*\(?\s*'([^']+)'/g)].map((match) => match[1] as string);
}

/** The first folder below `src`, or the file's name when it lies there itself. */
function area(path: string): string {
  return path.split('/')[1] as string;
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

test('tidy: time, randomness and sockets come from the environment', (t) => {
  for (const { path, text } of sources('src').filter((source) => !ENVIRONMENT_OWNERS.test(source.path))) {
    t.notRegex(text, DIRECT_USE, path);
  }
});

test('tidy: no unfinished work and nothing of an author’s machine', (t) => {
  const unfinished = new RegExp(['TO', 'DO|FIX', 'ME|X', 'XX'].join(''));
  for (const { path, text } of [...sources('src'), ...sources('test'), ...sources('assembly')]) {
    t.notRegex(text, unfinished, path);
    t.notRegex(text, /\/(work|home|root)\//, path);
  }
});

test('tidy: sources stay readable: at most 500 lines', (t) => {
  for (const { path, text } of [...sources('src'), ...sources('assembly')]) {
    t.true(text.split('\n').length <= 500, `${path} has ${text.split('\n').length} lines`);
  }
});
