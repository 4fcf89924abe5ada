import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';

/** Folder that keeps Node between test runs, as it is large. */
const CACHE_FOLDER = 'build/node';
/** The versions of Node that the package is for: all with long-term support, from the oldest that `engines` allows. */
const MAJORS = [20, 22, 24, 26];
const FETCH_TIMEOUT_MS = 120_000;

/** A Node version that the package must support, or the reason why it is missing. */
export interface NodeVersion {
  readonly name: string;
  /** Path of the program; empty if there is none. */
  readonly program: string;
  readonly missing: string;
  /** Environment in which `node` is this version. */
  readonly env: NodeJS.ProcessEnv;
}

/**
 * The Node that runs the tests, and the newest one of each other major version, which is fetched from the registry
 * unless it is there. Synchronous, as tests must be declared before anything else happens.
 */
export function nodeVersions(): NodeVersion[] {
  const own = process.versions.node;
  const others = MAJORS.filter((major) => major !== Number.parseInt(own, 10));
  return [version(`Node ${own}`, process.execPath, ''), ...others.map(fetched)];
}

function fetched(major: number): NodeVersion {
  const name = `Node ${major}`;
  const packageName = `node-${process.platform}-${process.arch}`;
  const folder = join(CACHE_FOLDER, String(major));
  const program = join(process.cwd(), folder, 'node_modules', packageName, 'bin/node');
  if (existsSync(program)) return version(name, program, problemOf(program));
  // A folder of its own: another file of tests may fetch at the same time.
  const fresh = `${folder}-${process.pid}`;
  try {
    mkdirSync(fresh, { recursive: true });
    const options = ['--no-save', '--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline'];
    const install = ['install', '--prefix', fresh, ...options, `${packageName}@${major}`];
    execFileSync('npm', install, { timeout: FETCH_TIMEOUT_MS, stdio: 'pipe' });
    if (!existsSync(folder)) renameSync(fresh, folder);
    return version(name, program, problemOf(program));
  } catch (error) {
    if (existsSync(program)) return version(name, program, problemOf(program));
    return version(name, '', `it cannot be fetched: ${(error as Error).message.trim().split('\n').at(-1)}`);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}

/** Why a Node does not run on this machine, such as a library that it needs; empty: it does. */
function problemOf(program: string): string {
  const { status, stderr, error } = spawnSync(program, ['--version'], { encoding: 'utf8' });
  return status === 0 ? '' : stderr?.trim().split('\n').at(-1) || error?.message || `it ends with status ${status}`;
}

function version(name: string, program: string, missing: string): NodeVersion {
  const path = [dirname(program), process.env.PATH].join(delimiter);
  return { name, program, missing, env: { PATH: path } };
}
