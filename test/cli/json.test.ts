import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { collect, firstLine, runCli, startCli, until } from '../_support/cli/run-cli.js';
import { freePort } from '../_support/support.js';

const folder = mkdtempSync(join(tmpdir(), 'meshcache-json-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

const TRACE = join(folder, 'trace.jsonl');
writeFileSync(TRACE, '{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}\n');

/** Commands that end by themselves, and what stands in what they print. */
const COMMANDS: readonly (readonly [args: readonly string[], field: string])[] = [
  [['demo', '--nodes', '1', '--conversations', '2', '--page-bytes', '4kb'], 'wrong_bytes'],
  [['replay', TRACE, '--nodes', '1', '--page-bytes', '4kb'], 'prefix_hit_rate'],
  [['sim', 'trace', TRACE], 'unbounded_hit_rate'],
  [['bench', 'ring', '--quick', '--rounds', '1'], 'rows'],
  [['doctor'], 'findings'],
];

for (const [args, field] of COMMANDS) {
  test.serial(`json: ${args[0]} prints one JSON document on stdout and nothing else`, async (t) => {
    const run = await runCli([...args, '--json']);
    t.is(run.status, 0, run.stderr);
    t.true(field in (JSON.parse(run.stdout) as object), run.stdout);
    t.is(run.stdout.trimEnd().split('\n').length, 1);
    t.notRegex(run.stderr, /[{}]/);
  });
}

test.serial('json: node prints one line when it is ready; status has the same node', async (t) => {
  const addr = `127.0.0.1:${await freePort()}`;
  const child = startCli(['node', '--discovery-addr', addr, '--pool', '1mb', '-o', 'metrics_port=0', '--json']);
  t.teardown(() => child.kill('SIGKILL'));
  const ended = collect(child);
  const ready = JSON.parse(await firstLine(child)) as Record<string, unknown>;
  const run = await runCli(['status', '--discovery-addr', addr, '--json']);
  t.is(run.status, 0, run.stderr);
  t.is(run.stderr, '');
  const { nodes } = JSON.parse(run.stdout) as { nodes: Record<string, unknown>[] };
  t.is(nodes.length, 1);
  t.like(nodes[0], {
    node_id: ready.node_id,
    state: 'up',
    is_meta: true,
    metrics_endpoint: ready.metrics_endpoint,
    metrics_url: `http://${ready.metrics_endpoint}/`,
    health: { status: 'ok', reasons: [] },
  });
  child.kill('SIGTERM');
  const { status, stdout } = await ended;
  t.is(status, 0);
  t.is(stdout.trimEnd().split('\n').length, 1, 'nothing but the line');
});

test.serial('status: --watch shows it again and again, and ends with status 0 on SIGINT', async (t) => {
  const addr = `127.0.0.1:${await freePort()}`;
  const node = startCli(['node', '--discovery-addr', addr, '--pool', '1mb', '-o', 'metrics_port=0']);
  t.teardown(() => node.kill('SIGKILL'));
  await firstLine(node);
  const watch = startCli(['status', '--discovery-addr', addr, '--watch']);
  t.teardown(() => watch.kill('SIGKILL'));
  let seen = '';
  watch.stdout?.on('data', (text) => {
    seen += text;
  });
  const ended = collect(watch);
  await until(() => seen.split('1 member at').length > 2);
  node.kill('SIGKILL');
  await until(() => /no discovery master answers/.test(seen));
  watch.kill('SIGINT');
  const run = await ended;
  t.is(run.status, 0, run.stderr);
  const dead = await runCli(['status', '--discovery-addr', addr, '--watch']);
  t.is(dead.status, 1, 'what was never there is an error');
});
