import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import type { BenchReport } from '../../src/bench/measuring/report.js';
import { childrenOf, collect, isAlive, runCli, startCli, until } from '../_support/cli/run-cli.js';
import { unless } from '../_support/unless.js';

for (const what of [
  'memory',
  'ring',
  'map',
  'map-feed',
  'pool',
  'directory',
  'tcp',
  'store',
  'small',
  'placement',
  'metrics',
  'auth',
  'disk',
  'isolation',
]) {
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

test.serial('bench: isolation names the kinds of hostile clients that it knows', async (t) => {
  const run = await runCli(['bench', 'isolation', '--quick', '--hostile', 'spin,nobody']);
  t.not(run.status, 0);
  t.regex(run.stderr, /no hostile client of kind nobody; known: spin, regions-64g, .*, holes, /);
});

test.serial('bench: disk leaves no file behind when it is interrupted', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'meshcache-bench-test-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  const child = startCli(['bench', 'disk', '--quick', '--dir', dir]);
  const ended = collect(child);
  await until(() => {
    try {
      return readdirSync(dir, { recursive: true }).length > 2;
    } catch {
      // The benchmark has removed a folder while it was read.
      return false;
    }
  });
  child.kill('SIGINT');
  t.is((await ended).status, 130);
  t.deepEqual(readdirSync(dir), []);
});

const hasRedis = spawnSync('redis-server', ['--version']).status === 0;

unless(hasRedis ? '' : 'no redis-server', test.serial)(
  'bench: neither a server nor a folder stays behind when a signal ends it',
  async (t) => {
    const temporary = mkdtempSync(join(tmpdir(), 'meshcache-bench-test-'));
    t.teardown(() => rmSync(temporary, { recursive: true, force: true }));
    const child = startCli(['bench', 'resp', '--rounds', '1000'], { env: { TMPDIR: temporary } });
    const ended = collect(child);
    let pids: number[] = [];
    await until(() => {
      pids = childrenOf(child.pid as number);
      return pids.some((pid) => /redis-server/.test(readFileSync(`/proc/${pid}/cmdline`, 'latin1')));
    });
    t.not(readdirSync(temporary).length, 0);
    child.kill('SIGTERM');
    t.is((await ended).status, 130);
    await until(() => pids.every((pid) => !isAlive(pid)));
    t.deepEqual(readdirSync(temporary), []);
  },
);
