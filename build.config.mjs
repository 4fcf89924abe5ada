// Builds everything under build/: `node build.config.mjs [wasm] [native] [dist] [types] [test]`; without names: wasm and dist.
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, transform } from 'esbuild';
import { buildNative } from './native/build.mjs';

const root = dirname(fileURLToPath(import.meta.url));
process.chdir(root);

/** Programs and entry points; each becomes `build/dist/<name>.js`. Worker, agent and peer are started by their file names. */
const entries = {
  index: 'src/index.ts',
  core: 'src/core/index.ts',
  native: 'src/native/index.ts',
  sim: 'src/sim/index.ts',
  cli: 'src/cli/main.ts',
  'cluster-agent': 'src/cli/cluster/cluster-agent.ts',
  'tcp-serving-worker': 'src/transport/tcp/serving/serving-worker.ts',
  'bench-peer': 'src/bench/peer.ts',
};

const common = {
  bundle: true,
  format: 'esm',
  platform: 'node',
  target: 'node20.19',
  packages: 'external',
  splitting: true,
  sourcemap: true,
  chunkNames: 'chunk-[hash]',
  logLevel: 'warning',
};

function run(script, ...args) {
  execFileSync(process.execPath, [script, ...args], { stdio: 'inherit' });
}

/** Paths of the declarations that the given ones import, and these themselves. */
function declarationsFrom(entryPaths) {
  const reached = new Set(entryPaths);
  for (const path of reached) {
    for (const [, name] of readFileSync(path, 'utf8').matchAll(/(?:from|import\()\s*['"](\.[^'"]+)\.js['"]/g)) {
      reached.add(join(dirname(path), `${name}.d.ts`));
    }
  }
  return reached;
}

/** Takes comments and white space out of what browsers load; names stay, for the sake of stack traces. */
async function compactCore() {
  const paths = new Set(['build/dist/core.js']);
  for (const path of paths) {
    const text = readFileSync(path, 'utf8');
    for (const [, name] of text.matchAll(/(?:from|import) "(\.\/[^"]+)"/g)) paths.add(join('build/dist', name));
    const { code } = await transform(text, { minifyWhitespace: true, minifySyntax: true, target: common.target });
    writeFileSync(path, code);
  }
}

/** One page with everything in it: the browser asks for nothing else. */
async function dashboardPage() {
  const { outputFiles } = await build({
    entryPoints: ['src/dashboard/main.ts'],
    bundle: true,
    minify: true,
    write: false,
    format: 'iife',
    platform: 'browser',
    target: ['chrome109', 'firefox115', 'safari16'],
    outdir: 'dashboard',
    legalComments: 'none',
    logLevel: 'warning',
  });
  const textOf = (ending) => outputFiles.find(({ path }) => path.endsWith(ending)).text.trim();
  // No replacement patterns: code has dollar signs.
  return readFileSync('src/dashboard/page.html', 'utf8')
    .replace('<!-- notices -->', () => `<!--\nuPlot: ${readFileSync('node_modules/uplot/LICENSE', 'utf8').trim()}\n-->`)
    .replace('/* style */', () => textOf('.css'))
    .replace('/* script */', () => textOf('.js').replaceAll('</script', '<\\/script'));
}

/** The Python client, with the version of this package: pip installs the folder. */
function pythonPackage() {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
  rmSync('build/python', { recursive: true, force: true });
  // What interpreters and checkers leave behind stays behind.
  cpSync('src/python', 'build/python', { recursive: true, filter: (path) => !/__pycache__|_cache$/.test(path) });
  const path = 'build/python/meshcache/_version.py';
  // Pre-releases are written as PEP 440 has them: 1.2.0-rc.1 is 1.2.0rc1.
  const pythonVersion = version.replace(/-([a-z]+)\.?(\d+)$/, '$1$2');
  writeFileSync(
    path,
    readFileSync(path, 'utf8').replace(/"[^"]+"\n$/, () => `"${pythonVersion}"\n`),
  );
}

const steps = {
  wasm() {
    mkdirSync('build/wasm', { recursive: true });
    for (const target of ['release', 'debug']) {
      run('node_modules/assemblyscript/bin/asc.js', '--config', 'asconfig.json', '--target', target);
    }
  },

  // Needs a C++ compiler, CMake and, unless MESHCACHE_NO_RDMA=ON is in the environment, the headers of libibverbs and librdmacm.
  native() {
    const problem = buildNative();
    if (problem.length === 0) return;
    console.error(problem.join('\n'));
    process.exit(1);
  },

  async dist() {
    // Without maps: they would be most of the package, and names and lines of what is published are readable as they are.
    const options = { ...common, sourcemap: false, entryPoints: entries, outdir: 'build/dist' };
    // What was built before stays when this fails.
    await build({ ...options, write: false });
    rmSync('build/dist', { recursive: true, force: true });
    await build(options);
    await compactCore();
    writeFileSync('build/dist/dashboard.html', await dashboardPage());
    pythonPackage();
  },

  // Declarations of what the entry points reach, nothing else.
  types() {
    rmSync('build/types', { recursive: true, force: true });
    run('node_modules/typescript/bin/tsc', '--project', 'tsconfig.types.json');
    const reached = declarationsFrom(
      ['index', 'core/index', 'native/index', 'sim/index'].map((name) => `build/types/${name}.d.ts`),
    );
    for (const file of readdirSync('build/types', { recursive: true })) {
      const path = join('build/types', file);
      if (file.endsWith('.d.ts') && !reached.has(path)) rmSync(path);
    }
    // Whoever uses them need not list `node` among the types of the program; the core does without.
    for (const path of ['build/types/index.d.ts', 'build/types/native/index.d.ts', 'build/types/sim/index.d.ts']) {
      writeFileSync(path, `/// <reference types="node" />\n${readFileSync(path, 'utf8')}`);
    }
  },

  // Flat, beside the worker and the wasm folder, so that the same relative addresses hold as in build/dist. A program of
  // the tests has the name of its area: test/_programs/disk/kill-program.ts becomes disk-kill-program.js.
  async test() {
    rmSync('build/test', { recursive: true, force: true });
    const tests = readdirSync('test', { recursive: true })
      .filter((file) => file.endsWith('.ts') && !file.startsWith('_support/'))
      .map((file) => [
        file
          .replace(/^_programs\//, '')
          .replace(/\.ts$/, '')
          .replaceAll('/', '-'),
        join('test', file),
      ]);
    const { index: _index, core: _core, native: _native, sim: _sim, ...programs } = entries;
    await build({ ...common, entryPoints: { ...programs, ...Object.fromEntries(tests) }, outdir: 'build/test' });
    writeFileSync('build/test/dashboard.html', await dashboardPage());
  },
};

const names = process.argv.slice(2);
for (const name of names.length > 0 ? names : ['wasm', 'dist']) {
  if (!(name in steps)) throw new Error(`no build step ${name}; there are ${Object.keys(steps).join(', ')}`);
  await steps[name]();
}
