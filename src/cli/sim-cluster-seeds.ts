import { spawn } from 'node:child_process';
import type { ScenarioResult } from '../sim/run/run-scenario.js';
import { CommandFailure } from './failure.js';

/** What `--json` prints of a seed that has failed. */
export interface FailedSeed extends Pick<ScenarioResult, 'violations' | 'violationsCount' | 'hash'> {
  readonly seed: number;
}

/** What came of a number of seeds. */
export interface SeedsOutcome {
  readonly failed: readonly FailedSeed[];
  readonly events: number;
  readonly virtual_s: number;
}

export interface SeedsRun {
  readonly from: number;
  readonly count: number;
  readonly signal: AbortSignal;
  readonly onFailed: (failed: FailedSeed) => void;
}

/** Seeds that a process runs before it ends: few, so that all processes end at about the same time. */
const SEEDS_PER_PROCESS = 10;

/** One seed after the other, in this process. */
export async function runSeedsHere(
  { from, count, signal, onFailed }: SeedsRun,
  run: (seed: number) => Promise<ScenarioResult>,
): Promise<SeedsOutcome> {
  const failed: FailedSeed[] = [];
  let [events, virtualMs] = [0, 0];
  for (let seed = from; seed < from + count && !signal.aborted; seed++) {
    const { violations, violationsCount, hash, ...result } = await run(seed);
    events += result.events;
    virtualMs += result.virtualMs;
    if (violationsCount === 0) continue;
    failed.push({ seed, violations, violationsCount, hash });
    onFailed({ seed, violations, violationsCount, hash });
  }
  return { failed, events, virtual_s: virtualMs / 1000 };
}

/** Some seeds in each of so many processes of this program at a time; `args`: what else they are told. */
export async function runSeedsInJobs(
  { from, count, signal, onFailed }: SeedsRun,
  { jobs, args }: { readonly jobs: number; readonly args: readonly string[] },
): Promise<SeedsOutcome> {
  const outcomes: SeedsOutcome[] = [];
  let next = from;
  const work = async (): Promise<void> => {
    while (next < from + count && !signal.aborted) {
      const seed = next;
      next += SEEDS_PER_PROCESS;
      const seeds = Math.min(SEEDS_PER_PROCESS, from + count - seed);
      const outcome = await runProcess(['--seed', String(seed), '--seeds', String(seeds), ...args], signal);
      if (outcome === undefined) return;
      outcomes.push(outcome);
      for (const each of outcome.failed) onFailed(each);
    }
  };
  await Promise.all(Array.from({ length: jobs }, work));
  return {
    failed: outcomes.flatMap(({ failed }) => failed).sort((a, b) => a.seed - b.seed),
    events: outcomes.reduce((sum, { events }) => sum + events, 0),
    virtual_s: outcomes.reduce((sum, { virtual_s }) => sum + virtual_s, 0),
  };
}

/** Undefined: it was aborted. */
function runProcess(args: readonly string[], signal: AbortSignal): Promise<SeedsOutcome | undefined> {
  return new Promise((resolve, reject) => {
    const command = [process.argv[1] as string, 'sim', 'cluster', '--json', ...args];
    const child = spawn(process.execPath, command, { stdio: ['ignore', 'pipe', 'inherit'], signal });
    let text = '';
    child.stdout.setEncoding('utf8').on('data', (part: string) => {
      text += part;
    });
    child.on('error', (cause) => {
      if (signal.aborted) resolve(undefined);
      else reject(new CommandFailure(`cannot run seeds in another process: ${cause.message}`, undefined, { cause }));
    });
    child.on('close', (status) => {
      if (signal.aborted) return resolve(undefined);
      try {
        resolve(JSON.parse(text) as SeedsOutcome);
      } catch (cause) {
        const message = `the process with ${args.slice(0, 4).join(' ')} ended with status ${status} and no result`;
        reject(new CommandFailure(message, undefined, { cause }));
      }
    });
  });
}
