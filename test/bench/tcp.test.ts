import test from 'ava';
import { tcpBench } from '../../src/bench/tcp/tcp.js';

test('tcp bench: a quick run measures every contender at every page size, and checks the bytes', async (t) => {
  const { rows, notes } = await tcpBench({ rounds: 1, quick: true, progress() {} });
  for (const page of ['4 KiB', '64 KiB', '1 MiB', '4 MiB']) {
    for (const destinations of ['contiguous', 'scattered']) {
      const these = rows.filter((row) => row.page === page && row.destinations === destinations);
      for (const contender of ['plain sockets', 'batchRead', 'batchRead, checksums']) {
        const row = these.find((one) => one.contender === contender);
        t.true(Number(row?.gb_per_s) > 0 && Number(row?.ratio) > 0, `${page} ${destinations} ${contender}`);
      }
    }
  }
  t.true(notes.length > 0);
});

test('tcp bench: with threads, a quick run compares these numbers of threads, and checks the bytes', async (t) => {
  const { rows } = await tcpBench({ rounds: 1, quick: true, threads: [1, 3], progress() {} });
  t.deepEqual(
    rows.map(({ page, contender }) => `${page}, ${contender}`),
    ['64 KiB', '1 MiB', '4 MiB'].flatMap((page) => [`${page}, 1 threads`, `${page}, 3 threads`]),
  );
  for (const row of rows) t.true(Number(row.gb_per_s) > 0 && Number(row.ratio) > 0, String(row.contender));
});
