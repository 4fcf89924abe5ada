import test from 'ava';
import { clusterBench, straightLine } from '../../src/bench/cluster/cluster.js';

test.serial(
  'cluster bench: three nodes join, rest, lose one and another one; each phase has its figures',
  async (t) => {
    const progress = () => {};
    const { rows, notes } = await clusterBench({ rounds: 1, quick: true, progress });
    t.deepEqual(
      rows.map(({ nodes, phase }) => [nodes, phase]),
      [
        [3, 'join storm'],
        [3, 'steady, per second'],
        [3, 'one killed'],
        [2, 'one leaves'],
      ],
    );
    const [storm, steady, killed, left] = rows as [Row, Row, Row, Row];
    for (const row of rows) t.true(Number(row.node_cpu_ms) > 0 && Number(row.discovery_bytes) > 0, String(row.phase));
    for (const row of [storm, killed, left]) t.true(Number(row.all_found_s) >= Number(row.all_known_s));
    t.true(Number(killed.all_known_s) > 2, 'a killed node is dropped when its time-to-live is over');
    t.true(
      Number(storm.announcing_bytes) > 20 * 2 * 37,
      '20 pages to two owners, less those that are owners themselves',
    );
    t.is(steady.announcing_bytes, 0);
    t.true(notes.length > 0);
  },
);

test.serial('cluster bench: a killed head, and another one, cost two readers nothing but time', async (t) => {
  const run = () => clusterBench({ rounds: 1, quick: true, cluster: { kill: true }, progress() {} });
  let { rows, notes } = await run();
  // On a machine that is too busy for a quarter of a second, a live node is silent, too, and its pages are misses.
  for (let again = 0; again < 2 && rows.some(({ failed }) => failed !== 0); again++) ({ rows, notes } = await run());
  t.is(rows.length, 8);
  for (const row of rows) t.is(row.failed, 0, `${row.killed}: ${row.when}`);
  for (const row of rows.filter(({ when }) => when === 'from the time-to-live on')) t.true(Number(row.reads) > 0);
  t.true(notes.some((note) => /a node told to join at the moment of the kill was up after/.test(note)));
});

test('cluster bench: the straight line through points', (t) => {
  const { a, b } = straightLine([
    [5, 13],
    [10, 23],
    [50, 103],
  ]);
  t.true(Math.abs(a - 3) < 1e-9 && Math.abs(b - 2) < 1e-9);
});

type Row = Readonly<Record<string, string | number>>;
