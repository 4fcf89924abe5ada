import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { canMakeEnvironments } from '../python.js';

/** Folder that keeps wheels of other projects between test runs, as they are large. */
const CACHE_FOLDER = 'build/wheels';
const FETCH_TIMEOUT_MS = 300_000;

/** Wheels from PyPI that a test installs offline, or the reason why they are missing. */
export interface Wheels {
  readonly folder: string;
  readonly missing: string;
}

/** What the wheel needs of PyPI, as its build backend states it. */
export function nodeRequirement(): string {
  const found = /^NODE_REQUIREMENT = "(.+)"$/m.exec(readFileSync('src/python/backend.py', 'utf8'));
  if (found === null) throw new Error('src/python/backend.py has no NODE_REQUIREMENT');
  return found[1] as string;
}

/**
 * The package with Node.js that the wheel needs, and uv, fetched from PyPI unless they are there. Synchronous, as tests
 * must be declared before anything else happens.
 */
export function fetchedWheels(): Wheels {
  const folder = join(process.cwd(), CACHE_FOLDER);
  if (!canMakeEnvironments()) {
    return { folder, missing: 'no python3 of 3.10 or newer with venv' };
  }
  if (existsSync(folder)) return { folder, missing: '' };
  const fresh = mkdtempSync(`${folder}-`);
  try {
    const venv = join(fresh, 'venv');
    execFileSync('python3', ['-m', 'venv', venv], { timeout: FETCH_TIMEOUT_MS, stdio: 'pipe' });
    const options = ['--quiet', '--no-deps', '--only-binary=:all:', '--disable-pip-version-check', '--dest', fresh];
    const download = ['download', ...options, nodeRequirement(), 'uv'];
    execFileSync(join(venv, 'bin/pip'), download, { timeout: FETCH_TIMEOUT_MS, stdio: 'pipe' });
    rmSync(venv, { recursive: true });
    renameSync(fresh, folder);
    return { folder, missing: '' };
  } catch (error) {
    rmSync(fresh, { recursive: true, force: true });
    // Another file of tests has fetched them meanwhile.
    if (existsSync(folder)) return { folder, missing: '' };
    return { folder, missing: `they cannot be fetched: ${(error as Error).message.trim().split('\n').at(-1)}` };
  }
}

/** The wheel of this package that `npm run build:wheel` has put into `folder`. */
export function wheelIn(folder: string): string {
  const names = readdirSync(folder).filter((name) => name.endsWith('.whl'));
  if (names.length !== 1) throw new Error(`${folder} has ${names.length} wheels: ${names.join(', ')}`);
  return join(folder, names[0] as string);
}
