import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
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

test('sim cluster: a full disk costs the page, and not the result', async (t) => {
  const run = await runCli(['sim', 'cluster', '--nodes', '2', '--duration', '5', '--html', '/dev/full']);
  t.is(run.status, 1);
  t.regex(run.stdout, /violations +0/);
  t.regex(run.stderr, /error: cannot write the report "\/dev\/full": ENOSPC/);
});

test('sim cluster: options of a trace are refused without one', async (t) => {
  for (const words of [
    ['--speed', '2'],
    ['--requests', '5'],
  ]) {
    const { status, stderr } = await runCli(['sim', 'cluster', ...words]);
    t.is(status, 2, stderr);
    t.regex(stderr, new RegExp(`${words[0]} changes nothing without --trace`));
  }
});

test('sim cluster: recorded agent sessions are played in a closed loop', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-sessions-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const trace = join(folder, 'agents.jsonl');
  const lines: object[] = [];
  for (let conversation = 1; conversation <= 3; conversation++) {
    lines.push({ conversation, toolTokens: 512 });
    for (let turn = 0; turn < 4; turn++) {
      lines.push({ t: 30 * turn, in: 64 * (80 + turn), out: 300, h: [1, 80 + 8 * turn], api: 10, think: 20 });
    }
  }
  writeFileSync(trace, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  const words = ['sim', 'cluster', '--trace', trace, '--nodes', '2', '--users', '3', '--pool-pages', '24'];
  const storage = ['--disk-pages', '200', '--stands-for', '1mb', '--disk-rate', '100mb', '--object-rate', '50mb'];
  const { status, stdout, stderr } = await runCli([...words, ...storage, '--told', 'prefetch']);
  t.is(status, 0, stderr);
  t.regex(stdout, /requests +12, prefix hit rate 0\.\d+/);
  t.regex(stdout, /found pages +[\d.]+ % in the pool of the node when asked for/);
  t.regex(stdout, /waiting for them +p50 \d+ ms, p99 \d+ ms/);
  t.regex(stdout, /violations +0/);
  const part = await runCli([...words, '--requests', '5', '--json']);
  t.is(JSON.parse(part.stdout).result.counts.requests.count, 5);
  const refused = await runCli([...words, '--speed', '2']);
  t.is(refused.status, 2);
  t.regex(refused.stderr, /--speed is for traces in the Mooncake format/);
});
