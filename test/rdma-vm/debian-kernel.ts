import { mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { exists, output } from './tools.js';

/** The plain flavour: the one for clouds has no `rdma_rxe`. */
const META_PACKAGE = 'linux-image-amd64';

export interface Kernel {
  readonly version: string;
  readonly image: string;
  /** Has `lib/modules/<version>` below it. */
  readonly modulesRoot: string;
}

/**
 * Debian's current kernel, unpacked below `cacheFolder`, not installed. It is fetched by apt when it is not there yet;
 * without apt's package lists a kernel that was fetched before is used.
 */
export async function debianKernel(cacheFolder: string): Promise<Kernel> {
  await mkdir(cacheFolder, { recursive: true });
  const name = (await currentPackage()) ?? (await cachedPackage(cacheFolder));
  if (name === undefined) throw new Error(`apt does not know ${META_PACKAGE}: run apt-get update`);
  const folder = join(cacheFolder, name);
  if (!(await exists(folder))) await fetchPackage(name, folder);
  const version = name.replace('linux-image-', '');
  return { version, image: join(folder, 'boot', `vmlinuz-${version}`), modulesRoot: folder };
}

/** Name of the package that the meta package stands for; undefined when apt does not know. */
async function currentPackage(): Promise<string | undefined> {
  const shown = await output('apt-cache', ['show', '--no-all-versions', META_PACKAGE]).catch(() => '');
  return /^Depends:.*?\b(linux-image-[0-9][^\s,]*-amd64)\b/m.exec(String(shown))?.[1];
}

async function cachedPackage(cacheFolder: string): Promise<string | undefined> {
  const names = (await readdir(cacheFolder)).filter((name) => name.startsWith('linux-image-'));
  return names.sort((a, b) => b.localeCompare(a, 'en', { numeric: true }))[0];
}

/** Appears at `folder` as a whole or not at all. */
async function fetchPackage(name: string, folder: string): Promise<void> {
  const version = name.replace('linux-image-', '');
  const building = await mkdtemp(`${folder}.`);
  try {
    process.stderr.write(`fetching ${name}\n`);
    await output('apt-get', ['download', '-qq', '-o', 'APT::Sandbox::User=root', name], { cwd: building });
    const [file] = (await readdir(building)).filter((entry) => entry.endsWith('.deb'));
    if (file === undefined) throw new Error(`apt-get download ${name} gave no package`);
    const unpacked = join(building, 'unpacked');
    await output('dpkg-deb', ['-x', join(building, file), unpacked]);
    await output('depmod', ['-b', unpacked, version]);
    await rename(unpacked, folder).catch((error: NodeJS.ErrnoException) => {
      // Another process was faster.
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
    });
  } finally {
    await rm(building, { recursive: true, force: true });
  }
}
