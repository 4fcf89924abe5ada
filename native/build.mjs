// Builds the addon into build/native, or says in two lines what is missing: `npm run build:native`.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';

const OUTPUT = 'build/native';
const CMAKE_JS = 'node_modules/cmake-js/bin/cmake-js';

/** What is asked for by its name, and the Debian packages that have it. */
const TOOLS = [
  ['cmake', 'cmake'],
  ['c++', 'g++'],
];
const HEADERS = [
  ['infiniband/verbs.h', 'libibverbs-dev'],
  ['rdma/rdma_cma.h', 'librdmacm-dev'],
];

/** Programs of a former configuration, without which it cannot be gone on with. */
const PROGRAMS = ['CMAKE_COMMAND', 'CMAKE_MAKE_PROGRAM', 'CMAKE_CXX_COMPILER'];

function fails(program, args, input = '') {
  return spawnSync(program, args, { input, stdio: ['pipe', 'ignore', 'ignore'] }).status !== 0;
}

/** What the build needs and this machine has not, as pairs of a name and a Debian package. */
function missingParts(noRdma) {
  const tools = TOOLS.filter(([name]) => fails(name, ['--version']));
  // cmake-js takes Ninja where there is one.
  const makes = ['ninja', 'make'].every((name) => fails(name, ['--version'])) ? [['make', 'make']] : [];
  const hasCompiler = !tools.some(([name]) => name === 'c++');
  const isAbsent = ([name]) => !hasCompiler || fails('c++', ['-E', '-x', 'c++', '-'], `#include <${name}>\n`);
  return [...tools, ...makes, ...(noRdma ? [] : HEADERS.filter(isAbsent))];
}

/** Drops what CMake has kept of a checkout elsewhere, or of programs that are gone: it would refuse to go on with it. */
function dropStaleConfiguration() {
  const path = join(OUTPUT, 'CMakeCache.txt');
  if (!existsSync(path)) return;
  const entries = readFileSync(path, 'utf8').matchAll(/^(\w+):\w+=(.*)$/gm);
  const kept = new Map([...entries].map(([, name, value]) => [name, value]));
  const isMoved = kept.get('CMAKE_HOME_DIRECTORY') !== resolve('native');
  const isGone = PROGRAMS.some((name) => kept.has(name) && !existsSync(kept.get(name)));
  if (!isMoved && !isGone) return;
  for (const name of ['CMakeCache.txt', 'CMakeFiles', 'build.ninja', 'Makefile', 'cmake_install.cmake']) {
    rmSync(join(OUTPUT, name), { recursive: true, force: true });
  }
}

/** Builds the addon. Returns the lines that say why it was not built; none when it was. */
export function buildNative() {
  const given = process.env.MESHCACHE_NO_RDMA || 'OFF';
  if (given !== 'ON' && given !== 'OFF') return [`MESHCACHE_NO_RDMA must be ON or OFF, got ${given}`];
  const missing = missingParts(given === 'ON');
  if (missing.length > 0) {
    const packages = missing.map(([, name]) => name).join(' ');
    const withoutRdma = HEADERS.some((header) => missing.includes(header)) ? '; MESHCACHE_NO_RDMA=ON needs no RDMA headers' : '';
    return [
      `the native addon was not built; missing: ${missing.map(([name]) => name).join(', ')}`,
      `Debian: apt install ${packages}${withoutRdma}. Without the addon everything works, over TCP.`,
    ];
  }
  if (!existsSync(CMAKE_JS)) return ['the native addon was not built: the packages of this project are missing: npm ci'];
  dropStaleConfiguration();
  const options = ['-d', 'native', '-O', OUTPUT, `--CDMESHCACHE_NO_RDMA=${given}`, '--log-level', 'warn'];
  // Always both: a folder that was configured before keeps its options otherwise.
  for (const command of ['configure', 'build']) {
    const { status, signal } = spawnSync(process.execPath, [CMAKE_JS, command, ...options], { stdio: 'inherit' });
    if (status !== 0) {
      return [`the native addon was not built: cmake-js ${command} ended with ${signal ?? `status ${status}`}; see above`];
    }
  }
  return [];
}
