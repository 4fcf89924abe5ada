// What nodes do with wrong clocks was shown in simulated worlds only: here the dates of real processes are wrong, and
// step while they run.
import { spawn } from 'node:child_process';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../src/system/system-clock.js';
import { collect, runCli } from '../_support/cli/run-cli.js';
import { DatedCluster } from '../_support/node/dated-nodes.js';
import { OtherDate, otherDateMissing } from '../_support/node/other-date.js';
import { RawClient } from '../_support/resp/resp-fixture.js';
import { until } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const DAY_S = 86_400;
const test = unless(otherDateMissing);

test('other dates: a process is told another date in all threads, also when it steps, and no other clock', async (t) => {
  const date = new OtherDate(t, 600);
  const program = `
    const { Worker } = require('node:worker_threads');
    const ask = "const { parentPort } = require('node:worker_threads'); parentPort.on('message', () => parentPort.postMessage(Date.now()))";
    const worker = new Worker(ask, { eval: true });
    worker.on('message', (ms) => console.log(JSON.stringify([Date.now(), ms, Number(process.hrtime.bigint() / 1000000n)])));
    process.stdin.on('data', () => worker.postMessage(0)).on('end', () => worker.terminate());
  `;
  const child = spawn(process.execPath, ['-e', program], { env: { ...process.env, ...date.env } });
  t.teardown(() => void child.kill('SIGKILL'));
  let said = '';
  child.stdout.on('data', (text: Buffer) => {
    said += text.toString();
  });
  const lines = () => said.split('\n').filter(Boolean);
  for (const [i, aheadS] of [600, -210 * DAY_S, 0].entries()) {
    date.set(aheadS);
    child.stdin.write('.');
    await until(() => lines().length > i);
    const [main, worker, steadyMs] = JSON.parse(lines()[i] as string) as [number, number, number];
    for (const ms of [main, worker]) t.true(Math.abs(ms - Date.now() - 1000 * aheadS) < 60_000, `${ms}`);
    t.true(Math.abs(steadyMs - Number(process.hrtime.bigint() / 1_000_000n)) < 60_000);
  }
  child.stdin.end();
  t.is((await collect(child)).status, 0);
});

test('other dates: doctor compares the date of its machine with that of the cluster, and status names nodes that differ', async (t) => {
  const cluster = await DatedCluster.start(t, 1);
  for (const [aheadS, said] of [
    [0, undefined],
    [90, ['warning', /^the clock of this machine is 90 s ahead of those of the cluster$/]],
    [-600, ['warning', /^the clock of this machine is 600 s behind those of the cluster$/]],
    [600, ['problem', /^the clock of this machine is 600 s ahead of those of the cluster$/]],
  ] as const) {
    const finding = await clockFinding(t, cluster, aheadS);
    t.is(finding?.state, said?.[0], `${aheadS}`);
    if (said !== undefined) t.regex(finding?.detail ?? '', said[1]);
  }
  for (const [aheadS, said] of [
    [
      120,
      /clock 1[12]\d\.\d s ahead of those of the cluster: set it by NTP[^\n]*\bwrong\b|\bwrong\b[^\n]*clock 1[12]\d\.\d s ahead of/,
    ],
    [
      -600,
      /the clock of this machine is [56]\d\d s behind those of the cluster; set it by NTP[^\n]*\bwrong\b|\bwrong\b[^\n]*the clock of this machine is [56]\d\d s behind/,
    ],
    // Before 1970, where no machine is: it counts as the beginning of 1970.
    [
      -300 * 365 * DAY_S,
      /\bwrong\b[^\n]*the clock of this machine is 1\d{9} s behind those of the cluster; set it by NTP/,
    ],
  ] as const) {
    const wrong = cluster.node('wrong', { date: new OtherDate(t, aheadS) });
    t.is(await wrong.start(), undefined);
    await cluster.hasMembers(2);
    const from1970S = Math.max(aheadS, (systemClock.nowMs() - Date.now()) / 1000);
    await until(async () => Math.abs((await wrong.metric('meshcache_clock_offset_seconds')) - from1970S) < 10);
    t.regex(await cluster.status(), said);
    await wrong.stop();
    await cluster.hasMembers(1);
  }
  const refused = cluster.node('refused', { date: new OtherDate(t, 600) });
  t.regex((await refused.start())?.stderr ?? '', /the clock of this machine is (599|60\d) s ahead/);
  t.regex(await cluster.status(), /node refused at \S+ is refused as a member: its clock is (599|60\d) s ahead/);
  t.is(await cluster.nodes[0]?.metric('meshcache_discovery_refusals_total', 'reason="clock"'), 1);
});

test('other dates: what a Redis client sets until a date ends then, also on a node whose date is behind', async (t) => {
  const cluster = await DatedCluster.start(t, 2);
  const date = new OtherDate(t, -600);
  const wrong = cluster.node('wrong', { date, settings: ['resp_port=0'] });
  t.is(await wrong.start(), undefined);
  await until(async () => Math.abs((await wrong.metric('meshcache_clock_offset_seconds')) + 600) < 10);
  const [host = '', port = ''] = wrong.respEndpoint.split(':');
  const client = await RawClient.connect(t, { host, port: Number(port) });
  const untilMs = Date.now() + 3_000;
  client.send(`SET key page PXAT ${untilMs}\r\n`);
  t.is(await client.text('+OK\r\n'), '+OK\r\n');
  await until(async () => {
    client.send('EXISTS key\r\n');
    return (await client.text(':0\r\n')) === ':0\r\n';
  });
  t.true(Date.now() > untilMs - 1_000);
});

/** What the doctor says of the clock on a machine with this date. */
async function clockFinding(t: ExecutionContext, { address }: DatedCluster, aheadS: number) {
  const settings = ['protocol=tcp', 'metrics_enabled=false', 'local_hostname=127.0.0.1'].flatMap((each) => [
    '-o',
    each,
  ]);
  const { env } = new OtherDate(t, aheadS);
  const { stdout } = await runCli(['doctor', '--discovery-addr', address, '--json', ...settings], { env });
  const { findings } = JSON.parse(stdout) as {
    readonly findings: readonly { subject: string; state: string; detail: string }[];
  };
  return findings.find(({ subject, detail }) => subject === 'clock' && /those of the cluster/.test(detail));
}
