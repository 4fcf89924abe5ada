import test from 'ava';
import { seedLine } from '../../src/cli/sim-cluster-output.js';
import type { ScenarioResult } from '../../src/sim/run/run-scenario.js';

test('sim cluster: the line of a seed that has failed is the command that replays it', (t) => {
  const result = { violationsCount: 2, hash: 'abc' } as ScenarioResult;
  const replay = 'seed 7: 2 violations, hash abc: meshcache sim cluster --random --seed 7';
  t.is(seedLine(7, result, { faults: [] }), replay);
  const given = { nodes: 4, duration: 8.5, faults: ['kill', 'power'] };
  t.is(seedLine(7, result, given), `${replay} --nodes 4 --duration 8.5 --faults kill,power`);
});
