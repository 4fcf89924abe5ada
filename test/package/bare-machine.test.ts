import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, unlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { pack } from '../_support/package/packed.js';
import { freePort } from '../_support/support.js';

const run = promisify(execFile);

/** Folders of the RDMA libraries of this machine. */
function rdmaLibraryFolders(): string[] {
  const { stdout } = spawnSync('/sbin/ldconfig', ['-p'], { encoding: 'utf8' });
  const paths = [...(stdout ?? '').matchAll(/lib(?:ibverbs|rdmacm)\.so\S* .*=> (\S+)/g)].map(
    ([, path]) => path as string,
  );
  return [...new Set(paths.map((path) => dirname(path)))];
}

/**
 * Takes the libraries out of their folders ($2), for itself and the command that follows: they are marked as deleted
 * (by devices 0, 0) in an empty folder ($1) that is laid over theirs. To be run in a mount namespace of its own.
 */
const WITHOUT_LIBRARIES = `
set -e
empty=$1; folders=$2; shift 2
mount -t tmpfs none "$empty"
for folder in $folders; do
  mkdir -p "$empty/upper$folder" "$empty/work$folder"
  for library in libibverbs.so.1 librdmacm.so.1; do mknod "$empty/upper$folder/$library" c 0 0; done
  mount -t overlay none -o "lowerdir=$folder,upperdir=$empty/upper$folder,workdir=$empty/work$folder" "$folder"
  [ ! -e "$folder/libibverbs.so.1" ]
done
exec "$@"
`;

const folders = rdmaLibraryFolders();
const canHide =
  folders.length === 0 ||
  spawnSync('unshare', ['-m', 'sh', '-c', WITHOUT_LIBRARIES, 'sh', '/mnt', folders.join(' '), 'true']).status === 0;
const whereBare = canHide ? test.serial : test.serial.skip;
const suffix = canHide ? '' : ' (skipped: the RDMA libraries cannot be hidden here, it needs root)';

/** A store that wants RDMA: what it reads back, and what it is like. */
const PROGRAM = `
import { MeshCacheStore } from 'meshcache';
import { HAS_RDMA, rdmaSupport } from 'meshcache/native';

const { usable, step, reason } = rdmaSupport();
console.log(JSON.stringify({ HAS_RDMA, usable, step, reason }));
const store = await MeshCacheStore.create({
  tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false, modelName: 'm',
  extraConfig: { discovery_addr: '127.0.0.1:' + process.argv[2], protocol: 'rdma', global_segment_size: '64mb' },
});
const page = new Uint8Array(1 << 20).fill(7);
console.log(await store.set('page', page), Buffer.compare(await store.get('page'), page) === 0);
await store.close();
`;

interface Installed {
  /** Where the package lies. */
  readonly root: string;
  /** Runs a command that finds Node, no compiler and no RDMA library. */
  bare(...command: string[]): Promise<{ stdout: string; stderr: string }>;
}

/** The package, packed and installed in an empty folder, with nothing on the PATH but Node. */
async function install(folder: string): Promise<Installed> {
  const [bin, empty, user] = ['bin', 'empty', 'user'].map((name) => join(folder, name)) as [string, string, string];
  for (const path of [bin, empty, user]) await mkdir(path);
  await symlink(process.execPath, join(bin, 'node'));
  const { tarball } = await pack(folder);
  await writeFile(join(user, 'package.json'), JSON.stringify({ name: 'user', private: true, type: 'module' }));
  await writeFile(join(user, 'program.js'), PROGRAM);
  const env = { PATH: bin, HOME: user };
  const npm = execFileSync('sh', ['-c', 'readlink -f "$(command -v npm)"'], { encoding: 'utf8' }).trim();
  const options = ['--prefer-offline', '--no-audit', '--no-fund', tarball];
  await run(process.execPath, [npm, 'install', ...options], { cwd: user, env });
  const shell = ['/bin/sh', '-c', WITHOUT_LIBRARIES, 'sh', empty, folders.join(' ')];
  const bare = (...command: string[]) => {
    const set = ['env', '-i', ...Object.entries(env).map(([name, value]) => `${name}=${value}`)];
    return run('unshare', ['-m', ...shell, ...set, ...command], { cwd: user });
  };
  return { root: join(user, 'node_modules/meshcache'), bare };
}

let folder = '';
let installed: Installed;
test.before(async (t) => {
  t.timeout(120_000);
  if (!canHide) return;
  folder = await mkdtemp(join(tmpdir(), 'meshcache-bare-'));
  installed = await install(folder);
});
test.after.always(() => (folder === '' ? undefined : rm(folder, { recursive: true, force: true })));

whereBare(
  `package: where there are neither C++ tools nor RDMA libraries it starts, falls back and says so${suffix}`,
  async (t) => {
    t.timeout(180_000);
    const { root, bare } = installed;
    const hasAddon = (await readdir(join(root, 'build'))).includes('native');
    await t.throwsAsync(bare('cc', '--version'), { message: /No such file|not found/ });

    const port = String(await freePort());
    const { stdout, stderr } = await bare('node', 'program.js', port);
    const [said, result] = stdout.trim().split('\n') as [string, string];
    t.is(result, 'true true');
    const support = JSON.parse(said);
    t.is(support.usable, false);
    if (hasAddon && support.HAS_RDMA) t.is(support.step, 'libibverbs', support.reason);
    const line = stderr.split('\n').filter((text) => text.includes('data transport'));
    t.is(line.length, 1, stderr);
    t.regex(line[0] as string, /protocol\W+tcp/);
    t.regex(line[0] as string, /no RDMA: /);
    if (hasAddon && support.HAS_RDMA) t.regex(line[0] as string, /libibverbs\.so\.1: cannot open shared object file/);

    const doctor = await bare('node', 'node_modules/meshcache/build/dist/cli.js', 'doctor').catch((error) => error);
    t.regex(`${doctor.stdout}${doctor.stderr}`, hasAddon && support.HAS_RDMA ? /libibverbs/ : /RDMA|addon/i);
  },
);

whereBare(`package: with a damaged addon, and with none, it starts and says so${suffix}`, async (t) => {
  t.timeout(180_000);
  const { root, bare } = installed;
  const addon = join(root, 'build/native/meshcache.node');
  const port = String(await freePort());
  const hasAddon = (await readdir(join(root, 'build'))).includes('native');
  if (hasAddon) {
    const bytes = await readFile(addon);
    await writeFile(addon, bytes.subarray(0, bytes.length >> 1));
    const damaged = await bare('node', 'program.js', port);
    t.regex(damaged.stdout, /"HAS_RDMA":false.*\ntrue true\n/);
    t.regex(damaged.stderr, /no RDMA: .*is damaged/);
    await unlink(addon);
  }
  const none = await bare('node', 'program.js', port);
  t.regex(none.stdout, /"HAS_RDMA":false.*\ntrue true\n/);
  t.regex(none.stderr, /no RDMA: .*no native addon/);
});
