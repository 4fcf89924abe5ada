import test from 'ava';
import { respBench } from '../../src/bench/resp.js';
import { findProgram } from '../../src/processes/programs.js';

const hasRedis = (await findProgram('redis-server')) !== undefined;

test(`resp bench: a quick run sets and reads values of each size${hasRedis ? '' : ' (without redis-server)'}`, async (t) => {
  const { rows, notes } = await respBench({ rounds: 1, quick: true, progress() {} });
  const redis = hasRedis ? ['redis-server'] : [];
  for (const value of ['4 KiB', '64 KiB', '1 MiB']) {
    for (const depth of ['single', 'pipelined']) {
      const these = rows.filter((row) => row.value === value && row.depth === depth);
      const of = (call: string) => these.filter((row) => row.call === call).map(({ contender }) => contender);
      const local = 'meshcache, local';
      t.deepEqual(of('get'), [local, 'meshcache, remote', 'batchGet, remote', 'bare Node server', ...redis]);
      t.deepEqual(of('set'), [local, 'bare Node server', ...redis]);
      for (const row of these) t.true(Number(row.values_per_s) > 0 && Number(row.ratio) > 0);
    }
  }
  t.is(
    notes.some((note) => note.startsWith('Without redis')),
    !hasRedis,
  );
});
