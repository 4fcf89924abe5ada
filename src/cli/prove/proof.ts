import { within } from '../../base/environment/clock.js';
import type { CommandContext } from '../../command/context.js';

/** How a check ended. `not run`: this machine or its settings lack what the check needs; the detail says what. */
export type Outcome = 'passed' | 'failed' | 'not run';

export interface Verdict {
  readonly outcome: Outcome;
  readonly detail: string;
  /** What to do about it; absent if there is nothing to do. */
  readonly advice?: string;
  /** Figures of the check, the unit last in each name. */
  readonly figures?: Readonly<Record<string, number>>;
}

/** The result of one check, as `--json` prints it. */
export interface Proof extends Verdict {
  /** Part of the installation that was checked; also the section of the report. */
  readonly area: string;
  readonly check: string;
  readonly seconds: number;
}

/** One check that has not run yet. */
export interface Step {
  readonly area: string;
  readonly check: string;
  /** Advice for a check that throws or does not end. */
  readonly advice: string;
  run(): Promise<Verdict>;
}

/** How long one check may take, in milliseconds, its nodes' start and end included. */
const STEP_MAX_MS = 300_000;

export function passed(detail: string, figures?: Verdict['figures']): Verdict {
  return { outcome: 'passed', detail, ...(figures && { figures }) };
}

export function failed(detail: string, advice?: string, figures?: Verdict['figures']): Verdict {
  return { outcome: 'failed', detail, ...(advice && { advice }), ...(figures && { figures }) };
}

export function notRun(detail: string, advice?: string): Verdict {
  return { outcome: 'not run', detail, ...(advice && { advice }) };
}

/** Runs one check. A check that throws, or that does not end, has failed. Rejects only after a signal. */
export async function prove(step: Step, { clock, signal }: CommandContext): Promise<Proof> {
  const { area, check, advice } = step;
  const startMs = clock.nowMs();
  let verdict: Verdict = failed(`the check has not ended within ${STEP_MAX_MS / 1000} s`, advice);
  const work = step.run().then(
    (found) => {
      verdict = found;
    },
    (error: Error) => {
      verdict = failed(error.message, advice);
    },
  );
  await within(clock, STEP_MAX_MS, work);
  signal.throwIfAborted();
  return { area, check, seconds: (clock.nowMs() - startMs) / 1000, ...verdict };
}
