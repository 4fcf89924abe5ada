// Builds everything under build/: `node build.config.mjs [wasm] [dist] [types] [test]`; without names: wasm and dist.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = dirname(fileURLToPath(import.meta.url));
process.chdir(root);

/** Programs and entry points; each becomes `build/dist/<name>.js`. Worker, agent and peers are started by their file names. */
const entries = {
  index: 'src/index.ts',
  core: 'src/core/index.ts',
  cli: 'src/cli/main.ts',
  'cluster-agent': 'src/cli/cluster-agent.ts',
  'tcp-serving-worker': 'src/transport/tcp/serving-worker.ts',
  'store-peer': 'src/bench/store-peer.ts',
  'tcp-peer': 'src/bench/tcp-peer.ts',
  'directory-peer': 'src/bench/directory-peer.ts',
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

const steps = {
  wasm() {
    mkdirSync('build/wasm', { recursive: true });
    for (const target of ['release', 'debug']) {
      run('node_modules/assemblyscript/bin/asc.js', '--config', 'asconfig.json', '--target', target);
    }
  },

  async dist() {
    rmSync('build/dist', { recursive: true, force: true });
    await build({ ...common, entryPoints: entries, outdir: 'build/dist' });
  },

  types() {
    run('node_modules/typescript/bin/tsc', '--noEmit', 'false', '--emitDeclarationOnly', '--declaration');
  },

  // Flat, beside the worker and the wasm folder, so that the same relative addresses hold as in build/dist.
  async test() {
    rmSync('build/test', { recursive: true, force: true });
    const tests = readdirSync('test', { recursive: true })
      .filter((file) => file.endsWith('.ts'))
      .map((file) => [file.replace(/\.ts$/, '').replaceAll('/', '-'), join('test', file)]);
    const { index: _index, core: _core, ...programs } = entries;
    await build({ ...common, entryPoints: { ...programs, ...Object.fromEntries(tests) }, outdir: 'build/test' });
  },
};

const names = process.argv.slice(2);
for (const name of names.length > 0 ? names : ['wasm', 'dist']) {
  if (!(name in steps)) throw new Error(`no build step ${name}; there are ${Object.keys(steps).join(', ')}`);
  await steps[name]();
}
