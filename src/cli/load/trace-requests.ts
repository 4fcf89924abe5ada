import { type Command, InvalidArgumentError, Option } from 'commander';
import { READ_REPORT_DELAY_MS } from '../../base/limits.js';
import { wrongUsage } from '../../command/context.js';
import { decimalNumber, flagsGiven, wholeNumber } from '../../command/options.js';
import type { SessionRequest } from '../../sim/scenario/workload.js';
import { AgentLoop } from './agent-loop.js';
import { AgentPages } from './agent-pages.js';
import {
  type AgentSession,
  type AgentThread,
  BLOCK_TOKENS,
  beginsAgentSessions,
  readAgentSessions,
} from './agent-sessions.js';
import { type TraceRequest, traceRequest } from './trace.js';
import { type TraceLine, traceLines } from './trace-lines.js';

const USERS_MAX_COUNT = 10_000;
const PAGE_MAX_TOKENS = 65_536;
const GAP_MAX_S = 1e7;
/** Heading of these options in the help. */
export const AGENT_OPTIONS = 'Options for recorded agent sessions:';

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

/** Options with the flags of {@link AgentOptions} that the user gave: they change nothing for other traces. */
export interface GivenAgentOptions extends AgentOptions {
  readonly agentFlags: readonly string[];
}

/** The options of a command that reads a trace, with those flags. */
export function withAgentFlags<T extends AgentOptions>(options: T, command: Command): T & GivenAgentOptions {
  return { ...options, agentFlags: flagsGiven(command, AGENT_OPTIONS) };
}

/** Throws a `CommandFailure` if flags were given that are for agent sessions only. */
export function refuseAgentFlags({ agentFlags }: Pick<GivenAgentOptions, 'agentFlags'>): void {
  const [flag] = agentFlags;
  if (flag !== undefined) throw wrongUsage(`${flag} is for recorded agent sessions; give a file of them as the trace`);
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
  ];
  if (!command.options.some(({ long }) => long === '--seed')) {
    const seed = new Option('--seed <number>', 'draws the order of the sessions');
    options.push(seed.argParser(wholeNumber(0, 2 ** 32 - 1)).default(1));
  }
  for (const option of options) command.addOption(option.helpGroup(AGENT_OPTIONS));
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
export async function* traceRequests(path: string, options: GivenAgentOptions): AsyncGenerator<TraceRequest> {
  const lines = traceLines(path);
  try {
    const first = await lines.next();
    if (first.done === true) return;
    const all = startingWith(first.value, lines);
    if (beginsAgentSessions(first.value)) yield* playedRequests(await readAgentSessions(all), options);
    else {
      refuseAgentFlags(options);
      for await (const line of all) yield traceRequest(line);
    }
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

/**
 * Reads recorded agent sessions, and plans them for a closed loop: each request names the one that it waits for.
 * Undefined: the trace is one in the Mooncake format, or has no requests.
 */
export async function plannedSessions(
  path: string,
  options: GivenAgentOptions & { readonly requests?: number },
): Promise<SessionRequest[] | undefined> {
  const lines = traceLines(path);
  try {
    const first = await lines.next();
    if (first.done === true) return undefined;
    if (!beginsAgentSessions(first.value)) {
      refuseAgentFlags(options);
      return undefined;
    }
    const sessions = await readAgentSessions(startingWith(first.value, lines));
    const planned: SessionRequest[] = [];
    for (const request of plannedRequests(sessions, options)) {
      if (planned.length >= (options.requests ?? Number.POSITIVE_INFINITY)) break;
      planned.push(request);
    }
    return planned;
  } finally {
    await lines.return(undefined);
  }
}

function* plannedRequests(sessions: readonly AgentSession[], options: AgentOptions): Generator<SessionRequest> {
  const pages = new AgentPages({ pageTokens: options.block, isToolShared: options.sharedTools });
  const loop = new AgentLoop(sessions, { ...options, maxGapS: options.maxGap });
  const threads = new Map<AgentThread, number>();
  for (let request = loop.next(); request !== undefined; request = loop.next()) {
    const { session, thread, turn, nextInMs, answerMs, cause } = request;
    const number = threads.get(thread) ?? threads.size;
    threads.set(thread, number);
    const { after, isAnswered, waitMs } = cause;
    yield {
      hashIds: pages.pagesOf(turn, thread, session),
      ...{ session, thread: number, isAnswered, waitMs, answerMs },
      ...(after === undefined ? {} : { after }),
      ...(nextInMs === Number.POSITIVE_INFINITY ? {} : { nextInMs: nextInMs - answerMs }),
    };
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
