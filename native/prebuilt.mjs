// Builds the addon for other machines into build/prebuilt, one npm package for each processor and C library: `npm run build:prebuilt`.
// zig is the compiler for all of them (PyPI: ziglang; MESHCACHE_ZIG names another). RDMA needs the headers of this machine, which are alike everywhere.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const OUTPUT = 'build/prebuilt';

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

/** Writes the package of one platform. Throws if the compiler fails. */
function buildPackage(platform, headers, { version, license, engines }) {
  const { target, cpu, libc } = PLATFORMS[platform];
  const folder = join(OUTPUT, platform);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const { include_dir: api } = createRequire(import.meta.url)('node-addon-api');
  const { include_dir: node } = createRequire(import.meta.url)('node-api-headers');
  const includes = [resolve(api), resolve(node), headers].flatMap((path) => ['-isystem', path]);
  const [program, ...before] = process.env.MESHCACHE_ZIG ? [process.env.MESHCACHE_ZIG] : ['python3', '-m', 'ziglang'];
  const addon = join(folder, 'meshcache.node');
  const args = [...before, 'c++', '-target', target, ...FLAGS, ...includes, ...sources(), '-o', addon];
  const { status } = spawnSync(program, args, { stdio: 'inherit' });
  if (status !== 0) throw new Error(`${platform} was not built; see above (zig: pip install ziglang)`);
  writeFileSync(`${addon}.sha256`, `${createHash('sha256').update(readFileSync(addon)).digest('hex')}\n`);
  const description = `The native addon of meshcache for ${platform}`;
  const name = `@meshcache/${platform}`;
  const manifest = { name, version, description, license, engines, os: ['linux'], cpu: [cpu], libc: [libc] };
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  cpSync('LICENSE', join(folder, 'LICENSE'));
  console.log(folder);
}

/** Builds the packages of all platforms, or of the one that MESHCACHE_PLATFORM names. */
export function buildPrebuilt(manifest) {
  const only = process.env.MESHCACHE_PLATFORM;
  if (only && !(only in PLATFORMS)) {
    throw new Error(`MESHCACHE_PLATFORM must be one of ${Object.keys(PLATFORMS).join(', ')}, got ${only}`);
  }
  if (!existsSync('/usr/include/rdma/rdma_cma.h')) {
    throw new Error('the headers of RDMA are missing (Debian: apt install libibverbs-dev librdmacm-dev)');
  }
  const headers = rdmaHeaders();
  try {
    for (const platform of only ? [only] : Object.keys(PLATFORMS)) buildPackage(platform, headers, manifest);
  } finally {
    rmSync(headers, { recursive: true });
  }
}
