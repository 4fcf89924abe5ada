import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import test, { type ExecutionContext } from 'ava';

/** A checkout with nothing built, and a folder with the only programs that its build finds. */
function checkout(t: ExecutionContext, programs: Readonly<Record<string, string>>) {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-native-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  for (const name of ['native', 'package.json', 'build.config.mjs'])
    cpSync(name, join(folder, name), { recursive: true });
  symlinkSync(resolve('node_modules'), join(folder, 'node_modules'));
  const bin = join(folder, 'bin');
  mkdirSync(bin);
  for (const [name, script] of Object.entries(programs)) {
    writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(bin, name), 0o755);
  }
  const build = (env: Record<string, string> = {}) =>
    spawnSync(process.execPath, ['build.config.mjs', 'native'], {
      cwd: folder,
      encoding: 'utf8',
      env: { PATH: bin, HOME: folder, ...env },
    });
  return { folder, build };
}

/** A compiler that finds no header. */
const NO_HEADERS = 'case "$1" in -E) exit 1;; esac';

test('native build: without a compiler and CMake it says what to install, and nothing else', (t) => {
  const { build } = checkout(t, {});
  const { status, stdout, stderr } = build();
  t.is(status, 1);
  t.is(
    `${stdout}${stderr}`,
    'the native addon was not built; missing: cmake, c++, make, infiniband/verbs.h, rdma/rdma_cma.h\n' +
      'Debian: apt install cmake g++ make libibverbs-dev librdmacm-dev; MESHCACHE_NO_RDMA=ON needs no RDMA headers. ' +
      'Without the addon everything works, over TCP.\n',
  );
});

test('native build: without the headers of RDMA it names them, unless it is built without RDMA', (t) => {
  const { build } = checkout(t, { cmake: 'case "$1" in --version) ;; *) exit 3;; esac', 'c++': NO_HEADERS, make: '' });
  const { status, stderr } = build();
  t.is(status, 1);
  t.regex(
    stderr,
    /^the native addon was not built; missing: infiniband\/verbs.h, rdma\/rdma_cma.h\nDebian: .*librdmacm-dev;/,
  );
  t.regex(
    build({ MESHCACHE_NO_RDMA: 'ON' }).stderr,
    /the native addon was not built: cmake-js configure ended with status \d+; see above\n$/,
  );
  t.regex(build({ MESHCACHE_NO_RDMA: 'yes' }).stderr, /^MESHCACHE_NO_RDMA must be ON or OFF, got yes\n$/);
});

test('native build: what CMake has kept of a checkout that was elsewhere is dropped', (t) => {
  // Cause: CMake refuses to go on in a folder that was configured under another path, and the build ended in a stack.
  const { folder, build } = checkout(t, { cmake: 'case "$1" in --version) ;; *) exit 3;; esac', 'c++': '', make: '' });
  const cache = join(folder, 'build/native/CMakeCache.txt');
  mkdirSync(join(folder, 'build/native/CMakeFiles'), { recursive: true });
  writeFileSync(cache, `CMAKE_HOME_DIRECTORY:INTERNAL=${join(folder, 'native')}\n`);
  build();
  t.true(existsSync(cache), 'that of this checkout stays');
  for (const text of [
    'CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere/native\n',
    `CMAKE_HOME_DIRECTORY:INTERNAL=${join(folder, 'native')}\nCMAKE_CXX_COMPILER:FILEPATH=/gone/c++\n`,
  ]) {
    writeFileSync(cache, text);
    const { status, stderr } = build();
    t.is(status, 1);
    t.notRegex(stderr, /^ {4}at .*build\.config\.mjs/m);
    t.false(existsSync(cache), text);
  }
});
