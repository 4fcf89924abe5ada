import { readFileSync } from 'node:fs';

const VERSION = readVersion();

/** Of the package that this module lies in; `unknown` where it was bundled into another one. */
export function packageVersion(): string {
  return VERSION;
}

function readVersion(): string {
  try {
    const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
    const { name, version } = JSON.parse(text) as { name?: unknown; version?: unknown };
    return name === 'meshcache' && typeof version === 'string' ? version : 'unknown';
  } catch {
    return 'unknown';
  }
}
