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

test.serial('run: a node is not started while it closes', async (t) => {
  const restart = { kind: 'restart', durationMs: 500, nodes: [2], peers: [], amount: 0 } as const;
  // The first restart brings node 2 up before it joins; its join falls into the second one.
  const faults = [200, 3_000].map((atMs) => ({ ...restart, atMs }));
  const joins = [{ atMs: 3_001, nodes: [2] }];
  // A node tells the others that it leaves, which takes longer than a millisecond here.
  const network = { latencyMs: 5 };
  const scenario = scenarioOf({ ...SMALL, durationMs: 5_000, network, faults, joins });
  const { violations, counts } = await runScenario(scenario);
  t.deepEqual(violations, []);
  t.is(counts.starts, 3);
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
