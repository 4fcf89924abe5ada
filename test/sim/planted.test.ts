import test from 'ava';
import { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { runScenario } from '../../src/sim/run/run-scenario.js';
import { withRandomFaults } from '../../src/sim/scenario/random-scenario.js';
import { type Scenario, scenarioOf } from '../../src/sim/scenario/scenario.js';
import { MIXED } from '../../src/sim/scenario/workload.js';
import { PLANTED_BUGS, type PlantedBug } from '../_support/sim/planted.js';

/** Seeds that each bug is looked for with, at most. */
const SEEDS_MAX_COUNT = 30;

function scenarioFor({ scenario = {}, kinds }: PlantedBug, seed: number): Scenario {
  const workload = { ...MIXED, pauseMaxMs: 200 };
  const made = scenarioOf({ durationMs: 8_000, workload, ...scenario, seed });
  return kinds === undefined ? made : withRandomFaults(made, kinds);
}

for (const bug of PLANTED_BUGS) {
  test.serial(`planted: found: ${bug.name}`, async (t) => {
    t.timeout(120_000);
    const { plant, environment, onStore, found } = bug;
    for (let seed = 1; seed <= SEEDS_MAX_COUNT; seed++) {
      const undo = plant?.();
      try {
        const { violations } = await runScenario(scenarioFor(bug, seed), {
          stopsAtViolation: found.length === 1 && found[0] !== 'leak',
          async createStore(config, process) {
            const env = { ...process.environment, ...environment?.(process.environment) };
            const store = await MeshCacheStore.create(config, env);
            onStore?.(store, env);
            return store;
          },
        });
        const violation = violations.find(({ kind }) => found.includes(kind));
        if (violation === undefined) continue;
        t.log(`seed ${seed}: ${violation.kind} ${violation.rule}`);
        t.pass();
        return;
      } finally {
        undo?.();
      }
    }
    t.fail(`not found with ${SEEDS_MAX_COUNT} seeds`);
  });
}
