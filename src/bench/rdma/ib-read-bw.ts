import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { promisify } from 'node:util';

const run = promisify(execFile);
const ATTEMPTS = 20;
const RETRY_DELAY_MS = 100;

export interface IbReadBwOptions {
  readonly device: string;
  /** Address of the device; both sides run on this host. */
  readonly host: string;
  /** TCP port by which the two sides find each other. */
  readonly port: number;
  readonly messageBytes: number;
  /** Messages to read on each queue pair. */
  readonly iterations: number;
  readonly queuePairs: number;
  /** Reads in flight on each queue pair. */
  readonly depth: number;
  /** Whether to sleep on completion events instead of polling all the time. */
  readonly sleeps: boolean;
}

/** Measurements of the reading process from its start to its end. */
export interface IbReadBwResult {
  /** Seconds that the process ran. */
  readonly elapsedS: number;
  /** User and system time in seconds. */
  readonly cpuS: number;
}

/**
 * Runs perftest's `ib_read_bw` once against a server of its own. Its own figures rest on a guess of the processor's
 * frequency, which is wrong in virtual machines; hence times are taken from outside.
 */
export async function runIbReadBw(program: string, options: IbReadBwOptions): Promise<IbReadBwResult> {
  const flags = flagsOf(options);
  const server = spawn(program, flags, { stdio: 'ignore' });
  try {
    const { stdout, stderr } = await readWhenListening(program, [...flags, options.host], server);
    return resultOf(stdout, stderr);
  } finally {
    if (server.exitCode === null && server.signalCode === null) {
      server.kill('SIGKILL');
      await once(server, 'exit');
    }
  }
}

function flagsOf(options: IbReadBwOptions): string[] {
  const { device, port, messageBytes, iterations, queuePairs, depth, sleeps } = options;
  const numbers = { p: port, s: messageBytes, q: queuePairs, t: depth, n: iterations };
  const pairs = Object.entries(numbers).flatMap(([flag, value]) => [`-${flag}`, String(value)]);
  return ['-d', device, '-R', '-F', ...pairs, ...(sleeps ? ['-e'] : [])];
}

/** Starts the reader until the server listens: a reader that comes too early ends at once with an error. */
async function readWhenListening(
  program: string,
  args: readonly string[],
  server: ChildProcess,
): Promise<{ stdout: string; stderr: string }> {
  for (let attempt = 1; ; attempt++) {
    await new Promise((resolve) => setTimeout(resolve, RETRY_DELAY_MS));
    if (server.exitCode !== null) throw new Error(`the server of ib_read_bw ended with status ${server.exitCode}`);
    try {
      // The shell's `time` measures the program that it runs, and nothing else.
      return await run('bash', ['-c', 'TIMEFORMAT="took %R %U %S"; time "$0" "$@"', program, ...args]);
    } catch (error) {
      if (attempt === ATTEMPTS) throw error;
    }
  }
}

function resultOf(stdout: string, stderr: string): IbReadBwResult {
  const [, elapsed, user, system] = /^took ([\d.]+) ([\d.]+) ([\d.]+)$/m.exec(stderr) ?? [];
  if (elapsed === undefined || !stdout.includes('BW average')) {
    throw new Error(`ib_read_bw said what this program does not understand:\n${stdout}${stderr}`);
  }
  return { elapsedS: Number(elapsed), cpuS: Number(user) + Number(system) };
}
