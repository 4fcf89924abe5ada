// Builds the addon for other machines into build/prebuilt, one npm package for each processor and C library: `npm run build:prebuilt`.
// zig is the compiler for all of them: that of test/native/platforms.sh, that of PyPI's ziglang, or the one that MESHCACHE_ZIG names. RDMA needs the
// headers of this machine, which are alike everywhere.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const OUTPUT = 'build/prebuilt';
const BROUGHT_ZIG = 'build/platforms/zig/ziglang/zig';

/** Platforms by the ends of their packages' names. 2.28 is the oldest glibc that Node runs on. */
export const PLATFORMS = {
  'linux-x64-glibc': { target: 'x86_64-linux-gnu.2.28', cpu: 'x64', libc: 'glibc' },
  'linux-x64-musl': { target: 'x86_64-linux-musl', cpu: 'x64', libc: 'musl' },
  'linux-arm64-glibc': { target: 'aarch64-linux-gnu.2.28', cpu: 'arm64', libc: 'glibc' },
  'linux-arm64-musl': { target: 'aarch64-linux-musl', cpu: 'arm64', libc: 'musl' },
};

/** Those of CMakeLists.txt, for a compiler that has its C++ library in itself. */
const FLAGS = [
  ...['-std=c++17', '-O2', '-DNDEBUG', '-fPIC', '-shared', '-s', '-Wall', '-fno-sanitize=undefined'],
  ...['-fvisibility=hidden', '-fvisibility-inlines-hidden', '-fstack-protector-strong'],
  ...['-DNAPI_VERSION=8', '-DNODE_ADDON_API_CPP_EXCEPTIONS_ALL', '-Inative'],
  ...['-Wl,--version-script=native/exports.map', '-Wl,-z,nodelete', '-Wl,-z,now', '-Wl,-z,relro'],
];

/** The headers of the RDMA libraries alone in a folder: beside them are those of this machine's C library. */
function rdmaHeaders() {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-headers-'));
  for (const name of ['infiniband', 'rdma']) cpSync(join('/usr/include', name), join(folder, name), { recursive: true });
  return folder;
}

function sources() {
  return ['native', 'native/verbs'].flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => name.endsWith('.cc') && name !== 'rdma_absent.cc')
      .map((name) => join(folder, name)),
  );
}

/** The compiler, and its arguments before those of a build. */
function compiler() {
  const named = process.env.MESHCACHE_ZIG ?? (existsSync(BROUGHT_ZIG) ? BROUGHT_ZIG : undefined);
  return named === undefined ? ['python3', '-m', 'ziglang'] : [named];
}

/** Digest of all that makes the packages what they are, but their platforms. */
function inputs(headers, manifest) {
  const digest = createHash('sha256').update(JSON.stringify([FLAGS, PLATFORMS, manifest]));
  const [program, ...before] = compiler();
  const version = spawnSync(program, [...before, 'version'], { encoding: 'utf8' });
  if (version.status !== 0) throw new Error('there is no zig; test/native/platforms.sh --zig brings it, MESHCACHE_ZIG names another');
  digest.update(version.stdout);
  const packages = ['node-addon-api', 'node-api-headers'].map((name) => join('node_modules', name));
  for (const folder of ['native', headers, ...packages]) {
    for (const path of readdirSync(folder, { recursive: true }).sort()) {
      if (/\.(?:cc|h|map|json)$/.test(path)) digest.update(path).update(readFileSync(join(folder, path)));
    }
  }
  return digest.digest('hex');
}

/** Writes the package of one platform. Rejects if the compiler fails. */
async function buildPackage(platform, headers, { version, license, repository, engines, publishConfig }) {
  const { target, cpu, libc } = PLATFORMS[platform];
  // Half of a package never passes for all of it.
  const folder = join(OUTPUT, `${platform}.new`);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const { include_dir: api } = createRequire(import.meta.url)('node-addon-api');
  const { include_dir: node } = createRequire(import.meta.url)('node-api-headers');
  const includes = [resolve(api), resolve(node), headers].flatMap((path) => ['-isystem', path]);
  const [program, ...before] = compiler();
  const addon = join(folder, 'meshcache.node');
  const args = [...before, 'c++', '-target', target, ...FLAGS, ...includes, ...sources(), '-o', addon];
  const [status] = await once(spawn(program, args, { stdio: 'inherit' }), 'close');
  if (status !== 0) throw new Error(`${platform} was not built; see above`);
  writeFileSync(`${addon}.sha256`, `${createHash('sha256').update(readFileSync(addon)).digest('hex')}\n`);
  const description = `The native addon of meshcache for ${platform}`;
  const name = `@meshcache/${platform}`;
  const fits = { os: ['linux'], cpu: [cpu], libc: [libc] };
  // npm proves where a package was built only if the package names its repository.
  const manifest = { name, version, description, license, repository, engines, ...fits, publishConfig };
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  cpSync('LICENSE', join(folder, 'LICENSE'));
  const finished = join(OUTPUT, platform);
  rmSync(finished, { recursive: true, force: true });
  renameSync(folder, finished);
  console.log(finished);
}

/**
 * Builds the packages of all platforms, or of those that MESHCACHE_PLATFORM names, at the same time: zig takes one processor, and a minute, for
 * each. Those that were built from the same files stay.
 */
export async function buildPrebuilt(manifest) {
  const platforms = process.env.MESHCACHE_PLATFORM?.split(',') ?? Object.keys(PLATFORMS);
  const unknown = platforms.find((platform) => !(platform in PLATFORMS));
  if (unknown !== undefined) {
    throw new Error(`MESHCACHE_PLATFORM must name some of ${Object.keys(PLATFORMS).join(', ')}, got ${unknown}`);
  }
  if (!existsSync('/usr/include/rdma/rdma_cma.h')) {
    throw new Error('the headers of RDMA are missing (Debian: apt install libibverbs-dev librdmacm-dev)');
  }
  const headers = rdmaHeaders();
  try {
    const made = inputs(headers, manifest);
    const isMade = (platform) => {
      const path = join(OUTPUT, `${platform}.inputs`);
      return existsSync(join(OUTPUT, platform)) && existsSync(path) && readFileSync(path, 'utf8') === made;
    };
    const build = async (platform) => {
      await buildPackage(platform, headers, manifest);
      writeFileSync(join(OUTPUT, `${platform}.inputs`), made);
    };
    await Promise.all(platforms.filter((platform) => !isMade(platform)).map(build));
  } finally {
    rmSync(headers, { recursive: true });
  }
}
