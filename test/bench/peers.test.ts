import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import type { BenchReport } from '../../src/bench/measuring/report.js';
import { mooncakePython } from '../../src/bench/peers/mooncake.js';
import { findPython } from '../../src/processes/programs.js';
import { childrenOf, collect, isAlive, runCli, startCli, until } from '../_support/cli/run-cli.js';
import { unless } from '../_support/unless.js';

const TIMEOUT_MS = 600_000;
/** Seconds for which a quick run lets a client wait for a page of a frozen process. */
const QUICK_READ_MAX_S = 3;

/** Why Mooncake Store is not here; empty if it is. */
async function whatIsMissing(): Promise<string> {
  const python = await findPython();
  if (python === undefined) return 'no python3';
  return mooncakePython(python, () => {}).then(
    () => '',
    (error: Error) => `no Mooncake Store: ${error.message}`,
  );
}

const withMooncake = unless(await whatIsMissing(), test.serial);

withMooncake('peers bench: a quick run measures all calls at all page sizes, and compares every byte', async (t) => {
  t.timeout(TIMEOUT_MS);
  const run = await runCli(['bench', 'peers', '--quick', '--rounds', '1', '--burn', '1', '--json']);
  t.is(run.status, 0, run.stderr);
  const { rows, failure } = JSON.parse(run.stdout) as BenchReport;
  t.is(failure, undefined);
  const calls = ['read, remote', 'read, local', 'write', 'bytes out, remote', 'bytes in'];
  const batches = ['4 KiB', '64 KiB', '1 MiB', '4 MiB'].flatMap((page) => calls.map((call) => `${call} ${page}`));
  const ones = ['exists', 'read, remote', 'read, local', 'write', 'exists, map'].map((call) => `one ${call} 4 KiB`);
  t.deepEqual(
    rows.map(({ call, page }) => `${call} ${page}`),
    [...batches, ...ones],
  );
  for (const { call, page, ratio, missed, ...figures } of rows) {
    t.regex(String(missed), /^\d+, \d+$/);
    // On a busy machine a store gives up on the other process, and nothing was moved.
    if (missed !== '0, 0') continue;
    t.true(Number(ratio) > 0, `${call} ${page}`);
    t.is(Object.values(figures).filter((figure) => Number(figure) > 0).length, 2, `${call} ${page}`);
  }
});

withMooncake('peers bench: both stores go through the same failures', async (t) => {
  t.timeout(TIMEOUT_MS);
  const run = await runCli(['bench', 'peers', '--failures', '--quick', '--rounds', '1', '--json']);
  t.is(run.status, 0, run.stderr);
  const { rows, failure } = JSON.parse(run.stdout) as BenchReport;
  t.is(failure, undefined);
  t.deepEqual(
    rows.map(({ situation, figure }) => `${situation}: ${figure}`),
    [
      'server killed: pages read at once',
      'server killed: pages read later',
      'server killed: pages read after its restart',
      'holder frozen: one page of it, s',
      'holder frozen: result of that read',
      'holder frozen: pages of another one read meanwhile',
      'holder frozen: these pages, s',
      ...['a burst', 'in time'].flatMap((pace) =>
        ['writes of 100 refused', 'these writes, s', 'last 32 pages read'].map(
          (figure) => `store full, ${pace}: ${figure}`,
        ),
      ),
      'checksums: GB/s without',
      'checksums: GB/s with',
      'checksums: with, relative to Mooncake without',
    ],
  );
  const killed = rows.filter(({ situation }) => situation === 'server killed');
  t.is(killed[0]?.mooncake, 0, 'its master was killed');
  // On a machine that is too busy for a quarter of a second, a live node is silent, too, and its pages are misses.
  t.true(killed.some(({ meshcache }) => Number(meshcache) > 0));
  const of = (name: string) => rows.find(({ figure }) => String(figure).endsWith(name));
  const [read, taken] = [of('result of that read'), of('one page of it, s')];
  for (const store of ['mooncake', 'meshcache'] as const) {
    // On a machine that is busy for seconds, the holder has been thawed meanwhile.
    const isThawed = Number(taken?.[store]) > QUICK_READ_MAX_S;
    t.true(['none yet', 'a miss', ...(isThawed ? ['the page'] : [])].includes(String(read?.[store])), store);
  }
  for (const { figure, mooncake } of rows.slice(-3)) t.true(Number(mooncake) > 0, String(figure));
});

for (const signal of ['SIGINT', 'SIGKILL'] as const) {
  withMooncake(`peers bench: a run that ${signal} ends leaves no process behind`, async (t) => {
    t.timeout(TIMEOUT_MS);
    const temporary = mkdtempSync(join(tmpdir(), 'meshcache-peers-test-'));
    t.teardown(() => rmSync(temporary, { recursive: true, force: true }));
    const child = startCli(['bench', 'peers', '--quick', '--burn', '1'], { env: { TMPDIR: temporary } });
    const ended = collect(child);
    let seen = '';
    child.stderr?.on('data', (text: string) => {
      seen += text;
    });
    await until(() => /publishing|round|warming/.test(seen));
    const pids = childrenOf(child.pid!);
    t.is(pids.length, 7, 'four clients, two nodes, one that keeps a core busy');
    const all = [...pids, ...pids.flatMap((pid) => childrenOf(pid))];
    t.is(all.length, 8, "and Mooncake's master");
    child.kill(signal);
    t.is((await ended).status, signal === 'SIGKILL' ? null : 130);
    await until(() => all.every((pid) => !isAlive(pid)));
    if (signal === 'SIGINT') t.deepEqual(readdirSync(temporary), []);
  });
}
