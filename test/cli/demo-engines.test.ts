import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { EngineDemoResult } from '../../src/cli/demo/engines.js';
import { loadNative } from '../../src/native/addon/loader.js';
import { childrenOf, collect, isAlive, runCli, startCli, until } from '../_support/cli/run-cli.js';

const TIMEOUT_MS = 240_000;
const SMALL = ['demo', '--engines', '--conversations', '8', '--page-bytes', '16kb', '--seed', '5', '--seconds', '200'];

const hasPython = spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 10))']).status === 0;
const withPython = hasPython ? test.serial : test.serial.skip;
const why = hasPython ? '' : ' (skipped: no python3 of 3.10 or newer)';
const hasAddon = loadNative().addon !== null;

/** What holds in every mode. */
function looksRight(t: ExecutionContext, result: EngineDemoResult): void {
  const text = JSON.stringify(result);
  t.like(result, { nodes: 3, wrong_bytes: 0, checksum_failures: 0 }, text);
  t.is(result.engines.length, 3);
  for (const engine of result.engines) {
    t.like(engine, { wrong_bytes: 0, exceptions: [] }, text);
    t.true(engine.pages_hit > 0 && engine.pages_computed > 0 && engine.pages_read >= engine.pages_hit, text);
    t.is(engine.pages_hit + engine.pages_missed, engine.pages_asked);
    t.is(engine.pages_computed, engine.pages_missed);
  }
  t.true(result.hits.remote > 0 && result.hits.local > 0, 'conversations move between nodes');
  t.is(
    result.engines.reduce((sum, { turns }) => sum + turns, 0),
    result.requests,
  );
  const { fault } = result;
  t.true(fault.pages_hit_before > 0 && fault.pages_hit_after > 0, text);
  t.true(fault.pages_asked_while_away > 0, text);
  t.is(fault.pages_hit_while_away, 0, text);
  t.true(fault.back_s > 0 && fault.away_s >= fault.back_s, text);
  const lost = result.engines.find(({ node }) => node === fault.node);
  t.true((lost?.reconnects ?? 0) > 0, 'the engine of the lost node attaches again by itself');
}

withPython(`demo-engines: pages go between engines, and a lost node costs misses only${why}`, async (t) => {
  t.timeout(TIMEOUT_MS);
  const best = hasAddon ? 'direct' : 'file';
  let result: EngineDemoResult | undefined;
  // An engine that a stalled machine lets wait for a second while it attaches goes another way.
  for (let attempt = 0; attempt < 3 && !result?.engines.some(({ mode }) => mode === best); attempt++) {
    const run = await runCli([...SMALL, '--json']);
    t.is(run.status, 0, run.stderr);
    result = JSON.parse(run.stdout) as EngineDemoResult;
    looksRight(t, result);
  }
  if (result === undefined) return t.fail();
  t.true(
    result.engines.some(({ mode }) => mode === best),
    JSON.stringify(result.engines),
  );
  t.is(result.prefill_saved, result.prefix_hit_rate);
});

withPython(`demo-engines: without the addon it runs, and says how pages go${why}`, async (t) => {
  t.timeout(TIMEOUT_MS);
  const run = await runCli(SMALL, { env: { MESHCACHE_NATIVE: 'off' } });
  t.is(run.status, 0, run.stderr);
  t.regex(run.stdout, /^ {2}wrong bytes +0$/m);
  t.regex(run.stdout, /^node-3 +(file|bytes) +\d/m);
  t.regex(run.stdout, /^pages go: +(file: without the native addon|bytes: on the socket)/m);
  t.regex(run.stdout, /^prefill saved: \d/m);
  t.regex(run.stdout, /^node killed: +node-\d.* 0 of \d+ pages while it was away/m);
  t.regex(run.stdout, /^service back: +\d+\.\d s/m);
});

test.serial('demo-engines: without python3 it says what to install', async (t) => {
  const empty = mkdtempSync(join(tmpdir(), 'meshcache-path-'));
  t.teardown(() => rmSync(empty, { recursive: true, force: true }));
  const run = await runCli(SMALL, { env: { PATH: empty } });
  t.is(run.status, 1);
  t.regex(run.stderr, /no python3 on PATH: install it \(Debian: apt install python3\)/);
});

test.serial('demo-engines: MESHCACHE_PYTHON names the Python of the engines', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-python-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const python = join(folder, 'own-python');
  writeFileSync(python, '#!/bin/sh\necho this is no Python >&2\n', { mode: 0o755 });
  const run = await runCli(SMALL, { env: { PATH: folder, MESHCACHE_PYTHON: python } });
  t.is(run.status, 1);
  t.regex(run.stderr, /the Python process has ended: this is no Python/);
});

test.serial('demo-engines: what cannot be had is refused', async (t) => {
  for (const [args, message] of [
    [['--nodes', '1'], /--nodes must be 2 or more, got 1/],
    [['--conversations', '1'], /choose more --conversations/],
    [['--keep'], /--keep cannot be used with --engines/],
    [['--disk'], /--disk cannot be used with --engines/],
  ] as const) {
    const run = await runCli(['demo', '--engines', ...args]);
    t.is(run.status, 2, run.stderr);
    t.regex(run.stderr, message);
  }
});

for (const signal of ['SIGINT', 'SIGTERM', 'SIGKILL'] as const) {
  withPython(`demo-engines: a run that ${signal} ends leaves no process behind${why}`, async (t) => {
    t.timeout(TIMEOUT_MS);
    const temporary = mkdtempSync(join(tmpdir(), 'meshcache-demo-test-'));
    t.teardown(() => rmSync(temporary, { recursive: true, force: true }));
    const args = ['demo', '--engines', '--nodes', '2', '--conversations', '5000', '--page-bytes', '4kb'];
    const child = startCli(args, { env: { TMPDIR: temporary } });
    const ended = collect(child);
    let seen = '';
    child.stderr?.on('data', (text: string) => {
      seen += text;
    });
    await until(() => /turns/.test(seen));
    const pids = childrenOf(child.pid!);
    t.is(pids.length, 4, 'two nodes, two engines');
    child.kill(signal);
    const run = await ended;
    t.is(run.status, signal === 'SIGKILL' ? null : 130, run.stderr);
    await until(() => pids.every((pid) => !isAlive(pid)));
    if (signal !== 'SIGKILL') t.deepEqual(readdirSync(temporary), []);
  });
}
