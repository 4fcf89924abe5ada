import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

/** C libraries of Linux. A library for the other one is refused by the dynamic linker. */
const C_LIBRARIES = ['glibc', 'musl'];

/** An addon of an installed package. */
export interface PrebuiltAddon {
  readonly path: string;
  /** Why it must not be loaded; empty if nothing is known against it. */
  readonly refusal: string;
}

/**
 * The addons of the installed packages for this processor, such as `@meshcache/linux-x64-glibc`, which
 * `npm run build:prebuilt` makes. One of another version than this package is refused.
 */
export function prebuiltAddons(): readonly PrebuiltAddon[] {
  return C_LIBRARIES.flatMap((library) => {
    const name = `@meshcache/linux-${process.arch}-${library}`;
    const folder = folderOf(name);
    if (folder === null) return [];
    const theirs = versionIn(join(folder, 'package.json'));
    const ours = versionIn(new URL('../../package.json', import.meta.url));
    const refusal =
      theirs === ours ? '' : `${name} has version ${theirs}, this meshcache needs ${ours}: install that one`;
    return [{ path: join(folder, 'meshcache.node'), refusal }];
  });
}

/** Where a package is installed; null if it is not. */
function folderOf(name: string): string | null {
  try {
    return join(createRequire(import.meta.url).resolve(`${name}/package.json`), '..');
  } catch {
    return null;
  }
}

function versionIn(path: string | URL): string {
  return String((JSON.parse(readFileSync(path, 'utf8')) as { readonly version?: unknown }).version);
}
