import { readFileSync } from 'node:fs';

const VERSION = readVersion();

/** The version of this package; `unknown` where the code was bundled into another package. */
export function packageVersion(): string {
  return VERSION;
}

/** Reads package.json at an address relative to the built file, which lies two folders below it. */
function readVersion(): string {
  try {
    const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
    const { name, version } = JSON.parse(text) as { name?: unknown; version?: unknown };
    return name === 'meshcache' && typeof version === 'string' ? version : 'unknown';
  } catch {
    return 'unknown';
  }
}
