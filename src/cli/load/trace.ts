import { createHash } from 'node:crypto';
import { CALL_MAX_KEYS } from '../../base/limits.js';
import { CommandFailure } from '../../command/context.js';
import { shownValue, type TraceLine, traceAmount, traceLines, traceRecord } from './trace-lines.js';

/** One request of a trace. */
export interface TraceRequest {
  /** Milliseconds since the trace's start. */
  readonly timestampMs: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** One id for each page. Ids are chained: equal ids have equal prefixes. */
  readonly hashIds: readonly number[];
  /** Number of the session; undefined if the trace does not name sessions. */
  readonly session?: number;
  /**
   * Milliseconds until the agent or subagent that makes this request makes its next one; Infinity: this is its last
   * one; undefined: the trace does not say.
   */
  readonly nextInMs?: number;
}

/**
 * Reads a trace in the Mooncake format: JSON lines with `timestamp`, `input_length`, `output_length` and `hash_ids`,
 * one id for each block of 512 tokens. Throws a {@link CommandFailure} that names the file, the line and what is wrong
 * with it.
 */
export async function* readTrace(path: string): AsyncGenerator<TraceRequest> {
  for await (const line of traceLines(path)) yield traceRequest(line);
}

/** The key of a trace's page: 64 hexadecimal characters, like the chained content hashes that it stands for. */
export function traceKey(hashId: number): string {
  return createHash('sha256').update(`block ${hashId}`).digest('hex');
}

/** Parses one line of a trace in the Mooncake format. */
export function traceRequest(line: TraceLine): TraceRequest {
  const record = traceRecord(line, 'timestamp, input_length, output_length and hash_ids');
  const { where } = line;
  const hashIds = record.hash_ids;
  if (!Array.isArray(hashIds) || !hashIds.every((id) => Number.isSafeInteger(id) && id >= 0)) {
    throw new CommandFailure(`${where}: hash_ids must be a list of whole numbers, got ${shownValue(hashIds)}`);
  }
  if (hashIds.length > CALL_MAX_KEYS) {
    throw new CommandFailure(`${where}: hash_ids has ${hashIds.length} entries, allowed are ${CALL_MAX_KEYS}`);
  }
  return {
    timestampMs: traceAmount(record, 'timestamp', where),
    inputTokens: traceAmount(record, 'input_length', where),
    outputTokens: traceAmount(record, 'output_length', where),
    hashIds: hashIds as number[],
  };
}
