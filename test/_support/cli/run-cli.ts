import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PATIENCE_MS } from '../support.js';

export interface CliRun {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** The bundled program lies beside the bundled tests. */
const PROGRAM = fileURLToPath(new URL('./cli.js', import.meta.url));

export interface CliSurroundings {
  /** Environment variables beside those of this process. */
  readonly env?: Readonly<Record<string, string>>;
  /** A program that starts the command, such as `['setpriv', '--no-new-privs']`. */
  readonly under?: readonly string[];
}

/**
 * Folder for the client sockets of nodes, also of nodes of other users, so that they do not meet those of other tests
 * or of this machine.
 */
const RUNTIME_FOLDER = mkdtempSync(join(tmpdir(), 'meshcache-run-'));
chmodSync(RUNTIME_FOLDER, 0o1777);
process.once('exit', () => rmSync(RUNTIME_FOLDER, { recursive: true, force: true }));

/** Starts `meshcache`; the caller must end it. */
export function startCli(args: readonly string[], { env = {}, under = [] }: CliSurroundings = {}): ChildProcess {
  const [program, ...rest] = [...under, process.execPath, PROGRAM, ...args] as [string, ...string[]];
  const surroundings = { ...process.env, XDG_RUNTIME_DIR: RUNTIME_FOLDER, ...env };
  return spawn(program, rest, { stdio: ['ignore', 'pipe', 'pipe'], env: surroundings });
}

/** Runs `meshcache` to its end. */
export function runCli(args: readonly string[], surroundings?: CliSurroundings): Promise<CliRun> {
  return collect(startCli(args, surroundings));
}

/** Resolves with everything that a process wrote when it has ended. */
export function collect(child: ChildProcess): Promise<CliRun> {
  let stdout = '';
  let stderr = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (status) => resolve({ status, stdout, stderr }));
  });
}

/** Resolves with the first line of stdout. */
export function firstLine(child: ChildProcess): Promise<string> {
  let text = '';
  return new Promise((resolve, reject) => {
    child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
      const end = text.indexOf('\n');
      if (end >= 0) resolve(text.slice(0, end));
    });
    child.once('close', (status) => reject(new Error(`ended with status ${status} before it wrote a line`)));
  });
}

/** Checks every few milliseconds until `holds`; fails after `timeoutMs`. */
export async function until(holds: () => boolean | Promise<boolean>, timeoutMs = PATIENCE_MS): Promise<void> {
  const endMs = performance.now() + timeoutMs;
  while (!(await holds())) {
    if (performance.now() > endMs) throw new Error('the condition did not come true in time');
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/**
 * Whether a process runs. One that has ended counts no more, though where nobody waits for orphans, as in many
 * containers, its number stays.
 */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/^State:\s*Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

/** Process ids of the children of a process. */
export function childrenOf(pid: number): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  return text.trim().split(/\s+/).filter(Boolean).map(Number);
}
