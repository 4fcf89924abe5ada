import { CALL_MAX_KEYS } from '../../base/limits.js';
import { CommandFailure } from '../../command/context.js';
import { shownValue, type TraceLine, traceAmount, traceRecord } from './trace-lines.js';

/** Tokens of a block of a recording. */
export const BLOCK_TOKENS = 64;
/** Largest time of a recording. */
const TIME_MAX_S = 1e9;

/** One request of an agent or of a subagent, as it was recorded. */
export interface AgentTurn {
  /** Seconds since the session's start. */
  readonly atS: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /**
   * Blocks of the prompt as runs: the number of the first block and how many there are, alternating. Numbers count
   * within a session.
   */
  readonly runs: readonly number[];
  /** Seconds that the model took; undefined: not recorded. */
  readonly answerS: number | undefined;
  /** Seconds that the client waited after its last answer; undefined: not recorded. */
  readonly thinkS: number | undefined;
  /** Number of the model. Models share no pages. */
  readonly model: number;
}

/** The requests of an agent, or of one of its subagents, which follow each other. */
export interface AgentThread {
  /** Length of the tool prompt, with which each request begins; 0: unknown. */
  readonly toolTokens: number;
  /** Index of the thread that started this one; undefined for the agent itself. */
  readonly parent: number | undefined;
  /** Requests in the order of their times. */
  readonly turns: readonly AgentTurn[];
}

/** A recorded session. */
export interface AgentSession {
  /** The agent, then its subagents in the order in which the recording announces them. */
  readonly threads: readonly AgentThread[];
}

/** A session whose lines are still being read. */
interface OpenSession {
  readonly threads: (AgentThread & { readonly turns: AgentTurn[] })[];
  /** Index of the thread of each announced subagent. */
  readonly threadOf: Map<number, number>;
}

/** Whether this is the first line of recorded agent sessions. */
export function beginsAgentSessions({ text }: TraceLine): boolean {
  try {
    const record: unknown = JSON.parse(text);
    return typeof record === 'object' && record !== null && Object.hasOwn(record, 'conversation');
  } catch {
    return false;
  }
}

/**
 * Reads recorded agent sessions from JSON lines. A line with `conversation` begins a session, one with `subagent`
 * announces a subagent of it, and every other line is a request. Throws a {@link CommandFailure} that names the line
 * and what is wrong with it.
 */
export async function readAgentSessions(lines: AsyncIterable<TraceLine>): Promise<AgentSession[]> {
  const sessions: OpenSession[] = [];
  for await (const line of lines) {
    const record = traceRecord(line, 'conversation, subagent or t');
    if (Object.hasOwn(record, 'conversation')) {
      const agent = { toolTokens: toolTokensOf(record, line.where), parent: undefined, turns: [] };
      sessions.push({ threads: [agent], threadOf: new Map([[0, 0]]) });
      continue;
    }
    const session = sessions.at(-1);
    if (session === undefined) throw new CommandFailure(`${line.where}: comes before the first line with conversation`);
    if (Object.hasOwn(record, 'subagent')) addSubagent(session, record, line.where);
    else addTurn(session, record, line.where);
  }
  for (const { threads } of sessions) for (const { turns } of threads) turns.sort((a, b) => a.atS - b.atS);
  return sessions.filter(({ threads }) => threads.some(({ turns }) => turns.length > 0));
}

function addSubagent({ threads, threadOf }: OpenSession, record: Record<string, unknown>, where: string): void {
  const subagent = wholeNumber(record, 'subagent', where);
  if (threadOf.has(subagent)) throw new CommandFailure(`${where}: subagent ${subagent} was announced before`);
  const parent = threadOf.get(record.of === undefined ? 0 : wholeNumber(record, 'of', where));
  if (parent === undefined) throw new CommandFailure(`${where}: of names a subagent that was not announced`);
  threadOf.set(subagent, threads.length);
  threads.push({ toolTokens: toolTokensOf(record, where), parent, turns: [] });
}

function addTurn({ threads, threadOf }: OpenSession, record: Record<string, unknown>, where: string): void {
  const thread = threadOf.get(record.a === undefined ? 0 : wholeNumber(record, 'a', where));
  if (thread === undefined) throw new CommandFailure(`${where}: a names a subagent that was not announced`);
  const optional = (name: string) => (record[name] === undefined ? undefined : seconds(record, name, where));
  threads[thread]?.turns.push({
    atS: seconds(record, 't', where),
    inputTokens: traceAmount(record, 'in', where),
    outputTokens: traceAmount(record, 'out', where),
    runs: runsOf(record, where),
    answerS: optional('api'),
    thinkS: optional('think'),
    model: record.m === undefined ? 0 : wholeNumber(record, 'm', where),
  });
}

function runsOf(record: Record<string, unknown>, where: string): readonly number[] {
  const runs = record.h;
  if (!Array.isArray(runs) || runs.length % 2 !== 0 || !runs.every((n) => Number.isSafeInteger(n) && n >= 0)) {
    throw new CommandFailure(`${where}: h must be a list of pairs of whole numbers, got ${shownValue(runs)}`);
  }
  const blocks = (runs as number[]).reduce((sum, n, i) => sum + (i % 2 === 1 ? n : 0), 0);
  if (blocks > CALL_MAX_KEYS) {
    throw new CommandFailure(`${where}: h has ${blocks} blocks, allowed are ${CALL_MAX_KEYS}`);
  }
  return runs as number[];
}

function toolTokensOf(record: Record<string, unknown>, where: string): number {
  return record.toolTokens === undefined ? 0 : traceAmount(record, 'toolTokens', where);
}

function seconds(record: Record<string, unknown>, name: string, where: string): number {
  const value = traceAmount(record, name, where);
  if (value <= TIME_MAX_S) return value;
  throw new CommandFailure(`${where}: ${name} is ${value} seconds, allowed are ${TIME_MAX_S}`);
}

function wholeNumber(record: Record<string, unknown>, name: string, where: string): number {
  const value = record[name];
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  throw new CommandFailure(`${where}: ${name} must be a whole number from 0 on, got ${shownValue(value)}`);
}
