import { readFile, realpath } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The unit of the package, which starts the `meshcache` on PATH. */
const UNIT_FILE = fileURLToPath(new URL('../../deploy/meshcache.service', import.meta.url));
const COMMAND = '/usr/bin/env meshcache node';
/** Folders that are empty for the service, as the unit has ProtectHome=tmpfs. */
const HIDDEN_FOLDERS: readonly string[] = ['/home', '/root', '/run/user'];

/** Where the programs of a service lie; absolute paths. */
export interface InstalledPrograms {
  readonly node: string;
  /** The file of the program `meshcache`, without symbolic links. */
  readonly meshcache: string;
}

/** The unit of the package for the Node.js and the `meshcache` of this process. */
export async function systemdUnit(): Promise<string> {
  const programs = { node: process.execPath, meshcache: await realpath(process.argv[1] as string) };
  return unitFor(programs, await readFile(UNIT_FILE, 'utf8'));
}

/**
 * The unit with the absolute paths of these programs instead of what PATH has: a service has neither the PATH of a
 * shell nor the folders that nvm and others add to it. Programs in a home become visible to the service, and nothing
 * else there.
 */
export function unitFor({ node, meshcache }: InstalledPrograms, unit: string): string {
  const lines = [`ExecStart=${[node, meshcache, 'node'].map(quoted).join(' ')}`];
  // Both programs need their neighbours: libraries, and the packages that meshcache imports.
  const folders = new Set([dirname(dirname(node)), packagesOf(meshcache)].filter(isHidden));
  for (const folder of folders) lines.push(`BindReadOnlyPaths=${quoted(folder)}`);
  return unit.replace(`ExecStart=${COMMAND}`, () => lines.join('\n'));
}

/**
 * The folder that holds a program's package and the packages that it imports: the outermost node_modules, or the
 * checkout.
 */
function packagesOf(path: string): string {
  const at = path.indexOf('/node_modules/');
  return at < 0 ? resolve(dirname(path), '../..') : path.slice(0, at + '/node_modules'.length);
}

function isHidden(folder: string): boolean {
  return HIDDEN_FOLDERS.some((hidden) => `${folder}/`.startsWith(`${hidden}/`));
}

/** A path as a word of a unit: systemd splits lines at blanks, and takes % as the beginning of a specifier. */
function quoted(path: string): string {
  const escaped = path.replaceAll('%', '%%');
  return /\s/.test(escaped) ? `"${escaped}"` : escaped;
}
