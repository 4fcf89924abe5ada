import { createReadStream, type ReadStream } from 'node:fs';
import { CommandFailure } from '../../command/context.js';

/** Longest line, in characters; far more than the largest request needs. */
const LINE_MAX_CHARACTERS = 16 * 2 ** 20;

/** A line of a trace; empty ones are left out. */
export interface TraceLine {
  readonly text: string;
  /** The file and the number of the line, for messages. */
  readonly where: string;
}

/**
 * Reads the lines of a trace as a stream, because it may be larger than memory. Throws a {@link CommandFailure} that
 * names the file if it cannot be read.
 */
export async function* traceLines(path: string): AsyncGenerator<TraceLine> {
  const file = createReadStream(path);
  const opened = new Promise<void>((resolve, reject) => {
    file.once('open', () => resolve());
    file.once('error', (cause) => reject(new CommandFailure(`cannot read the trace ${path}: ${cause.message}`)));
  });
  await opened;
  let lineNumber = 0;
  try {
    for await (const text of linesOf(file)) {
      lineNumber++;
      if (text.trim() !== '') yield { text, where: `${path} line ${lineNumber}` };
    }
  } catch (error) {
    if (error instanceof CommandFailure) throw error;
    throw new CommandFailure(`cannot read the trace ${path}: ${(error as Error).message}`, undefined, { cause: error });
  } finally {
    file.destroy();
  }
}

/** Parses a line that must be an object with certain fields. Throws a {@link CommandFailure} that names the line. */
export function traceRecord({ text, where }: TraceLine, fields: string): Record<string, unknown> {
  let record: unknown;
  try {
    record = JSON.parse(text);
  } catch (error) {
    throw new CommandFailure(`${where}: not JSON: ${(error as Error).message}`);
  }
  if (typeof record !== 'object' || record === null || Array.isArray(record)) {
    throw new CommandFailure(`${where}: must be an object with ${fields}`);
  }
  return record as Record<string, unknown>;
}

/** Returns a field that must be a number from 0 on. Throws a {@link CommandFailure} that names the line. */
export function traceAmount(record: Readonly<Record<string, unknown>>, name: string, where: string): number {
  const value = record[name];
  if (typeof value === 'number' && Number.isFinite(value) && value >= 0) return value;
  throw new CommandFailure(`${where}: ${name} must be a number from 0 on, got ${shownValue(value)}`);
}

/** A field's value, shortened, for messages. */
export function shownValue(value: unknown): string {
  if (value === undefined) return 'nothing';
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
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
