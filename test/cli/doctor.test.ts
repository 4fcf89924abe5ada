import test from 'ava';
import { checkSilentDiscovery, portClashes } from '../../src/cli/doctor/configuration.js';
import type { Finding } from '../../src/cli/doctor/finding.js';
import { runCli } from '../_support/cli/run-cli.js';
import { freePort } from '../_support/support.js';

async function findings(...args: string[]): Promise<{ status: number | null; bySubject: Map<string, Finding> }> {
  const run = await runCli(['doctor', '--json', ...args]);
  const { findings } = JSON.parse(run.stdout) as { findings: Finding[] };
  return { status: run.status, bySubject: new Map(findings.map((finding) => [finding.subject, finding])) };
}

test('doctor: a machine that runs the tests has no problem', async (t) => {
  const { status, bySubject } = await findings();
  t.is(status, 0);
  for (const subject of ['Node.js', 'WASM core', 'loopback', 'one-page trip']) {
    t.is(bySubject.get(subject)?.state, 'ok', bySubject.get(subject)?.detail);
  }
  t.regex(bySubject.get('native addon')?.detail ?? '', /^loaded, |^none: /);
  t.regex(bySubject.get('RDMA')?.detail ?? '', /^usable \(|^not usable, pages go over TCP; step "\w+" fails: ./);
  t.regex(bySubject.get('locked memory')?.detail ?? '', /can be locked/);
  t.regex(bySubject.get('huge pages')?.detail ?? '', /transparent ones: \w+/);
  t.regex(bySubject.get('one-page trip')?.detail ?? '', /every byte right/);
});

test('doctor: what the node does without is neither right nor wrong, and the last line sums up', async (t) => {
  const { bySubject } = await findings('-o', 'protocol=tcp', '-o', 'metrics_enabled=false', '--no-client-socket');
  for (const subject of ['RDMA', 'metrics', 'client socket']) t.is(bySubject.get(subject)?.state, 'n/a', subject);
  t.is(bySubject.get('locked memory'), undefined);
  const text = await runCli(['doctor', '-o', 'protocol=tcp']);
  t.regex(text.stdout, /^n\/a {6}RDMA +not wanted: protocol is tcp$/m);
  const counts = [...text.stdout.matchAll(/^(problem|warning|ok|n\/a) /gm)].map(([, state]) => state);
  const count = (wanted: string): number => counts.filter((state) => state === wanted).length;
  const warnings = count('warning');
  const summary = `0 problems, ${warnings} warning${warnings === 1 ? '' : 's'}, ${count('ok')} ok, ${count('n/a')} not applicable`;
  t.true(text.stdout.trimEnd().split('\n').at(-1)?.endsWith(`: ${summary}`), text.stdout);
  t.regex(text.stdout, /\n\na node can run here(, with the limits above)?: /);
  const wrong = await runCli(['doctor', '-o', 'vnodes=none']);
  t.is(wrong.status, 1);
  t.regex(wrong.stdout, /\n\na node cannot work as asked: 1 problem, /);
});

test('doctor: a discovery address of this machine that nobody answers is where the first node starts', async (t) => {
  const { status, bySubject } = await findings('--discovery-addr', `127.0.0.1:${await freePort()}`);
  t.is(status, 0);
  t.like(bySubject.get('discovery'), { state: 'warning' });
  t.regex(bySubject.get('discovery')?.advice ?? '', /start the first node here/);
});

test('doctor: a discovery address of another machine that nobody answers is a problem, with what to check', async (t) => {
  const finding = await checkSilentDiscovery({ host: '203.0.113.77', port: 31990 }, 'timed out');
  t.like(finding, { subject: 'discovery', state: 'problem', detail: 'no discovery master answers (timed out)' });
  t.regex(finding.advice ?? '', /is a node running on that host .*firewall/);
});

test('doctor: no two servers of a node have one port; 0 is any that is free', (t) => {
  const clashes = portClashes([
    ['control_port', 0],
    ['tcp_port', 31998],
    ['rdma_port', 0],
    ['metrics_port', 31997],
    ['discovery_addr', 31998],
    ['discovery_addr', 31997],
  ]);
  t.deepEqual(
    clashes.map(({ state, detail }) => `${state}: ${detail}`),
    [
      'problem: tcp_port and discovery_addr both have port 31998',
      'problem: metrics_port and discovery_addr both have port 31997',
    ],
  );
});
