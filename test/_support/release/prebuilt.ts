import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { type Packed, pack } from '../package/packed.js';

/** Platforms for which there are packages with the addon, by the ends of the packages' names. */
export const PLATFORMS = ['linux-x64-glibc', 'linux-x64-musl', 'linux-arm64-glibc', 'linux-arm64-musl'] as const;

/** The platform of this process; one that has no package, if it is none of {@link PLATFORMS}. */
export const OWN_PLATFORM = `${process.platform}-${process.arch}-${hasGlibc() ? 'glibc' : 'musl'}`;

/** A package with the addon that has been packed. */
export interface PackedAddon extends Packed {
  readonly name: string;
  readonly platform: string;
  readonly version: string;
}

/** Packs the packages that `npm run build:prebuilt` has made into `folder`. */
export async function packAddons(folder: string): Promise<readonly PackedAddon[]> {
  const built = PLATFORMS.filter((platform) => existsSync(join('build/prebuilt', platform)));
  return Promise.all(
    built.map(async (platform) => {
      const from = join('build/prebuilt', platform);
      const { version } = JSON.parse(readFileSync(join(from, 'package.json'), 'utf8'));
      return { ...(await pack(folder, `./${from}`)), name: `@meshcache/${platform}`, platform, version };
    }),
  );
}

/**
 * Packs what is built now into `folder`, as npm will get it: with the packages of the addon as optional dependencies.
 * `package.json` itself does not have them, because `npm ci` fails while the registry does not have them either.
 */
export async function packWithAddons(folder: string, addons: readonly PackedAddon[]): Promise<Packed> {
  const work = mkdtempSync(join(tmpdir(), 'meshcache-packing-'));
  try {
    const { tarball } = await pack(work);
    execFileSync('tar', ['xzf', tarball, '-C', work]);
    const path = join(work, 'package/package.json');
    const manifest = JSON.parse(readFileSync(path, 'utf8'));
    const optionalDependencies = Object.fromEntries(addons.map(({ name, version }) => [name, version]));
    writeFileSync(path, `${JSON.stringify({ ...manifest, optionalDependencies }, null, 2)}\n`);
    return await pack(folder, join(work, 'package'));
  } finally {
    rmSync(work, { recursive: true });
  }
}

/** The manifest of a user, for whom packages with the addon come from these files, as no registry has them yet. */
export function manifestOfUser(addons: readonly PackedAddon[]): string {
  const overrides = Object.fromEntries(addons.map(({ name, tarball }) => [name, `file:${resolve(tarball)}`]));
  return JSON.stringify({ private: true, overrides });
}

/** A program that runs Node for that platform, here perhaps under an emulator; the environment may name another. */
export function nodeFor(platform: string): string | undefined {
  const named = process.env[`MESHCACHE_NODE_${platform.toUpperCase().replaceAll('-', '_')}`];
  if (named !== undefined || platform === OWN_PLATFORM) return named ?? process.execPath;
  const brought = resolve('build/platforms', platform, 'node');
  return existsSync(brought) ? brought : undefined;
}

function hasGlibc(): boolean {
  const { header } = process.report.getReport() as { readonly header: { readonly glibcVersionRuntime?: string } };
  return header.glibcVersionRuntime !== undefined;
}
