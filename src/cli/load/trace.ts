import { createHash } from 'node:crypto';
import { createReadStream, type ReadStream } from 'node:fs';
import { CALL_MAX_KEYS } from '../../base/limits.js';
import { CommandFailure } from '../../command/context.js';

/** Longest line, in characters; far more than the largest request needs. */
const LINE_MAX_CHARACTERS = 16 * 2 ** 20;

/** One request of a Mooncake-format trace. */
export interface TraceRequest {
  /** Milliseconds since the trace's start. */
  readonly timestampMs: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** One id for each block of 512 tokens. Ids are chained: equal ids have equal prefixes. */
  readonly hashIds: readonly number[];
}

/**
 * Reads a trace of JSON lines (`timestamp`, `input_length`, `output_length`, `hash_ids`) as a stream, because it may be
 * larger than memory. Throws a {@link CommandFailure} that names the file, the line and what is wrong with it.
 */
export async function* readTrace(path: string): AsyncGenerator<TraceRequest> {
  const file = createReadStream(path);
  const opened = new Promise<void>((resolve, reject) => {
    file.once('open', () => resolve());
    file.once('error', (cause) => reject(new CommandFailure(`cannot read the trace ${path}: ${cause.message}`)));
  });
  await opened;
  let lineNumber = 0;
  try {
    for await (const line of linesOf(file)) {
      lineNumber++;
      if (line.trim() !== '') yield parseRequest(line, `${path} line ${lineNumber}`);
    }
  } catch (error) {
    if (error instanceof CommandFailure) throw error;
    throw new CommandFailure(`cannot read the trace ${path}: ${(error as Error).message}`, undefined, { cause: error });
  } finally {
    file.destroy();
  }
}

/** Lines of a file. Throws if one is too long: a device, or a file of another kind, may have no line ends at all. */
async function* linesOf(file: ReadStream): AsyncGenerator<string> {
  let rest = '';
  for await (const chunk of file.setEncoding('utf8')) {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() as string;
    yield* lines;
    if (rest.length > LINE_MAX_CHARACTERS) throw new Error(`a line is longer than ${LINE_MAX_CHARACTERS} characters`);
  }
  if (rest !== '') yield rest;
}

/** The key of a trace's block: 64 hexadecimal characters, like the chained content hashes that it stands for. */
export function traceKey(hashId: number): string {
  return createHash('sha256').update(`block ${hashId}`).digest('hex');
}

function parseRequest(line: string, where: string): TraceRequest {
  let record: Record<string, unknown>;
  try {
    record = JSON.parse(line) as Record<string, unknown>;
  } catch (error) {
    throw new CommandFailure(`${where}: not JSON: ${(error as Error).message}`);
  }
  if (typeof record !== 'object' || record === null || Array.isArray(record)) {
    throw new CommandFailure(`${where}: must be an object with timestamp, input_length, output_length and hash_ids`);
  }
  const hashIds = record.hash_ids;
  if (!Array.isArray(hashIds) || !hashIds.every((id) => Number.isSafeInteger(id) && id >= 0)) {
    throw new CommandFailure(`${where}: hash_ids must be a list of whole numbers, got ${shown(hashIds)}`);
  }
  if (hashIds.length > CALL_MAX_KEYS) {
    throw new CommandFailure(`${where}: hash_ids has ${hashIds.length} entries, allowed are ${CALL_MAX_KEYS}`);
  }
  return {
    timestampMs: amount(record, 'timestamp', where),
    inputTokens: amount(record, 'input_length', where),
    outputTokens: amount(record, 'output_length', where),
    hashIds: hashIds as number[],
  };
}

function amount(record: Readonly<Record<string, unknown>>, name: string, where: string): number {
  const value = record[name];
  if (typeof value === 'number' && Number.isFinite(value) && value >= 0) return value;
  throw new CommandFailure(`${where}: ${name} must be a number from 0 on, got ${shown(value)}`);
}

function shown(value: unknown): string {
  if (value === undefined) return 'nothing';
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}
