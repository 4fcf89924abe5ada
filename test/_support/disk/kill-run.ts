import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const PROGRAM = fileURLToPath(new URL('./disk-kill-program.js', import.meta.url));

export interface Run {
  readonly maxBytes: number;
  readonly seed: number;
  /** Number of the first step. */
  readonly version: number;
  /** Number of steps that the program carries out unless it is killed. */
  readonly steps: number;
  /** Moment of the kill; undefined: the program is not killed. */
  readonly after?: 'opening' | 'open' | 'closing';
  readonly delayMs?: number;
}

/** Runs the kill program, kills it, and resolves with how it ended. Throws if it fails by itself. */
export async function runAndKill(path: string, run: Run): Promise<'ended' | 'killed'> {
  const args = [PROGRAM, path, run.maxBytes, run.seed, run.version, run.steps].map(String);
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => {
    errors += chunk.toString();
  });
  const exit = once(child, 'exit');
  let killing: Promise<unknown> | undefined;
  createInterface({ input: child.stdout }).on('line', (line) => {
    if (line === run.after) killing = sleep(run.delayMs).then(() => child.kill('SIGKILL'));
  });
  const [code] = await exit;
  await killing;
  if (code !== null && code !== 0) throw new Error(`the program ended with ${code}: ${errors}`);
  return code === 0 ? 'ended' : 'killed';
}
