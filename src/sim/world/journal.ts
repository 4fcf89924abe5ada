import { LOG_LEVELS, type LogFields, type LogLevel } from '../../base/environment/log.js';

/** A log record of a simulated process. */
export interface JournalLine {
  readonly atMs: number;
  readonly process: string;
  readonly level: LogLevel;
  readonly message: string;
  readonly fields: LogFields;
}

/** The last log records of all processes of a world, with the virtual time. */
export class Journal {
  readonly #nowMs: () => number;
  readonly #maxLines: number;
  readonly #minLevel: number;
  readonly #lines: JournalLine[] = [];
  readonly #onLine: ((line: JournalLine) => void) | undefined;
  #first = 0;

  constructor(
    nowMs: () => number,
    options: {
      readonly maxLines: number;
      readonly minLevel: LogLevel;
      readonly onLine?: ((line: JournalLine) => void) | undefined;
    },
  ) {
    this.#nowMs = nowMs;
    this.#maxLines = options.maxLines;
    this.#minLevel = LOG_LEVELS.indexOf(options.minLevel);
    this.#onLine = options.onLine;
  }

  /** The records, oldest first. */
  get lines(): readonly JournalLine[] {
    return [...this.#lines.slice(this.#first), ...this.#lines.slice(0, this.#first)];
  }

  /** Keeps a record unless its level is below the minimum; the oldest record is dropped when there are too many. */
  add(process: { readonly name: string }, level: LogLevel, message: string, fields: LogFields = {}): void {
    if (LOG_LEVELS.indexOf(level) < this.#minLevel) return;
    const line = { atMs: this.#nowMs(), process: process.name, level, message, fields };
    this.#onLine?.(line);
    if (this.#lines.length < this.#maxLines) {
      this.#lines.push(line);
      return;
    }
    this.#lines[this.#first] = line;
    this.#first = (this.#first + 1) % this.#maxLines;
  }
}

/** One line of text: seconds, process, level, message, fields. */
export function formatJournalLine({ atMs, process, level, message, fields }: JournalLine): string {
  const more = Object.entries(fields).flatMap(([name, value]) =>
    value === undefined ? [] : [`${name}=${JSON.stringify(value)}`],
  );
  return [`${(atMs / 1000).toFixed(6)}s`, process, level, message, ...more].join(' ');
}
