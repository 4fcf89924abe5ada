/** Lines of a table: columns as wide as their widest cell, numbers to the right. */
export function formatTable(rows: readonly Readonly<Record<string, string | number>>[]): string {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const cells = rows.map((row) => columns.map((column) => formatCell(row[column])));
  const isNumeric = columns.map((column) => rows.some((row) => typeof row[column] === 'number'));
  const widths = columns.map((column, c) => Math.max(column.length, ...cells.map((row) => (row[c] as string).length)));
  const line = (texts: readonly string[]): string =>
    texts
      .map((text, c) => (isNumeric[c] ? text.padStart(widths[c] as number) : text.padEnd(widths[c] as number)))
      .join('  ')
      .trimEnd();
  return [line(columns), line(widths.map((width) => '-'.repeat(width))), ...cells.map(line)].join('\n');
}

/** Text of other nodes without control characters, which could steer the terminal. */
export function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, '?');
}

/** Lines of names and values, with the values aligned. */
export function formatPairs(pairs: readonly (readonly [name: string, value: string])[]): string {
  const width = Math.max(...pairs.map(([name]) => name.length));
  return pairs.map(([name, value]) => `  ${name.padEnd(width)}  ${value}`).join('\n');
}

/**
 * A table if a terminal with that many `columns` has room for it, else a block of lines for each row, below its first
 * cell.
 */
export function formatTableOrBlocks(rows: readonly Readonly<Record<string, string>>[], columns = Infinity): string {
  const table = formatTable(rows);
  if (table.split('\n').every((line) => line.length <= columns)) return table;
  return rows
    .map((row) => {
      const [title, ...values] = Object.entries(row);
      return `${formatCell(title?.[1])}\n${formatPairs(values.map(([name, value]) => [name, formatCell(value)]))}`;
    })
    .join('\n\n');
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

function formatCell(value: string | number | undefined): string {
  if (typeof value !== 'number') return printable(value ?? '');
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(4)));
}
