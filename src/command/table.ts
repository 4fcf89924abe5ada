import { stripVTControlCharacters } from 'node:util';
import { formatSize } from '../base/sizes.js';

/** How a table looks beyond its texts. */
interface TableStyle {
  /** Columns whose texts stand to the right; numbers always do. */
  readonly rightColumns?: ReadonlySet<string>;
  /** Returns a cell's text, which is as wide as its column, with its colour. */
  readonly paintCell?: (text: string, column: string) => string;
}

/** Lines of a table: columns as wide as their widest cell, numbers to the right. */
export function formatTable(
  rows: readonly Readonly<Record<string, string | number>>[],
  { rightColumns, paintCell = (text) => text }: TableStyle = {},
): string {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const cells = rows.map((row) => columns.map((column) => formatCell(row[column])));
  const isRight = columns.map(
    (column) => rightColumns?.has(column) || rows.some((row) => typeof row[column] === 'number'),
  );
  const widths = columns.map((column, c) => Math.max(column.length, ...cells.map((row) => (row[c] as string).length)));
  const line = (texts: readonly string[], paint = (text: string, _column: string) => text): string =>
    texts
      .map((text, c) => {
        const width = widths[c] as number;
        const isLast = c === texts.length - 1;
        // A line has no blanks at its end.
        const padded = isRight[c] ? text.padStart(width) : isLast ? text : text.padEnd(width);
        return paint(padded, columns[c] as string);
      })
      .join('  ')
      .trimEnd();
  const rule = line(widths.map((width) => '-'.repeat(width)));
  return [line(columns), rule, ...cells.map((texts) => line(texts, paintCell))].join('\n');
}

/** Widest line of a text, without its colours. */
function widthOf(text: string): number {
  return Math.max(
    ...stripVTControlCharacters(text)
      .split('\n')
      .map((line) => line.length),
  );
}

/** Breaks lines at blanks so that none is wider than `columns`, unless a single word is; further lines are indented. */
export function wrapText(text: string, columns: number, indent = 2): string {
  const lines: string[] = [];
  for (const paragraph of text.split('\n')) {
    let line = /^ */.exec(paragraph)?.[0] ?? '';
    for (const word of paragraph.slice(line.length).split(' ')) {
      const isStart = line.trim() === '';
      if (isStart || widthOf(`${line} ${word}`) <= columns) {
        line += isStart ? word : ` ${word}`;
        continue;
      }
      lines.push(line.trimEnd());
      line = `${' '.repeat(indent)}${word}`;
    }
    lines.push(line);
  }
  return lines.join('\n');
}

/** Text of other nodes without control characters, which could steer the terminal. */
export function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, '?');
}

/** Lines of names and values, with the values aligned; values are broken at blanks to fit into `columns`. */
export function formatPairs(
  pairs: readonly (readonly [name: string, value: string])[],
  columns = Number.POSITIVE_INFINITY,
): string {
  const width = Math.max(...pairs.map(([name]) => name.length));
  return pairs.map(([name, value]) => wrapText(`  ${name.padEnd(width)}  ${value}`, columns, width + 4)).join('\n');
}

export interface FittedTable extends TableStyle {
  /** Columns that may be left out for want of room, the first one first. */
  readonly optional?: readonly string[];
}

/**
 * A table that is not wider than `columns`: optional columns are left out as needed. If it does not fit without them
 * either, a block of lines for each row with all of its values, below its first cell.
 */
export function fitTable(
  rows: readonly Readonly<Record<string, string>>[],
  columns: number,
  { optional = [], ...style }: FittedTable = {},
): string {
  for (let dropped = 0; dropped <= optional.length; dropped++) {
    const absent = new Set(optional.slice(0, dropped));
    const fewer = rows.map((row) => Object.fromEntries(Object.entries(row).filter(([name]) => !absent.has(name))));
    const table = formatTable(fewer, style);
    if (widthOf(table) <= columns) return table;
  }
  return rows.map((row) => formatBlock(row, columns)).join('\n\n');
}

function formatBlock(row: Readonly<Record<string, string>>, columns: number): string {
  const [title, ...values] = Object.entries(row);
  const pairs = values.map(([name, value]): [string, string] => [name, formatCell(value)]);
  return `${formatCell(title?.[1])}\n${formatPairs(pairs, columns)}`;
}

/** A whole number with separators: `288,000`. */
export function formatCount(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

/** A share of one as percent: `36.6 %`. */
export function formatShare(part: number, whole: number): string {
  return whole === 0 ? '-' : `${((100 * part) / whole).toFixed(1)} %`;
}

/** Microseconds, as milliseconds from one on: `2.4 ms`. */
export function formatMicros(us: number): string {
  if (Number.isNaN(us)) return '-';
  return us < 1000 ? `${us.toFixed(0)} us` : `${(us / 1000).toPrecision(3)} ms`;
}

/** Bytes in each second: `1.2 GiB/s`. */
export function formatRate(bytesPerS: number): string {
  const size = formatSize(bytesPerS).replace(/^[\d.]+/, (digits) => String(Number(Number(digits).toPrecision(3))));
  return `${size}/s`;
}

const AGE_UNITS = [
  [86_400, 'd'],
  [3_600, 'h'],
  [60, 'min'],
] as const;

/** A duration in its largest unit: `42 s`, `12 min`, `5.3 h`. */
export function formatAge(seconds: number): string {
  for (const [unitS, unit] of AGE_UNITS) {
    if (seconds < unitS) continue;
    const count = seconds / unitS;
    return `${count < 10 ? Number(count.toFixed(1)) : Math.round(count)} ${unit}`;
  }
  return `${Math.round(seconds)} s`;
}

function formatCell(value: string | number | undefined): string {
  if (typeof value !== 'number') return printable(value ?? '');
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(4)));
}
