// Builds everything under build/: `node build.config.mjs [wasm] [native] [prebuilt] [dist] [man] [types] [wheel] [test]`; without names: wasm and dist.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, transform } from 'esbuild';
import { buildNative } from './native/build.mjs';
import { buildPrebuilt } from './native/prebuilt.mjs';

const root = dirname(fileURLToPath(import.meta.url));
process.chdir(root);

/** Programs and entry points; each becomes `build/dist/<name>.js`. Worker, agent and peer are started by their file names. */
const entries = {
  index: 'src/index.ts',
  core: 'src/core/index.ts',
  native: 'src/native/index.ts',
  parts: 'src/parts/index.ts',
  sim: 'src/sim/index.ts',
  cli: 'src/cli/main.ts',
  'cluster-agent': 'src/cli/cluster/cluster-agent.ts',
  'file-thread': 'src/system/files/file-thread.ts',
  'tcp-reading-worker': 'src/transport/tcp/reading/reading-worker.ts',
  'tcp-serving-worker': 'src/transport/tcp/serving/serving-worker.ts',
  'bench-peer': 'src/bench/peer.ts',
};

/** Packages whose code is part of the bundles, because they would bring others that run programs when they are installed. */
const bundled = ['msgpackr/pack', 'msgpackr/unpack'];

/** Packages that benchmarks compare with where a user has installed them. */
const contenders = ['hashring', 'ioredis', 'lmdb'];

const common = {
  bundle: true,
  format: 'esm',
  platform: 'node',
  target: 'node20.19',
  packages: 'external',
  // What begins with a dot is no package.
  alias: Object.fromEntries(bundled.map((name) => [name, `./node_modules/${name}.js`])),
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

function manifest() {
  return JSON.parse(readFileSync('package.json', 'utf8'));
}

/** The Python client, with the version of this package: pip installs the folder. */
function pythonPackage() {
  const { version } = manifest();
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
  cpSync('LICENSE', 'build/python/LICENSE');
}

/** The command in `folder`, for Node alone: what it imports from packages is in it. Returns the folders of these packages. */
async function commandWithPackages(folder) {
  const { index: _index, core: _core, native: _native, sim: _sim, ...programs } = entries;
  const { metafile } = await build({
    ...common,
    packages: 'bundle',
    external: contenders,
    sourcemap: false,
    legalComments: 'none',
    metafile: true,
    // Packages in CommonJS ask for modules of Node.
    banner: {
      js: "import { createRequire as requireOf } from 'node:module';\nconst require = requireOf(import.meta.url);",
    },
    entryPoints: programs,
    outdir: folder,
  });
  return packagesIn(metafile);
}

/** Folders of the packages whose code is in a bundle. One may lie below another one that needs it in a version of its own. */
function packagesIn({ inputs }) {
  const folders = Object.keys(inputs).map((path) => /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0]);
  return [...new Set(folders.filter((folder) => folder !== undefined))].sort();
}

/** What the licenses of packages want said where their code is. */
function notices(folders) {
  const texts = folders.map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
    const text = file === undefined ? '' : readFileSync(join(folder, file), 'utf8').trim();
    return `${name} ${version} (${license})\n\n${text}`.trim();
  });
  return `${texts.join(`\n\n${'-'.repeat(80)}\n\n`)}\n`;
}

/** The addon and its checksum into `folder`. Says so if none has been built. */
function addonInto(folder) {
  const addon = 'build/native/meshcache.node';
  if (!existsSync(addon)) {
    console.warn('no native addon has been built: the wheel has none, and is for any platform (npm run build:native)');
    return;
  }
  const stated = readFileSync(`${addon}.sha256`, 'utf8').trim();
  if (createHash('sha256').update(readFileSync(addon)).digest('hex') !== stated) {
    throw new Error(`${addon} does not have the SHA-256 of ${addon}.sha256: build it again (npm run build:native)`);
  }
  for (const name of ['meshcache.node', 'meshcache.node.sha256']) cpSync(`build/native/${name}`, join(folder, name));
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

  // The addon for other processors and C libraries, as packages that npm installs where they fit. Needs zig.
  async prebuilt() {
    await buildPrebuilt(manifest());
  },

  async dist() {
    // Without maps: they would be most of the package, and names and lines of what is published are readable as they are.
    const options = { ...common, sourcemap: false, entryPoints: entries, outdir: 'build/dist' };
    // What was built before stays when this fails.
    await build({ ...options, write: false });
    rmSync('build/dist', { recursive: true, force: true });
    const { metafile } = await build({ ...options, metafile: true });
    await compactCore();
    writeFileSync('build/dist/LICENSE-packages.txt', notices(packagesIn(metafile)));
    writeFileSync('build/dist/dashboard.html', await dashboardPage());
    pythonPackage();
  },

  // One page for each command, from the definitions of the commands.
  async man() {
    const program = 'build/manual/write-pages.js';
    const entryPoints = ['src/cli/manual/write-pages.ts'];
    await build({ ...common, splitting: false, sourcemap: false, entryPoints, outdir: 'build/manual' });
    run(program, 'build/man', 'CHANGELOG.md');
    rmSync('build/manual', { recursive: true });
  },

  // Declarations of what the entry points reach, nothing else.
  types() {
    rmSync('build/types', { recursive: true, force: true });
    run('node_modules/typescript/bin/tsc', '--project', 'tsconfig.types.json');
    const reached = declarationsFrom(
      ['index', 'core/index', 'native/index', 'parts/index', 'sim/index'].map((name) => `build/types/${name}.d.ts`),
    );
    for (const file of readdirSync('build/types', { recursive: true })) {
      const path = join('build/types', file);
      if (file.endsWith('.d.ts') && !reached.has(path)) rmSync(path);
    }
    // Whoever uses them need not list `node` among the types of the program; the core does without.
    for (const path of [
      'build/types/index.d.ts',
      'build/types/native/index.d.ts',
      'build/types/parts/index.d.ts',
      'build/types/sim/index.d.ts',
    ]) {
      writeFileSync(path, `/// <reference types="node" />\n${readFileSync(path, 'utf8')}`);
    }
  },

  // One file for pip. The Python package of build/python, and in its folder `_node` what the npm package has, but with the
  // packages that it imports: the same relative addresses hold. The addon is in it if it has been built.
  async wheel() {
    const project = 'build/wheel/project';
    const home = `${project}/meshcache/_node`;
    rmSync('build/wheel', { recursive: true, force: true });
    cpSync('build/python', project, { recursive: true });
    const packages = await commandWithPackages(`${home}/build/dist`);
    writeFileSync(`${project}/LICENSE-packages.txt`, notices([...packages, 'node_modules/uplot']));
    const { name, version, license, type, engines } = manifest();
    writeFileSync(`${home}/package.json`, `${JSON.stringify({ name, version, license, type, engines }, null, 2)}\n`);
    for (const path of [
      'build/dist/dashboard.html',
      'build/wasm/meshcache.wasm',
      'build/python',
      'deploy/meshcache.service',
    ])
      cpSync(path, `${home}/${path}`, { recursive: true });
    addonInto(`${home}/build/native`);
    const program =
      'import sys; sys.path.insert(0, sys.argv[1]); import backend; print(backend.build_wheel(sys.argv[2]))';
    const args = ['-B', '-c', program, project, 'build/wheel'];
    const wheel = execFileSync('python3', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] }).trim();
    console.log(`build/wheel/${wheel}`);
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
