import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';

/** Folder that keeps Node between test runs, as it is large. */
const CACHE_FOLDER = 'build/node24';
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
 * The Node that runs the tests, and Node 24, which is fetched from the registry unless it is there. Synchronous, as
 * tests must be declared before anything else happens.
 */
export function nodeVersions(): NodeVersion[] {
  return [version(`Node ${process.versions.node}`, process.execPath, ''), node24()];
}

function node24(): NodeVersion {
  const name = 'Node 24';
  const packageName = `node-${process.platform}-${process.arch}`;
  const program = join(process.cwd(), CACHE_FOLDER, 'node_modules', packageName, 'bin/node');
  if (existsSync(program)) return version(name, program, '');
  try {
    mkdirSync(CACHE_FOLDER, { recursive: true });
    const options = ['--no-save', '--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline'];
    const install = ['install', '--prefix', CACHE_FOLDER, ...options, `${packageName}@24`];
    execFileSync('npm', install, { timeout: FETCH_TIMEOUT_MS, stdio: 'pipe' });
    return version(name, program, existsSync(program) ? '' : `${packageName} has no bin/node`);
  } catch (error) {
    return version(name, '', `it cannot be fetched: ${(error as Error).message.trim().split('\n').at(-1)}`);
  }
}

function version(name: string, program: string, missing: string): NodeVersion {
  const path = [dirname(program), process.env.PATH].join(delimiter);
  return { name, program, missing, env: { PATH: path } };
}
