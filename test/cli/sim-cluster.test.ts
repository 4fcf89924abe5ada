import test from 'ava';
import { seedLine } from '../../src/cli/sim/cluster-report.js';
import type { ScenarioResult } from '../../src/sim/run/run-scenario.js';
import { runCli } from '../_support/cli/run-cli.js';

test('sim cluster: the line of a seed that has failed is the command that replays it', (t) => {
  const result = { violationsCount: 2, hash: 'abc' } as ScenarioResult;
  const replay = 'seed 7: 2 violations, hash abc: meshcache sim cluster --random --seed 7';
  t.is(seedLine(7, result, { faults: [] }), replay);
  const given = { nodes: 4, duration: 8.5, faults: ['kill', 'power'] };
  t.is(seedLine(7, result, given), `${replay} --nodes 4 --duration 8.5 --faults kill,power`);
});

test('sim cluster: several processes find what one finds', async (t) => {
  const words = ['sim', 'cluster', '--json', '--seed', '7', '--seeds', '3', '--duration', '2'];
  const [one, two] = await Promise.all([runCli(words), runCli([...words, '--jobs', '2'])]);
  const found = [one, two].map(({ stdout }) => ({ ...JSON.parse(stdout), wall_s: 0 }));
  t.deepEqual(found[1], found[0]);
  t.true(found[0].events > 100);
});

test('sim cluster: options of a trace are refused without one', async (t) => {
  for (const words of [
    ['--speed', '2'],
    ['--requests', '5'],
  ]) {
    const { status, stderr } = await runCli(['sim', 'cluster', ...words]);
    t.is(status, 2, stderr);
    t.regex(stderr, /--requests and --speed need --trace/);
  }
});
