const UNITS: Readonly<Record<string, number>> = { '': 1, b: 1, kb: 2 ** 10, mb: 2 ** 20, gb: 2 ** 30, tb: 2 ** 40 };

/**
 * Parses a size given as a number or as text such as `4gb`, `1.5 GB` or `65536` (binary units, any case; rounded to
 * whole bytes). Undefined if it is not a size, is a fraction of bytes given as such, is negative or exceeds 2^53.
 */
export function parseSize(value: unknown): number | undefined {
  if (typeof value === 'number') return Number.isSafeInteger(value) && value >= 0 ? value : undefined;
  if (typeof value !== 'string') return undefined;
  const match = /^(\d+(?:\.\d+)?)\s*(b|kb|mb|gb|tb)?$/.exec(value.trim().toLowerCase());
  if (match === null) return undefined;
  const unitBytes = UNITS[match[2] ?? ''] as number;
  const bytes = Number(match[1]) * unitBytes;
  if (unitBytes === 1 && !Number.isInteger(bytes)) return undefined;
  const whole = Math.round(bytes);
  return Number.isSafeInteger(whole) ? whole : undefined;
}

/** Formats a size with binary units, for people: `1.5 GiB`. */
export function formatSize(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${Number(value.toPrecision(4))} ${units[unit]}`;
}
