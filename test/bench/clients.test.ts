import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import test from 'ava';
import { clientsBench } from '../../src/bench/clients.js';
import { findProgram } from '../../src/processes/programs.js';

const hasPackage = existsSync(fileURLToPath(new URL('../python/meshcache', import.meta.url)));
const hasPython = (await findProgram('python3')) !== undefined;
const missing = hasPython ? (hasPackage ? '' : 'build/python') : 'python3';
const suffix = missing === '' ? '' : ` (skipped: no ${missing})`;
const whereRun = missing === '' ? test : test.skip;

whereRun(
  `clients bench: a quick run measures every way at all page sizes, and checks the bytes${suffix}`,
  async (t) => {
    const { rows, notes } = await clientsBench({ rounds: 1, quick: true, progress() {} });
    for (const call of ['get', 'set']) {
      for (const page of ['4 KiB', '64 KiB', '1 MiB', '4 MiB']) {
        const these = rows.filter((row) => row.call === call && row.page === page);
        const own = `batch${call === 'get' ? 'Get' : 'Set'}V1 in the node`;
        for (const contender of [own, 'Python, direct', 'Python, staged', 'Python, bytes', 'Python, objects']) {
          const row = these.find((one) => one.contender === contender);
          t.is(Number(row?.cpu_s_per_gb) >= 0, contender !== own, `${call} ${page} ${contender}: processor time`);
          t.true(Number(row?.gb_per_s) > 0 && Number(row?.ratio) > 0, `${call} ${page} ${contender}`);
        }
      }
    }
    t.regex(notes.join('\n'), /exists of 128 keys, p50: in the node \d+ us, in the engine \d+ us/);
  },
);
