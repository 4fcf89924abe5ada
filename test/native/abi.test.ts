import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import test from 'ava';
import { suffix, withAddon } from '../_support/native/addon.js';

const ADDON = fileURLToPath(new URL('../native/meshcache.node', import.meta.url));

/**
 * Oldest glibc whose functions the addon for linux-x64 needs; the README promises what Node 20's own binaries need,
 * 2.28.
 */
const OLDEST_GLIBC = '2.25';
/** Libraries that every Node has loaded already. */
const LIBRARIES = ['libc.so.6', 'libgcc_s.so.1', 'libpthread.so.0', 'libdl.so.2', 'libm.so.6', 'ld-linux-x86-64.so.2'];
/** What Node looks up. */
const EXPORTS = ['napi_register_module_v1', 'node_api_module_get_api_version_v1'];

const hasObjdump = spawnSync('objdump', ['--version']).status === 0;
const here = hasObjdump && process.arch === 'x64' ? withAddon : test.skip;
const note = hasObjdump ? suffix : ' (skipped: no objdump)';

function objdump(flag: string): string[] {
  return spawnSync('objdump', [flag, ADDON], { encoding: 'utf8' }).stdout.split('\n');
}

here(`abi: the addon needs nothing newer than the oldest glibc that is stated${note}`, (t) => {
  const versions = objdump('-T').flatMap((line) => /\(GLIBC_([\d.]+)\)/.exec(line)?.[1] ?? []);
  const newest = versions.reduce((a, b) => (a.localeCompare(b, 'en', { numeric: true }) < 0 ? b : a));
  t.is(newest, OLDEST_GLIBC);
  t.deepEqual(
    objdump('-T').filter((line) => / GLIBCXX_| CXXABI_|\((GLIBCXX|CXXABI)_/.test(line)),
    [],
    'the C++ runtime is inside',
  );
});

here(`abi: the addon needs no library that Node has not loaded, RDMA’s least of all${note}`, (t) => {
  const needed = objdump('-p').flatMap((line) => /NEEDED\s+(\S+)/.exec(line)?.[1] ?? []);
  t.true(needed.length > 0);
  for (const library of needed) t.true(LIBRARIES.includes(library), library);
});

here(`abi: the addon exports what Node looks up and nothing else${note}`, (t) => {
  const exported = objdump('-T')
    .filter((line) => /^[0-9a-f]{16} \S?\s+\S*D[FO]/.test(line) || / Base /.test(line))
    .filter((line) => !line.includes('*UND*'))
    .map((line) => line.trim().split(/\s+/).at(-1) as string);
  t.deepEqual(exported.sort(), EXPORTS);
});

here(`abi: the addon ends the process when a stack is overrun, and its linked tables are read-only${note}`, (t) => {
  t.true(objdump('-T').some((line) => line.includes('__stack_chk_fail')));
  t.true(objdump('-p').some((line) => /^\s*RELRO\b/.test(line)));
});
