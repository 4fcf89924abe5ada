import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import type { ExecutionContext } from 'ava';
import { addon, suffix, withAddon } from '../_support/native/addon.js';
import { nodeFor, OWN_PLATFORM, PLATFORMS } from '../_support/release/prebuilt.js';
import { unless } from '../_support/unless.js';

const run = promisify(execFile);
const AVA = 'node_modules/ava/entrypoints/cli.mjs';
/** Tests of all that the addon does but RDMA. */
const TESTS = [
  ...['native-checksum', 'native-copy', 'native-descriptor-listener', 'native-loader', 'native-memory'],
  ...['memory-frame-tags', 'memory-mapped-region'],
];
/** Tests with deadlines of the product's own, which an emulator may miss. */
const TIMED_TESTS = ['system-files'];
const TESTS_TIMEOUT_MS = 600_000;
/** Parts of the titles of tests that qemu-user cannot pass, and why. */
const NOT_EMULATED: Readonly<Record<string, string>> = {
  'leaves no descriptor':
    'it gives the kernel twice the room for descriptors, and does not close those that do not fit',
  'another library': 'the compiler is that of this machine',
  'views of a terabyte': 'it has no address space for them',
  'a large one goes back on another thread': 'it is about time',
  'pre-faulting provides all of it': 'it ignores madvise',
  'what cannot be had': 'it ignores madvise',
};

/** Prints whether the loader has an addon with RDMA. */
const PROGRAM = `import { HAS_RDMA } from 'meshcache/native'; console.log(HAS_RDMA);`;

/** Writes `123456789` to a file and reads it, both by the addon; prints the processor, and the CRC-32 of what was read. */
const VECTOR = `const module = { exports: {} };
  process.dlopen(module, process.argv[1]);
  const addon = module.exports;
  const fd = require('node:fs').openSync(process.argv[2], 'w+');
  const shared = (bytes) => new Uint8Array(new SharedArrayBuffer(bytes));
  const [from, to, state] = [shared(9), shared(9), new Int32Array(new SharedArrayBuffer(4))];
  from.set(Buffer.from('123456789'));
  const alive = setInterval(() => {}, 1000);
  addon.writeAt(fd, addon.addressOf(from), 9, 4096, state)
    .then(() => addon.readAt(fd, addon.addressOf(to), 9, 4096, state))
    .then((count) => console.log(process.arch, count, addon.crc32(to, 0).toString(16)))
    .finally(() => clearInterval(alive));`;

/** Lets the built package find the packages that it imports. */
function lend(folder: string): void {
  symlinkSync(resolve('node_modules'), join(folder, 'node_modules/meshcache/node_modules'));
}

/** A folder of a user with the built package, without its addon, and with one of a platform; all are of this version. */
function user(t: ExecutionContext, platform: string, from: string, changes: Record<string, string> = {}): string {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-prebuilt-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const own = join(folder, 'node_modules/meshcache');
  mkdirSync(join(own, 'build/native'), { recursive: true });
  for (const path of ['package.json', 'build/dist', 'build/wasm/meshcache.wasm'])
    cpSync(path, join(own, path), { recursive: true });
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
  const packaged = join(folder, 'node_modules/@meshcache', platform);
  mkdirSync(packaged, { recursive: true });
  for (const name of ['meshcache.node', 'meshcache.node.sha256']) cpSync(join(from, name), join(packaged, name));
  writeFileSync(
    join(packaged, 'package.json'),
    JSON.stringify({ name: `@meshcache/${platform}`, version, ...changes }),
  );
  return folder;
}

withAddon(
  `prebuilt addon: where none was built, that of the package for this platform is loaded${suffix}`,
  async (t) => {
    const cwd = user(t, OWN_PLATFORM, 'build/native');
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', PROGRAM], { cwd });
    t.is(stdout, `${addon.hasRdma}\n`);
  },
);

withAddon(
  `prebuilt addon: one of another version, or a damaged one, is refused with the reason${suffix}`,
  async (t) => {
    const reasonIn = async (cwd: string): Promise<string> => {
      const cli = join(cwd, 'node_modules/meshcache/build/dist/cli.js');
      lend(cwd);
      const { stdout } = await run(process.execPath, [cli, 'doctor', '--json'], { cwd });
      const { findings } = JSON.parse(stdout) as { findings: { subject: string; detail: string }[] };
      return findings.find(({ subject }) => subject === 'native addon')?.detail ?? 'no finding';
    };
    const other = user(t, OWN_PLATFORM, 'build/native', { version: '9.9.9' });
    t.regex(
      await reasonIn(other),
      /no native addon at .*; @meshcache\/linux-\w+-glibc has version 9\.9\.9, this meshcache needs /,
    );
    const damaged = user(t, OWN_PLATFORM, 'build/native');
    writeFileSync(join(damaged, 'node_modules/@meshcache', OWN_PLATFORM, 'meshcache.node'), 'damaged');
    t.regex(await reasonIn(damaged), /@meshcache\/linux-\w+-glibc\/meshcache\.node is damaged/);
  },
);

/** A folder like this project's, with the tests as they are built, and the addon of a package in the place of its own. */
function checkout(t: ExecutionContext, packaged: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-platform-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  for (const path of ['package.json', 'ava.config.js', 'test/exits.mjs', 'build/test', 'build/wasm'])
    cpSync(path, join(folder, path), { recursive: true });
  cpSync(packaged, join(folder, 'build/native'), { recursive: true });
  symlinkSync(resolve('node_modules'), join(folder, 'node_modules'));
  return folder;
}

for (const platform of PLATFORMS) {
  const folder = resolve('build/prebuilt', platform);
  const program = nodeFor(platform);
  const missing = !existsSync(folder)
    ? 'not built: npm run build:prebuilt'
    : process.env.MESHCACHE_NATIVE === 'off'
      ? 'the addon is switched off'
      : program === undefined
        ? 'no Node for it: test/native/platforms.sh'
        : '';
  unless(missing)(`prebuilt addon: that for ${platform} is loaded there, and reads and sums a file`, async (t) => {
    t.timeout(120_000);
    const cwd = user(t, platform, folder);
    const loaded = await run(program as string, ['--input-type=module', '-e', PROGRAM], { cwd });
    t.is(loaded.stdout, 'true\n');
    const vector = await run(program as string, ['-e', VECTOR, join(folder, 'meshcache.node'), 'file'], { cwd });
    t.is(vector.stdout, `${platform.split('-')[1]} 9 cbf43926\n`);
  });
  unless(missing)(`prebuilt addon: that for ${platform} passes the tests of the addon there`, async (t) => {
    t.timeout(TESTS_TIMEOUT_MS);
    const isEmulated = !platform.includes(process.arch);
    const left = isEmulated ? Object.keys(NOT_EMULATED).map((title) => `--match=!*${title}*`) : [];
    const names = isEmulated ? TESTS : [...TESTS, ...TIMED_TESTS];
    const args = [AVA, ...left, ...names.map((name) => `build/test/${name}.test.js`)];
    const env = { ...process.env, MESHCACHE_TEST_ADDON: 'required' };
    const { stdout } = await run(program as string, args, { cwd: checkout(t, folder), env });
    t.regex(stdout, /^ +\d+ tests passed$/m);
  });
}
