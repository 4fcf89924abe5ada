import test from 'ava';
import { tcpBench } from '../../src/bench/tcp.js';

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
