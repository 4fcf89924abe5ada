import test from 'ava';
import { runScenario } from '../../src/sim/run/run-scenario.js';
import { REGRESSIONS } from '../_support/sim/regressions.js';

for (const { name, scenario } of REGRESSIONS) {
  test.serial(`sim: stays mended: ${name}`, async (t) => {
    const { violations } = await runScenario(scenario);
    t.deepEqual(
      violations.map(({ kind, rule, detail }) => `${kind} ${rule} ${detail}`),
      [],
    );
  });
}
