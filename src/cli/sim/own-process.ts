import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { CommandFailure } from '../../command/context.js';

const YOUNG_FLAG = '--max-semi-space-size';
/**
 * Size of the young generation: objects of a simulated cluster live for some milliseconds of virtual time, which would
 * be many runs of the collector with the default size.
 */
const YOUNG_MB = 256;
const HEAP_MIN_MB = 4096;

/** Whether this process was started with {@link largeHeap}, or with a young generation chosen by the user. */
export function hasLargeHeap(): boolean {
  return [...process.execArgv, process.env.NODE_OPTIONS ?? ''].some((text) => text.includes(YOUNG_FLAG));
}

/** Node flags for a process whose objects need `heapMb` MB. The size of a heap cannot be changed later. */
export function largeHeap(heapMb: number): readonly string[] {
  return [`${YOUNG_FLAG}=${YOUNG_MB}`, `--max-old-space-size=${Math.max(HEAP_MIN_MB, heapMb)}`];
}

/** Runs this program in a separate process with the same output. Resolves with its exit status. Aborting ends it. */
export function runSelf(words: readonly string[], flags: readonly string[], signal: AbortSignal): Promise<number> {
  return endOf(spawn(process.execPath, [...flags, ownPath(), ...words], { stdio: 'inherit', signal }));
}

/** Runs this program in a separate process and resolves with its output. */
export async function outputOfSelf(words: readonly string[], signal: AbortSignal): Promise<string> {
  const child = spawn(process.execPath, [ownPath(), ...words], { stdio: ['ignore', 'pipe', 'inherit'], signal });
  const parts: Buffer[] = [];
  child.stdout.on('data', (part: Buffer) => parts.push(part));
  await endOf(child);
  return Buffer.concat(parts).toString();
}

/** Resolves with the exit status when all output has arrived. Rejects if a signal ended the process. */
function endOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, by) => {
      if (code !== null) resolve(code);
      else reject(new CommandFailure(`the worker process was ended by ${by}`));
    });
  });
}

function ownPath(): string {
  return fileURLToPath(new URL('./cli.js', import.meta.url));
}
