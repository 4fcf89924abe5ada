import test from 'ava';
import {
  formatByteRate,
  formatBytes,
  formatClock,
  formatCount,
  formatDuration,
  formatLatency,
  formatNumber,
  formatShare,
} from '../../src/dashboard/views/format.js';

test('dashboard format: three digits and the unit that fits', (t) => {
  t.is(formatCount(1234567), '1,234,567');
  t.deepEqual([0, 1.234, 9.996, 12.34, 99.96, 1234.5].map(formatNumber), ['0', '1.23', '10.0', '12.3', '100', '1,235']);
  t.deepEqual([0, 512, 1023, 1024, 1.5 * 2 ** 30, 2 ** 80].map(formatBytes), [
    '0 B',
    '512 B',
    '1,023 B',
    '1.00 KiB',
    '1.50 GiB',
    '1,073,741,824 PiB',
  ]);
  t.deepEqual([0, 1023.7, 2 ** 20, 1.5 * 2 ** 30].map(formatByteRate), [
    '0 B/s',
    '1.00 KiB/s',
    '1.00 MiB/s',
    '1.50 GiB/s',
  ]);
});

test('dashboard format: only all is 100 % and only none is 0 %', (t) => {
  t.deepEqual([0, 1e-6, 0.5, 0.9312, 0.99999, 1].map(formatShare), [
    '0 %',
    '0.1 %',
    '50.0 %',
    '93.1 %',
    '99.9 %',
    '100 %',
  ]);
});

test('dashboard format: latencies, durations and times of day', (t) => {
  t.deepEqual(
    [84e-6, 2.414e-3, 1.2].map((s) => formatLatency(s)),
    ['84.0 µs', '2.41 ms', '1.20 s'],
  );
  t.is(formatLatency(10, 10), '≥ 10.0 s');
  t.deepEqual([0, 0.72, 9.96].map(formatDuration), ['0 s', '0.7 s', '9 s']);
  t.deepEqual([45.9, 725, 15_125, 273_600].map(formatDuration), ['45 s', '12 min 5 s', '4 h 12 min', '3 d 4 h']);
  t.is(formatClock(new Date(2026, 1, 3, 4, 5, 6).getTime()), '04:05:06');
  t.is(formatClock(Number.NaN), '–');
});
