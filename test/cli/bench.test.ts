import test from 'ava';
import type { BenchReport } from '../../src/bench/report.js';
import { runCli } from './run-cli.js';

for (const what of ['memory', 'ring', 'pool', 'directory', 'tcp', 'store']) {
  test.serial(`bench: ${what} runs, small and quick`, async (t) => {
    const run = await runCli(['bench', what, '--quick', '--rounds', '1', '--json']);
    t.is(run.status, 0, run.stderr);
    const report = JSON.parse(run.stdout) as BenchReport;
    t.true(report.title.length > 0);
    t.true(report.rows.length > 0);
    for (const row of report.rows) {
      for (const [name, value] of Object.entries(row)) {
        t.true(typeof value === 'string' || Number.isFinite(value), `${name} is ${value}`);
      }
    }
  });
}
