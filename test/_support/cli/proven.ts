import type { ExecutionContext } from 'ava';
import type { Proof } from '../../../src/cli/prove/proof.js';
import type { ProveResult } from '../../../src/cli/prove/prove-report.js';
import { type CliSurroundings, runCli } from './run-cli.js';

const TIMEOUT_MS = 240_000;

export interface Proven {
  readonly status: number | null;
  readonly result: ProveResult;
}

/** Runs `meshcache prove` with few pages. */
export async function proven(
  t: ExecutionContext,
  args: readonly string[],
  surroundings?: CliSurroundings,
): Promise<Proven> {
  t.timeout(TIMEOUT_MS);
  const { status, stdout, stderr } = await runCli(['prove', '--quick', '--json', ...args], surroundings);
  t.not(stdout, '', stderr);
  return { status, result: JSON.parse(stdout) as ProveResult };
}

/** The fault is named by a failed check, and the command says so. */
export function names(
  t: ExecutionContext,
  { status, result }: Proven,
  check: RegExp,
  detail: RegExp,
): Proof | undefined {
  const wrong = result.checks.filter(({ outcome }) => outcome === 'failed');
  const found = wrong.find((each) => check.test(each.check) && detail.test(each.detail));
  t.truthy(found, JSON.stringify(result.checks, undefined, 1));
  t.is(status, 1);
  t.is(result.verdict, 'failed');
  return found;
}
