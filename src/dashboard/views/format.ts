/** Text for an unknown value. */
export const UNKNOWN = '–';

const BINARY_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
const DECIMAL_UNITS = ['B/s', 'kB/s', 'MB/s', 'GB/s', 'TB/s'];

/** A whole number with separators: `288,000`. */
export function formatCount(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

/** A number with three digits: `1.24`, `12.4`, `124`, `1,240`. */
export function formatNumber(value: number): string {
  if (value === 0) return '0';
  if (value < 9.995) return value.toFixed(2);
  if (value < 99.95) return value.toFixed(1);
  return formatCount(value);
}

/** An amount of memory, binary units: `1.24 GiB`. */
export function formatBytes(bytes: number): string {
  return scaled(bytes, 1024, BINARY_UNITS);
}

/** Bytes per second, decimal units: `1.24 GB/s`. */
export function formatByteRate(bytesPerSecond: number): string {
  return scaled(bytesPerSecond, 1000, DECIMAL_UNITS);
}

/** A share of one: `93.1 %`. Values between 0 and 1 are shown as 0.1 % to 99.9 %. */
export function formatShare(share: number): string {
  if (share === 0 || share === 1) return `${share * 100} %`;
  return `${Math.min(Math.max(share * 100, 0.1), 99.9).toFixed(1)} %`;
}

/** A latency: `84.0 µs`, `2.41 ms`, `1.20 s`. From the largest bound on, `≥ 10.0 s`, as nothing more is known. */
export function formatLatency(seconds: number, largestS = Number.POSITIVE_INFINITY): string {
  const sign = seconds >= largestS ? '≥ ' : '';
  if (seconds < 1e-3) return `${sign}${formatNumber(seconds * 1e6)} µs`;
  if (seconds < 1) return `${sign}${formatNumber(seconds * 1e3)} ms`;
  return `${sign}${formatNumber(seconds)} s`;
}

/** A duration in its two largest units: `3 d 4 h`, `12 min 5 s`. */
export function formatDuration(seconds: number): string {
  const s = Math.floor(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** Time of day of the reader: `14:03:22`. */
export function formatClock(timeMs: number): string {
  const date = new Date(timeMs);
  if (Number.isNaN(date.getTime())) return UNKNOWN;
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, '0')).join(':');
}

function scaled(value: number, step: number, units: readonly string[]): string {
  let rest = value;
  let unit = 0;
  // A value that would be rounded to a whole step belongs to the next unit.
  while (rest >= step - 0.5 && unit < units.length - 1) {
    rest /= step;
    unit++;
  }
  return `${unit === 0 ? formatCount(rest) : formatNumber(rest)} ${units[unit]}`;
}
