import test from 'ava';
import { poolBench } from '../../src/bench/pool.js';
import { ringBench } from '../../src/bench/ring.js';

const quick = { rounds: 1, quick: true, progress() {} };

test('bench: ring reports lookups and builds for every size', async (t) => {
  const { rows } = await ringBench(quick);
  t.deepEqual(
    rows.map((row) => row.nodes),
    [3, 16, 256, 1000],
  );
  const times = ['strings_ns', 'encoded_ns', 'hashed_ns', 'single_ns', 'build_ms'] as const;
  for (const row of rows) for (const time of times) t.true((row[time] as number) > 0, time);
});

test('bench: pool holds what the issue asks of space, even in a small pool', async (t) => {
  const { rows } = await poolBench(quick);
  const leastOf = (start: string): number =>
    Math.min(
      ...rows
        .filter((row) => String(row.load).startsWith(start))
        .flatMap((row) => [row.plain_percent as number, row.in_use_percent as number]),
    );
  t.true(leastOf('4,497,408') >= 99, `one size: ${leastOf('4,497,408')}`);
  t.true(leastOf('3.12 MB and 643 KB, as often') >= 95, `two sizes: ${leastOf('3.12')}`);
  t.true(leastOf('random') >= 90, `random sizes: ${leastOf('random')}`);
});
