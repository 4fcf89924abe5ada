import test from 'ava';
import { ConfigError } from '../../src/base/errors.js';
import { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { runScenario } from '../../src/sim/run/run-scenario.js';
import { shrink } from '../../src/sim/run/shrink.js';
import { scenarioOf } from '../../src/sim/scenario/scenario.js';

const SMALL = { nodes: 2, durationMs: 500 };

test.serial('run: settings that nodes refuse are refused, and not tried for ever', async (t) => {
  const scenario = scenarioOf({ ...SMALL, shape: { config: { no_such_key: 1 } } });
  await t.throwsAsync(runScenario(scenario), { instanceOf: ConfigError, message: /no_such_key/ });
});

test.serial('run: a node that never starts ends the run', async (t) => {
  const { violations } = await runScenario(scenarioOf(SMALL), {
    createStore: async () => {
      throw new Error('planted');
    },
  });
  t.is(violations[0]?.kind, 'start');
  t.is(violations.at(-1)?.kind, 'threw');
});

test.serial('run: one at a time', async (t) => {
  const first = runScenario(scenarioOf(SMALL));
  await t.throwsAsync(runScenario(scenarioOf(SMALL)), { message: /one at a time/ });
  t.is((await first).violationsCount, 0);
});

test.serial('shrink: settings that go with others are left out only with these', async (t) => {
  const config = { heartbeat_interval: 0.2, member_ttl: 0.6 };
  const shrunk = await shrink(scenarioOf({ ...SMALL, shape: { config } }), {
    seedsCount: 1,
    runsMaxCount: 12,
    async createStore(given, process) {
      const { member_ttl } = given.extraConfig as typeof config;
      if (member_ttl !== undefined) process.environment.log.log('error', 'planted');
      return MeshCacheStore.create(given, process.environment);
    },
  });
  t.is(shrunk?.scenario.shape.config.member_ttl, 0.6);
});
