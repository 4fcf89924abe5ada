import { type Command, InvalidArgumentError, Option } from 'commander';
import { READ_REPORT_DELAY_MS } from '../../base/limits.js';
import { decimalNumber, wholeNumber } from '../../command/options.js';
import { AgentLoop } from './agent-loop.js';
import { AgentPages } from './agent-pages.js';
import { type AgentSession, BLOCK_TOKENS, beginsAgentSessions, readAgentSessions } from './agent-sessions.js';
import { type TraceRequest, traceRequest } from './trace.js';
import { type TraceLine, traceLines } from './trace-lines.js';

const USERS_MAX_COUNT = 10_000;
const PAGE_MAX_TOKENS = 65_536;
const GAP_MAX_S = 1e7;
const HELP_GROUP = 'Options for recorded agent sessions:';

/** Help for the argument of a command that reads a trace. */
export const TRACE_ARGUMENT =
  'file of JSON lines in the Mooncake format (timestamp, input_length, output_length, hash_ids), or agent sessions';

/** How recorded agent sessions are played, as the options of the command line say it. */
export interface AgentOptions {
  /** Sessions at a time. */
  readonly users: number;
  /** Sessions to play; undefined: all. */
  readonly sessions?: number;
  /** Tokens of a page. */
  readonly block: number;
  /** Longest pause of a session, in seconds. */
  readonly maxGap: number;
  /** Whether sessions with equally long tool prompts share them. */
  readonly sharedTools: boolean;
  /** Draws the order of the sessions and the begins of the users. */
  readonly seed: number;
}

/** Adds the options of {@link AgentOptions} to a command that reads a trace. */
export function addAgentOptions(command: Command): Command {
  const options = [
    new Option('--users <count>', 'sessions at a time; a user who is done begins another one')
      .argParser(wholeNumber(1, USERS_MAX_COUNT))
      .default(16),
    new Option('--sessions <count>', 'number of sessions to play (default: all)').argParser(wholeNumber(1, 1e9)),
    new Option('--block <tokens>', `tokens of a page, a multiple of ${BLOCK_TOKENS}`)
      .argParser(pageTokens)
      .default(512),
    new Option('--max-gap <seconds>', 'longest pause of a session; longer ones are cut to it')
      .argParser(wholeNumber(0, GAP_MAX_S))
      .default(3600),
    new Option('--no-shared-tools', 'sessions with equally long tool prompts do not share them'),
    new Option('--seed <number>', 'draws the order of the sessions').argParser(wholeNumber(0, 2 ** 32 - 1)).default(1),
  ];
  for (const option of options) command.addOption(option.helpGroup(HELP_GROUP));
  return command;
}

/** The option `--report-delay-ms` of a command that reads a trace. */
export function reportDelayOption(): Option {
  return new Option('--report-delay-ms <ms>', 'time of the trace until owners hear of reads by other nodes; or never')
    .argParser(reportDelay)
    .default(READ_REPORT_DELAY_MS);
}

/**
 * Reads the requests of a trace, in order: one in the Mooncake format, or recorded agent sessions, which its first line
 * tells; the latter are played in a closed loop. Throws a `CommandFailure` that names the file, the line and what is
 * wrong with it.
 */
export async function* traceRequests(path: string, options: AgentOptions): AsyncGenerator<TraceRequest> {
  const lines = traceLines(path);
  try {
    const first = await lines.next();
    if (first.done === true) return;
    const all = startingWith(first.value, lines);
    if (beginsAgentSessions(first.value)) yield* playedRequests(await readAgentSessions(all), options);
    else for await (const line of all) yield traceRequest(line);
  } finally {
    await lines.return(undefined);
  }
}

/** The requests of sessions that are played in a closed loop. Requests that fill no page are left out. */
export function* playedRequests(sessions: readonly AgentSession[], options: AgentOptions): Generator<TraceRequest> {
  const pages = new AgentPages({ pageTokens: options.block, isToolShared: options.sharedTools });
  const loop = new AgentLoop(sessions, { ...options, maxGapS: options.maxGap });
  for (let request = loop.next(); request !== undefined; request = loop.next()) {
    const { atMs, session, thread, turn, nextInMs } = request;
    const hashIds = pages.pagesOf(turn, thread, session);
    const { inputTokens, outputTokens } = turn;
    if (hashIds.length > 0) yield { timestampMs: atMs, inputTokens, outputTokens, hashIds, session, nextInMs };
  }
}

async function* startingWith(first: TraceLine, rest: AsyncIterable<TraceLine>): AsyncGenerator<TraceLine> {
  yield first;
  yield* rest;
}

function reportDelay(text: string): number {
  return text === 'never' ? Number.POSITIVE_INFINITY : decimalNumber(0, 3_600_000, 'milliseconds, or never')(text);
}

function pageTokens(text: string): number {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= BLOCK_TOKENS && value <= PAGE_MAX_TOKENS && value % BLOCK_TOKENS === 0) return value;
  throw new InvalidArgumentError(`Allowed is ${BLOCK_TOKENS} to ${PAGE_MAX_TOKENS} in multiples of ${BLOCK_TOKENS}.`);
}
