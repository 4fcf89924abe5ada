/** Text for an unknown value. */
export const UNKNOWN = '–';

const BINARY_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** A whole number with separators: `288,000`. */
export function formatCount(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

/** A number with at least three significant digits: `1.24`, `12.4`, `124`, `1,240`. */
export function formatNumber(value: number): string {
  if (value === 0) return '0';
  if (value < 9.995) return value.toFixed(2);
  if (value < 99.95) return value.toFixed(1);
  return formatCount(value);
}

/** An amount of bytes: `1.24 GiB`. */
export function formatBytes(bytes: number): string {
  let rest = bytes;
  let unit = 0;
  // A value that would be rounded up to 1024 belongs to the next unit.
  while (rest >= 1023.5 && unit < BINARY_UNITS.length - 1) {
    rest /= 1024;
    unit++;
  }
  return `${unit === 0 ? formatCount(rest) : formatNumber(rest)} ${BINARY_UNITS[unit]}`;
}

/** Bytes per second, in the same units as amounts: `1.24 GiB/s`. */
export function formatByteRate(bytesPerSecond: number): string {
  return `${formatBytes(bytesPerSecond)}/s`;
}

/** Pages per second: `12.4 pages/s`. */
export function formatPageRate(pagesPerSecond: number): string {
  return `${formatNumber(pagesPerSecond)} pages/s`;
}

/** A share (0 to 1) as a percentage: `93.1 %`. Shares other than 0 and 1 are shown as 0.1 % to 99.9 %. */
export function formatShare(share: number): string {
  if (share === 0 || share === 1) return `${share * 100} %`;
  return `${Math.min(Math.max(share * 100, 0.1), 99.9).toFixed(1)} %`;
}

/** A latency: `84.0 µs`, `2.41 ms`, `1.20 s`. From `largestS`, the largest known bound, on: `≥ 10.0 s`. */
export function formatLatency(seconds: number, largestS = Number.POSITIVE_INFINITY): string {
  const sign = seconds >= largestS ? '≥ ' : '';
  if (seconds < 1e-3) return `${sign}${formatNumber(seconds * 1e6)} µs`;
  if (seconds < 1) return `${sign}${formatNumber(seconds * 1e3)} ms`;
  return `${sign}${formatNumber(seconds)} s`;
}

/** A duration in its two largest units: `3 d 4 h`, `12 min 5 s`; below ten seconds with a decimal: `0.7 s`. */
export function formatDuration(seconds: number): string {
  if (seconds > 0 && seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const s = Math.floor(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** Time of day in the reader's time zone: `14:03:22`. */
export function formatClock(timeMs: number): string {
  const date = new Date(timeMs);
  if (Number.isNaN(date.getTime())) return UNKNOWN;
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, '0')).join(':');
}

/** Time of day without seconds: `14:03`. */
export function formatMinute(timeMs: number): string {
  return formatClock(timeMs).slice(0, 5);
}

/** Time of day, with the date if it is not today for the reader: `14:03:22`, `22 Nov 14:03:22`. */
export function formatMoment(timeMs: number): string {
  const [date, now] = [new Date(timeMs), new Date()];
  if (Number.isNaN(date.getTime()) || date.toDateString() === now.toDateString()) return formatClock(timeMs);
  return `${date.getDate()} ${date.toLocaleString('en-GB', { month: 'short' })} ${formatClock(timeMs)}`;
}
