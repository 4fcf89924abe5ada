import test from 'ava';
import { runScenario } from '../../src/sim/run/run-scenario.js';
import { randomScenario } from '../../src/sim/scenario/random-scenario.js';
import { REGRESSIONS } from './regressions.js';

/** Always the same ones; `npm run test:sim -- --seeds N` runs more, and others. */
const SEEDS = [1, 2, 3, 4];
const DURATION_MS = 10_000;

for (const { name, scenario } of REGRESSIONS) {
  test.serial(`sim: stays mended: ${name}`, async (t) => {
    const { violations } = await runScenario(scenario);
    t.deepEqual(
      violations.map(({ kind, rule, detail }) => `${kind} ${rule} ${detail}`),
      [],
    );
  });
}

test.serial('sim: nothing that is promised is broken in scenarios by chance', async (t) => {
  t.timeout(120_000);
  for (const seed of SEEDS) {
    const { violations } = await runScenario(randomScenario(seed, { durationMs: DURATION_MS, nodes: 3 }));
    for (const { kind, rule, detail } of violations) t.fail(`seed ${seed}: ${kind} ${rule}: ${detail}`);
  }
  t.pass();
});
