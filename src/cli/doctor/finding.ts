import type { Tone } from '../../command/terminal.js';

/**
 * States of a finding, most serious first. `n/a`: there is nothing to check, because the machine or its node does not
 * use the part.
 */
const FINDING_STATES = ['problem', 'warning', 'ok', 'n/a'] as const;

type FindingState = (typeof FINDING_STATES)[number];

export const STATE_TONES: Readonly<Record<FindingState, Tone>> = {
  problem: 'bad',
  warning: 'warning',
  ok: 'good',
  'n/a': 'faint',
};

/** The result of one check of this machine. */
export interface Finding {
  readonly subject: string;
  readonly state: FindingState;
  readonly detail: string;
  /** Advice to the user; absent if there is nothing to do. */
  readonly advice?: string;
}

/** The number of findings in each state, as `--json` prints them. */
export interface FindingCounts {
  readonly problems: number;
  readonly warnings: number;
  readonly ok: number;
  readonly not_applicable: number;
}

export function countFindings(findings: readonly Finding[]): FindingCounts {
  const count = (wanted: FindingState): number => findings.filter(({ state }) => state === wanted).length;
  return { problems: count('problem'), warnings: count('warning'), ok: count('ok'), not_applicable: count('n/a') };
}

/** A one-line summary of the findings. */
export function summaryOf({ problems, warnings, ok, not_applicable }: FindingCounts): string {
  const verdict =
    problems > 0
      ? 'a node cannot work as asked'
      : warnings > 0
        ? 'a node can run here, with the limits above'
        : 'a node can run here';
  const parts = [`${ok} ok`, `${not_applicable} not applicable`];
  return `${verdict}: ${counted(problems, 'problem')}, ${counted(warnings, 'warning')}, ${parts.join(', ')}`;
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** Checks one thing. An error that it throws becomes a finding. */
export type Check = () => Finding | Finding[] | Promise<Finding | Finding[]>;
