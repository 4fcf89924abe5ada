import { spawn, spawnSync } from 'node:child_process';
import type { ExecutionContext } from 'ava';
import { collect } from './cli/run-cli.js';

export const PYTHON = 'python3';
export const PYTHON_TIMEOUT_MS = 600_000;

/** Whether a program is here, and ends well. */
export function succeeds(program: string, ...args: string[]): boolean {
  return spawnSync(program, args).status === 0;
}

/** Whether there is a Python that the wheel is for, and that can make virtual environments. */
export function canMakeEnvironments(): boolean {
  return succeeds(PYTHON, '-c', 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))');
}

/**
 * Runs a program, which must end well, and gives its output. It does not block: ava is told of the time that the test
 * may take only when this thread has a turn.
 */
export async function run(
  t: ExecutionContext,
  program: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<string> {
  const child = spawn(program, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: PYTHON_TIMEOUT_MS,
    // Nothing is written beside the sources.
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1', ...env },
  });
  const { status, stdout, stderr } = await collect(child);
  t.is(status, 0, `${program} ${args.join(' ')}\n${stdout}\n${stderr}`);
  return stdout.trim();
}
